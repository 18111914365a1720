"""Studies: runs from Python, in this process and in others, and traces that are drawn anew for each seed."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import phalanx
from phalanx.cluster.cluster import flat
from phalanx.engine.state.state import State
from phalanx.policy.policy import Policy
from phalanx.simulate.entry import policies_of, study_of
from phalanx.simulate.figures.result import Result
from phalanx.simulate.run import Run
from phalanx.simulate.studies.batch import RunError, Stopped, run_cases
from phalanx.simulate.studies.study import StudyError
from phalanx.simulate.studies.vary import VariationError
from phalanx.simulate.trace import Trace, TraceJob
from phalanx.simulate.traces.error import TraceError
from phalanx.simulate.traces.load import offered_load
from phalanx.simulate.traces.redraw import redrawn
from phalanx.workload.job import Job

CLUSTER = flat(nodes=4, gpus=8)
TRACE = "synthetic:jobs=60,load=2.0,shape=gavel"


def without_run(result: Result) -> dict[str, Any]:
    return {key: value for key, value in result.summary.items() if key != "run"}


def test_the_package_of_virtual_time_is_also_the_function() -> None:
    result = phalanx.simulate(CLUSTER, TRACE, "sjf")
    assert result.summary["jobs"]["completed"] == 60
    assert Run.__module__ == "phalanx.simulate.run"
    assert callable(phalanx.simulate)


def test_a_path_a_trace_and_a_policy_may_be_given_as_values(tmp_path: Path) -> None:
    cluster = tmp_path / "cluster.yaml"
    cluster.write_text("version: 1\nnodes: [{count: 1, gpus: 8}]\n")
    trace = Trace("two", (TraceJob("1", 0, 60_000, 8), TraceJob("2", 1000, 60_000, 8)))
    last_first = Policy("last-first", order=lambda job, at: (-job.submitted_ms,))
    result = phalanx.simulate(cluster, trace, last_first, costs="none")
    assert result.summary["policy"] == "last-first"
    assert [job.jct_s for job in result.jobs] == [60.0, 119.0]


def test_a_watch_sees_every_turn_and_may_end_the_run() -> None:
    seen: list[int] = []

    def watch(state: State) -> None:
        seen.append(state.now)
        if len(seen) == 50:
            raise Stopped

    result = phalanx.simulate(CLUSTER, TRACE, watch=watch)
    assert len(seen) == 50
    assert result.summary["jobs"]["unfinished"] > 0


def test_compare_runs_the_same_in_this_process_and_in_others() -> None:
    here = phalanx.compare(CLUSTER, TRACE, ["fifo", "srtf"], seeds=2, vary="load=0.5:1:0.5")
    others = phalanx.compare(CLUSTER, TRACE, ["fifo", "srtf"], seeds=2, vary="load=0.5:1:0.5", workers=2)
    assert list(map(without_run, here)) == list(map(without_run, others))
    assert [(result.summary["policy"], result.setup["seed"]) for result in here[:4]] == [
        ("fifo", 0),
        ("srtf", 0),
        ("fifo", 1),
        ("srtf", 1),
    ]


def test_a_policy_that_other_processes_do_not_know_is_named() -> None:
    policies = policies_of(["fifo", Policy("only-here")])
    study = study_of(CLUSTER, TRACE, {})
    with pytest.raises(RunError, match="unknown policy 'only-here'"):
        list(run_cases(study, study.cases(policies), workers=2))


def test_what_the_engine_refuses_is_told_with_the_policy() -> None:
    trace = Trace("twice", (TraceJob("1", 0, 60_000, 8), TraceJob("1", 1000, 60_000, 8)))
    with pytest.raises(RunError, match="policy fifo: there is a job '1' already"):
        phalanx.simulate(CLUSTER, trace)


def test_a_mistake_of_ours_keeps_its_kind_and_says_under_which_policy() -> None:
    def watch(state: State) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as caught:
        phalanx.simulate(CLUSTER, TRACE, "sjf", watch=watch)
    assert caught.value.__notes__ == ["in a run of the policy sjf"]


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"placement": "nope"}, "there is no placement 'nope' (there is: count, topology, pack, spread, random)"),
        ({"until": "noon"}, "until noon: expected a time"),
        ({"cost": "none"}, "there is no option cost; did you mean costs? (there are: placement, costs, seed, "),
        ({"untill": "3d"}, "there is no option untill; did you mean until?"),
        ({"foo": 1}, "there is no option foo (there are: placement, costs, seed, load, faults, until, "),
        ({"until": 5}, "until is 5: expected a time since the run began, such as '12h' or '3d'"),
        ({"seed": "a"}, "seed is 'a': expected a whole number"),
        ({"seed": True}, "seed is True: expected a whole number"),
        ({"load": ()}, "load is (): expected a number, such as 0.9, or a change, such as '+30%'"),
        ({"costs": None}, "costs is None: expected costs, such as 'none' or 'start=30s'"),
        ({"placement": 3}, "placement is 3: expected a placement, such as 'count'"),
        ({"faults": 7}, "faults is 7: expected a file"),
        ({"skip_bad_rows": "no"}, "skip_bad_rows is 'no': expected True or False"),
    ],
)
def test_options_that_there_are_not_are_refused(options: Any, line: str) -> None:
    with pytest.raises(StudyError) as caught:
        phalanx.simulate(CLUSTER, TRACE, **options)
    assert line in str(caught.value)


def test_options_of_compare_that_there_are_not_are_refused_as_python_refuses_arguments() -> None:
    with pytest.raises(TypeError, match="there is no option placment; did you mean placement"):
        phalanx.compare(CLUSTER, TRACE, ["fifo"], placment="pack")  # type: ignore[call-arg]


def test_one_load_and_several_are_refused_together() -> None:
    with pytest.raises(VariationError, match=r"the load is 0\.9 .* and is to vary from 0\.5 to 1 "):
        phalanx.compare(CLUSTER, TRACE, ["fifo"], vary="load=0.5:1.0:0.5", load=0.9)


def test_the_load_of_any_trace_can_be_asked_for() -> None:
    study = study_of(CLUSTER, TRACE, {"load": 0.5})
    (case,) = study.cases(policies_of(["fifo"]))
    assert offered_load(study.setup(case).trace, CLUSTER.gpus) == pytest.approx(0.5, rel=1e-6)


def jobs_of(gaps: list[int]) -> tuple[TraceJob, ...]:
    times = [sum(gaps[:index]) for index in range(len(gaps) + 1)]
    return tuple(TraceJob(str(at), time, 60_000, 1, deadline_ms=time + 5) for at, time in enumerate(times))


@given(st.lists(st.integers(0, 10_000), min_size=1, max_size=60).filter(any), st.integers(0, 5))
def test_a_trace_that_is_drawn_anew_keeps_its_jobs_order_span_and_deadlines(gaps: list[int], seed: int) -> None:
    trace = Trace("recorded", jobs_of(gaps))
    drawn = redrawn(trace, seed)
    assert [job.id for job in drawn.jobs] == [job.id for job in trace.jobs]
    assert (drawn.jobs[0].submit_ms, drawn.jobs[-1].submit_ms) == (0, trace.jobs[-1].submit_ms)
    assert all(earlier.submit_ms <= later.submit_ms for earlier, later in pairwise(drawn.jobs))
    assert all(job.deadline_ms == job.submit_ms + 5 for job in drawn.jobs)
    assert drawn == redrawn(trace, seed)


def test_jobs_that_come_all_at_once_cannot_be_drawn_anew() -> None:
    trace = Trace("at once", (TraceJob("1", 0, 1, 1), TraceJob("2", 0, 1, 1)))
    with pytest.raises(TraceError, match="all its jobs are submitted at once"):
        redrawn(trace, 1)


def test_other_seeds_draw_other_arrivals() -> None:
    trace = Trace("recorded", jobs_of([index * 37 % 101 for index in range(60)]))
    assert redrawn(trace, 1) != redrawn(trace, 2) != replace(trace)


def test_the_names_of_the_package_are_what_they_were() -> None:
    assert phalanx.Job is Job
    for name in phalanx.__all__:
        assert getattr(phalanx, name) is not None
