"""The health loop in virtual time: nodes on which more fails take no new work, as a server has it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from builders import racked
from phalanx.cluster.cluster import Health
from phalanx.engine.state.journal import Journal
from phalanx.engine.state.state import State
from phalanx.engine.turn import verify
from phalanx.errors import PhalanxError
from phalanx.faults.generate.draw import Site, draw, lemons_of
from phalanx.faults.generate.plan import DAY_MS, plan_of
from phalanx.simulate.entry import simulate, study_of
from phalanx.simulate.figures.outcome import outcome
from phalanx.simulate.health_loop import HealthLoop, health_loop_of
from phalanx.simulate.saved import load, save
from phalanx.simulate.simulation import Setup, Simulation
from phalanx.simulate.trace import Trace, TraceJob
from phalanx.simulate.world.costs import costs_of

CLUSTER = racked(4, 16, 8)
LEMONS = "rsc-1:per_1000_node_days=60,lemons=3,lemon_factor=20,repair=30m"
TRACE = Trace("gangs", tuple(TraceJob(f"j{i}", 0, 20 * DAY_MS, 40) for i in range(12)))
COSTS = "default,locality=false"


def run(health: HealthLoop | None, seed: int = 2, days: float = 10, journal: Journal | None = None) -> Simulation:
    """Gangs of five nodes through the failures of nodes, three of which fail far more often."""
    occurrences = draw(plan_of(LEMONS), Site.of(CLUSTER), 10 * DAY_MS, seed)
    costs = costs_of(COSTS)
    setup = Setup(CLUSTER, TRACE, "fifo", costs=costs, occurrences=occurrences, every_ms=7_200_000, health=health)
    simulation = Simulation(setup, journal)
    simulation.begin()
    simulation.go(int(days * DAY_MS))
    return simulation


def test_the_nodes_that_fail_most_come_into_quarantine_and_more_of_the_time_is_of_use() -> None:
    plain, watched = run(None), run(HealthLoop(0.1, DAY_MS))
    assert set(watched.run.quarantined) == set(lemons_of(plan_of(LEMONS), Site.of(CLUSTER), 2))
    without, with_it = (outcome(each, "fifo").summary for each in (plain, watched))
    assert "health_loop" not in without["failures"]
    assert with_it["failures"]["health_loop"]["nodes"] == 3
    assert with_it["failures"]["interrupted"] < without["failures"]["interrupted"]
    assert with_it["goodput"] > without["goodput"]


def test_canaries_run_between_and_are_no_jobs_of_the_trace() -> None:
    journal = Journal()
    simulation = run(HealthLoop(0.1, DAY_MS, canary_ms=600_000), seed=3, journal=journal)
    found = outcome(simulation, "fifo")
    assert found.summary["failures"]["health_loop"]["canaries"] == len(simulation.canaries) > 0
    assert {job.job_id for job in found.jobs} == {f"j{i}" for i in range(12)}
    assert found.summary["jobs"]["completed"] == 0
    ended = [simulation.run.state.record(name).end_reason for name in simulation.canaries]
    assert all(not reason for reason in ended)
    assert verify(journal).fingerprint() == simulation.run.state.fingerprint()


def test_never_more_than_the_share_are_in_quarantine() -> None:
    simulation, most = run(HealthLoop(0.016, DAY_MS), days=0), [0]

    def look(state: State) -> None:
        most.append(state.capacity.with_health[Health.SUSPECT].bit_count())

    simulation.go(10 * DAY_MS, look)
    assert max(most) == 1


def test_a_saved_run_goes_on_with_its_watch(tmp_path: Path) -> None:
    loop = HealthLoop(0.1, DAY_MS, canary_ms=600_000)
    save(run(loop, seed=3, days=6), str(tmp_path / "run"))
    again = load(str(tmp_path / "run"))
    again.go(10 * DAY_MS)
    assert outcome(again, "fifo").summary == outcome(run(loop, seed=3), "fifo").summary


def test_a_run_whose_last_job_waits_for_a_node_in_quarantine_comes_to_its_end() -> None:
    cluster = racked(1, 2, 8)
    trace = Trace("two", (TraceJob("both", 3_600_000 * 30, 3_600_000, 16),))
    setup = Setup(cluster, trace, "fifo", health=HealthLoop(0.5, DAY_MS), faults=_falls("n0", 20))
    simulation = Simulation(setup)
    simulation.begin()
    simulation.go()
    (job,) = outcome(simulation, "fifo").jobs
    assert simulation.run.quarantined
    assert job.end_s is not None


def _falls(node: str, times: int) -> tuple[tuple[int, str, str, str], ...]:
    """A node goes down and comes back, so often within a day."""
    found: list[tuple[int, str, str, str]] = []
    for turn in range(times):
        at_ms = turn * DAY_MS // times
        found += [(at_ms, node, "failed", ""), (at_ms + 60_000, node, "healthy", "")]
    return tuple(found)


@pytest.mark.parametrize(
    "said", ["", "0", "0.6", "some", "0.1,time", "0.1,time=0s", "0.1,for=1h", "0.1,time=1h,time=2h"]
)
def test_what_is_no_health_loop_is_refused_with_what_is(said: str) -> None:
    with pytest.raises(PhalanxError, match=r"--quarantine .*expected"):
        health_loop_of(said)


def test_it_is_said_as_the_verb_and_python_have_it() -> None:
    assert health_loop_of("0.1") == HealthLoop(0.1)
    assert health_loop_of("0.2,time=1h,canary=10m") == HealthLoop(0.2, 3_600_000, 600_000)
    options: dict[str, Any] = {"faults": LEMONS, "until": "1d", "quarantine": "0.1"}
    assert study_of(CLUSTER, TRACE, options).health == HealthLoop(0.1)
    assert simulate(CLUSTER, TRACE, "fifo", **options).summary["failures"]["health_loop"]["canaries"] == 0
