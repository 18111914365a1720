"""Failures in virtual time: each kind does to jobs what it should, and every second that they held is booked once."""

from __future__ import annotations

from typing import Any

import pytest

from phalanx.cli.reliability.check import checked
from phalanx.cluster.cluster import Cluster, Node
from phalanx.faults.generate.occurrence import Occurrence, What
from phalanx.simulate.entry import simulate, study_of
from phalanx.simulate.figures.outcome import outcome
from phalanx.simulate.figures.result import Result
from phalanx.simulate.simulation import Setup, Simulation
from phalanx.simulate.trace import Trace, TraceJob
from phalanx.simulate.traces.error import TraceError
from phalanx.simulate.world.costs import costs_of

NODES = Cluster(
    tuple(Node(f"n{each}", (f"rack{each // 2}",), 8) for each in range(4)), levels=("rack", "node"), policy="fifo"
)
COSTS = costs_of("none,start=100s,restore=50s,checkpoint=10s")
HOUR_MS = 3_600_000


def ran(*occurrences: Occurrence, gpus: int = 16, every_ms: int = 0, hours: int = 2) -> Result:
    """One job through failures."""
    trace = Trace("one", (TraceJob("job", 0, hours * HOUR_MS, gpus),))
    simulation = Simulation(Setup(NODES, trace, "fifo", costs=COSTS, occurrences=occurrences, every_ms=every_ms))
    simulation.begin()
    simulation.go()
    return outcome(simulation, "fifo")


def spent_s(result: Result, gpus: int = 16) -> dict[str, float]:
    """Seconds of the whole job by what they went to, without those that went to nothing."""
    return {name: value / gpus for name, value in result.summary["failures"]["gpu_s"].items() if value}


def struck(what: What, *nodes: str, at_s: int = 1100, **more: Any) -> Occurrence:
    return Occurrence(at_s * 1000, what, nodes, "test", **{"detect_ms": 60_000, "repair_ms": 600_000, **more})


def test_a_node_that_fails_costs_detection_restart_and_all_the_work_since_the_last_save() -> None:
    # It runs from 100 s on. 1000 s of work are lost at 1100 s, noticed at 1160 s, started again until 1260 s.
    result = ran(struck(What.NODE, "n0"))
    assert spent_s(result) == {"useful": 7200, "recompute": 1000, "detection": 60, "start": 100, "restart": 100}
    assert result.jobs[0].end_s == 1260 + 7200
    assert "n0" not in result.jobs[0].nodes, "it is in repair when the job starts again"


def test_a_job_that_saves_its_work_loses_what_came_after_and_stands_still_to_save() -> None:
    # Every 300 s of work take 310 s: of 1000 s, 930 are three saved parts, and 70 are lost.
    spent = spent_s(ran(struck(What.NODE, "n0"), every_ms=300_000))
    assert spent["recompute"] == pytest.approx(70, abs=0.1)
    assert spent["checkpoint"] == pytest.approx(7200 / 30, abs=0.1)
    assert spent["reload"] == 50
    assert spent["useful"] == pytest.approx(7200, abs=0.1)


def test_a_process_that_fails_leaves_its_node_in_service() -> None:
    result = ran(struck(What.PROCESS, "n0"), gpus=32)
    assert spent_s(result, 32) == {"useful": 7200, "recompute": 1000, "detection": 60, "start": 100, "restart": 100}
    assert len(result.jobs[0].nodes) == 4


def test_a_failure_elsewhere_touches_no_job() -> None:
    result = ran(struck(What.NODE, "n3"))
    assert result.summary["failures"] | {"gpu_s": 0} == {
        "happened": 1,
        "interrupted": 0,
        "gpu_s": 0,
        "queueing_gpu_s": 0,
    }
    assert spent_s(result) == {"useful": 7200, "start": 100}


def test_wrong_results_are_noticed_late_and_all_since_is_worth_nothing() -> None:
    result = ran(struck(What.SILENT, "n0", detect_ms=3_000_000), every_ms=300_000)
    assert spent_s(result)["detection"] == 3000


def test_a_slow_node_slows_the_whole_job_until_it_is_repaired() -> None:
    result = ran(struck(What.SLOW, "n0", factor=0.5))
    assert spent_s(result) == {"useful": 7200, "slowdown": 300, "start": 100}
    assert result.jobs[0].end_s == 7200 + 300 + 100


def test_a_reclaim_with_notice_loses_no_saved_work() -> None:
    with_notice = spent_s(ran(struck(What.RECLAIM, "n0", detect_ms=0, notice_ms=120_000), every_ms=300_000))
    without = spent_s(ran(struck(What.RECLAIM, "n0", detect_ms=0), every_ms=300_000))
    assert "recompute" not in with_notice
    assert without["recompute"] > 50


def test_a_notice_too_short_for_the_save_that_is_under_way_and_another_saves_nothing() -> None:
    spent = spent_s(ran(struck(What.RECLAIM, "n0", detect_ms=0, notice_ms=15_000), every_ms=300_000))
    assert spent["recompute"] > 50


def test_no_new_job_starts_on_a_node_that_is_announced_for_maintenance() -> None:
    trace = Trace("two", (TraceJob("early", 0, HOUR_MS, 8), TraceJob("late", 1_050_000, HOUR_MS, 24)))
    notice = struck(What.MAINTENANCE, "n1", detect_ms=0, notice_ms=120_000)
    simulation = Simulation(Setup(NODES, trace, "fifo", costs=COSTS, occurrences=(notice,)))
    simulation.begin()
    simulation.go()
    _, late = outcome(simulation, "fifo").jobs
    assert late.start_s is not None
    assert late.start_s >= 1100 + 600, "it needs all other nodes, and one of these is in maintenance until then"


def test_a_partition_ends_jobs_on_both_sides_only() -> None:
    inside = ran(struck(What.PARTITION, "n0", "n1"), gpus=16)
    astride = ran(struck(What.PARTITION, "n0"), gpus=16)
    assert inside.summary["failures"]["interrupted"] == 0
    assert astride.summary["failures"]["interrupted"] == 1


def test_a_failure_within_a_start_begins_it_anew() -> None:
    spent = spent_s(ran(struck(What.NODE, "n0", at_s=40)))
    assert spent == {"useful": 7200, "detection": 60, "start": 40, "restart": 100}


def test_a_second_failure_of_a_node_in_repair_changes_nothing() -> None:
    once, twice = ran(struck(What.NODE, "n0")), ran(struck(What.NODE, "n0"), struck(What.NODE, "n0", at_s=1400))
    assert once.jobs == twice.jobs


def test_a_job_placed_on_a_node_that_is_broken_but_not_known_to_be_stands_still_there() -> None:
    trace = Trace("one", (TraceJob("job", 1_110_000, HOUR_MS, 32),))
    simulation = Simulation(Setup(NODES, trace, "fifo", costs=COSTS, occurrences=(struck(What.NODE, "n0"),)))
    simulation.begin()
    simulation.go()
    result = outcome(simulation, "fifo")
    assert result.jobs[0].state == "succeeded"
    assert spent_s(result, 32) == {"useful": 3600, "detection": 50, "restart": 100}


def test_a_run_ends_with_its_jobs_and_not_with_the_last_failure() -> None:
    far = struck(What.NODE, "n0", at_s=10_000_000)
    assert ran(far).summary["makespan_s"] == 7300
    assert ran(far).summary["failures"]["happened"] == 0


def test_all_seconds_are_booked_once_in_a_busy_cluster_with_every_kind_of_failure() -> None:
    plan = (
        "llama-3:scale=400,burst=0.1,lemons=1,silent_days=2,slow_days=1,maintenance_days=3,partition_days=5,repair=1h"
    )
    result = simulate(NODES, "synthetic:jobs=60,load=0.8", seed=3, faults=plan, checkpoint_every="10m")
    found, summary = result.summary["failures"], result.summary
    assert found["interrupted"] > 20
    assert min(found["gpu_s"].values()) >= -1e-6
    held = sum(found["gpu_s"].values())
    assert found["gpu_s"]["useful"] / held == pytest.approx(summary["goodput"], abs=1e-6)
    assert found["gpu_s"]["other"] < 0.05 * held
    again = simulate(NODES, "synthetic:jobs=60,load=0.8", seed=3, faults=plan, checkpoint_every="10m")
    assert again.summary["digest"] == summary["digest"]


def test_the_scheduler_the_closed_form_and_chance_are_within_two_percent_in_16_settings() -> None:
    rows = list(checked(failures=200, seed=2))
    assert len(rows) == 16
    assert max(row["off"] for row in rows) < 0.02
    assert max(row["unbooked_s"] for row in rows) < 1e-3


def test_a_run_that_stops_on_the_way_has_the_same_failures_up_to_there_and_after() -> None:
    trace = Trace("one", (TraceJob("job", 0, 40 * HOUR_MS, 16),))
    options: Any = {"faults": "rsc-1:scale=500", "checkpoint_every": "10m", "placement": "topology"}
    setups = []
    for until in (None, "3h"):
        study = study_of(NODES, trace, options | {"until": until})
        (case,) = study.cases({"fifo": "fifo"})
        setups.append(study.setup(case))
    assert setups[0] == setups[1]
    assert len(setups[0].occurrences) > 20


def test_a_name_that_is_neither_file_nor_profile_is_an_error() -> None:
    with pytest.raises(TraceError, match="no profile of that name"):
        study_of(NODES, Trace("none", ()), {"faults": "rsc1:scale=2"})


def test_without_failures_nothing_is_said_of_them() -> None:
    assert "failures" not in simulate(NODES, "synthetic:jobs=5,load=0.5").summary
