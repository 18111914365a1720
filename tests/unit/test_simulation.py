"""Simulations: what costs do to a run, worked by hand, and that runs are saved and forked to the byte."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from phalanx.cluster.cluster import flat
from phalanx.simulate.costs import NO_COSTS, Costs, CostsError, costs_of
from phalanx.simulate.outcome import outcome
from phalanx.simulate.saved import SavedError, fork, load, save
from phalanx.simulate.simulation import Setup, Simulation
from phalanx.simulate.trace import Trace, TraceJob
from phalanx.simulate.traces.synthetic import Synthetic, synthesize

COSTS = Costs(start_ms=10_000, checkpoint_ms=5_000, restore_ms=20_000, stop_ms=1_000, locality=False)


def run(setup: Setup) -> Simulation:
    simulation = Simulation(setup)
    simulation.begin()
    simulation.go()
    return simulation


def ends_s(simulation: Simulation) -> dict[str, float]:
    return {job: (record.ended_ms or 0) / 1000 for job, record in simulation.run.state.jobs.items()}


def test_who_is_stopped_saves_its_work_and_loads_it_again() -> None:
    """long runs from 10 s to 40 s, saves until 45 s, is gone at 46 s; short starts then and runs from 56 s to 66 s.
    long starts again, loads until 96 s, and does the 70 s that are left."""
    trace = Trace("t", (TraceJob("long", 0, 100_000, 1), TraceJob("short", 40_000, 10_000, 1)))
    simulation = run(Setup(flat(1, 1), trace, "srtf", costs=COSTS))
    assert ends_s(simulation) == {"short": 66, "long": 166}
    [long, short] = outcome(simulation, "srtf").jobs
    assert (long.attempts, long.preemptions, short.preemptions) == (2, 1, 0)
    # Starting twice, saving, stopping, loading: 10 + 6 + 30 s.
    assert long.lost_gpu_s == 46


def test_who_runs_on_a_node_that_fails_does_again_what_was_not_saved() -> None:
    """The job runs from 10 s on; its node fails at 60 s and is given up at 61 s. It starts again on the other, with
    nothing to load, and runs from 71 s to 171 s."""
    trace = Trace("t", (TraceJob("a", 0, 100_000, 1),))
    simulation = run(Setup(flat(2, 1), trace, "fifo", costs=COSTS, faults=((60_000, "n0", "failed", "XID 79"),)))
    assert ends_s(simulation) == {"a": 171}
    [job] = outcome(simulation, "fifo").jobs
    assert job.nodes == ("n0", "n1")
    # Starting twice, stopping, and the 50 s that were lost.
    assert job.lost_gpu_s == 71


def test_without_costs_nothing_is_lost() -> None:
    trace = Trace("t", (TraceJob("long", 0, 100_000, 1), TraceJob("short", 40_000, 10_000, 1)))
    simulation = run(Setup(flat(1, 1), trace, "srtf", costs=NO_COSTS))
    assert ends_s(simulation) == {"short": 50, "long": 110}
    assert outcome(simulation, "srtf").summary["lost_gpu_s"] == 0


def test_a_job_larger_than_the_cluster_never_fits_and_holds_up_nobody() -> None:
    trace = Trace("t", (TraceJob("huge", 0, 1_000, 64), TraceJob("a", 1_000, 1_000, 1)))
    summary = outcome(run(Setup(flat(2, 4), trace, "fifo", costs=NO_COSTS)), "fifo").summary
    assert summary["jobs"] | {"completed": 1, "never_fit": 1, "unfinished": 0} == summary["jobs"]


@pytest.mark.parametrize("text", ["start=soon", "speed=1s", "locality=maybe"])
def test_a_cost_that_there_is_not_is_named(text: str) -> None:
    with pytest.raises(CostsError, match=text.partition("=")[0]):
        costs_of(text)


def test_costs_are_written_as_they_are_read() -> None:
    for text in (
        "default",
        "none",
        "start=30000ms,checkpoint=0ms,restore=0ms,stop=0ms,resize=0ms,repartition=0ms,locality=true",
    ):
        assert costs_of(text).text() == text


POLICIES = ("fifo", "priority", "srtf", "las", "tiresias-las", "backfill", "yarn-cs", "drf", "edf:preempt=true")


@pytest.mark.parametrize("policy", POLICIES)
def test_a_run_that_was_saved_or_forked_goes_on_to_the_byte(policy: str, tmp_path: Path) -> None:
    trace = synthesize(Synthetic(jobs=150, gpus=16, load=1.3, elastic=0.1, sweeps=0.1, deadlines=0.2), 1)
    whole = run(Setup(flat(4, 4), trace, policy))
    half = Simulation(Setup(flat(4, 4), trace, policy))
    half.begin()
    half.go(until_ms=whole.run.state.now // 3)
    path = str(tmp_path / "half")
    save(half, path)
    copies = [half, fork(half), load(path)]
    for copy in copies:
        copy.go()
        assert str(copy.run.state.digest) == str(whole.run.state.digest)
        assert outcome(copy, policy).summary == outcome(whole, policy).summary


def test_a_file_that_asks_for_anything_but_classes_of_phalanx_is_refused(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> tuple[object, ...]:
            return (print, ("run",))

    simulation = run(Setup(flat(1, 1), Trace("t", ()), "fifo"))
    simulation.works["x"] = Evil()  # type: ignore[assignment]
    path = tmp_path / "evil"
    save(simulation, str(path))
    with pytest.raises(SavedError, match=r"builtins\.print"):
        load(str(path))


@pytest.mark.parametrize("content", [b"", b"not ours", b"phalanx simulation 0.0.0\nxx", pickle.dumps({})])
def test_a_file_that_is_no_saved_run_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(SavedError, match=str(path)):
        load(str(path))
