"""Synthetic traces: the same from the same seed, at exactly the load asked for, in the shape asked for."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.simulate.trace import Ending, Trace, TraceJob
from phalanx.simulate.traces.error import TraceError
from phalanx.simulate.traces.load import at_load, offered_load, span_ms, work_gpu_ms
from phalanx.simulate.traces.shapes import SHAPES
from phalanx.simulate.traces.synthetic import Synthetic, synthesize
from phalanx.workload.job import Kind

LARGE = Synthetic(jobs=20_000, gpus=512, load=0.8)
WEEK_MS = 7 * 86_400_000


def is_at_load(trace: Trace, gpus: int, load: float) -> bool:
    """Whether no whole millisecond of span would come nearer to the load."""
    return abs(work_gpu_ms(trace) / (gpus * load) - span_ms(trace)) <= 1


@given(
    jobs=st.integers(2, 300),
    gpus=st.integers(1, 2000),
    load=st.floats(0.05, 3),
    shape=st.sampled_from(sorted(SHAPES)),
    sweeps=st.floats(0, 1),
    share=st.floats(0, 1),
    seed=st.integers(0, 1000),
)
def test_every_trace_has_its_load_its_number_of_jobs_and_its_order(
    jobs: int, gpus: int, load: float, shape: str, sweeps: float, share: float, seed: int
) -> None:
    spec = Synthetic(jobs, gpus, load, shape, sweeps=sweeps, elastic=share, deadlines=share)
    trace = synthesize(spec, seed)
    assert len(trace.jobs) == jobs
    assert [job.id for job in trace.jobs] == [str(number) for number in range(1, jobs + 1)]
    assert [job.submit_ms for job in trace.jobs] == sorted(job.submit_ms for job in trace.jobs)
    assert trace.jobs[0].submit_ms == 0
    assert is_at_load(trace, gpus, load)
    for job in trace.jobs:
        assert job.duration_ms >= 1000
        assert 1 <= job.gpus <= gpus
        assert job.min_gpus <= job.gpus <= (job.max_gpus or job.gpus) <= gpus
        assert job.deadline_ms is None or job.deadline_ms > job.submit_ms + job.duration_ms


def test_equal_seeds_make_equal_traces_and_other_seeds_others() -> None:
    spec = replace(LARGE, jobs=500, sweeps=0.3, services=3, elastic=0.5, deadlines=0.5)
    assert synthesize(spec, 7) == synthesize(spec, 7)
    assert synthesize(spec, 7).jobs != synthesize(spec, 8).jobs


def test_the_philly_shape_has_its_sizes_and_its_heavy_tail() -> None:
    trace = synthesize(LARGE, 1)
    sizes = Counter(job.gpus for job in trace.jobs)
    for size in SHAPES["philly"].sizes:
        assert sizes[size.gpus] / len(trace.jobs) == pytest.approx(size.share, abs=0.006)
    work = sorted((job.gpus * job.duration_ms for job in trace.jobs), reverse=True)
    # In the distilled Philly trace the largest hundredth of jobs takes 67 % of the GPU time.
    assert 0.5 < sum(work[: len(work) // 100]) / sum(work) < 0.9
    durations = sorted(job.duration_ms for job in trace.jobs)
    assert durations[len(durations) // 2] < sum(durations) / len(durations) / 5


def test_jobs_end_as_the_shape_says_and_failed_ones_are_short() -> None:
    trace = synthesize(LARGE, 2)
    endings = Counter(job.ending for job in trace.jobs)
    assert endings[Ending.FAILED] / len(trace.jobs) == pytest.approx(0.172, abs=0.01)
    assert endings[Ending.CANCELLED] / len(trace.jobs) == pytest.approx(0.135, abs=0.01)
    assert median(trace, Ending.FAILED) < median(trace, Ending.COMPLETED) / 3


def median(trace: Trace, ending: Ending) -> int:
    durations = sorted(job.duration_ms for job in trace.jobs if job.ending is ending)
    return durations[len(durations) // 2]


def test_arrivals_follow_the_week_and_the_day() -> None:
    trace = synthesize(replace(LARGE, gpus=64), 3)
    assert span_ms(trace) > 4 * WEEK_MS
    whole_weeks = [job.submit_ms % WEEK_MS for job in trace.jobs if job.submit_ms < 4 * WEEK_MS]
    weekend = sum(1 for at_ms in whole_weeks if at_ms >= 5 * 86_400_000)
    assert weekend / (len(whole_weeks) - weekend) == pytest.approx(0.52 * 2 / 5, rel=0.15)
    hours = Counter(at_ms % 86_400_000 // 3_600_000 for at_ms in whole_weeks)
    afternoon, night = (sum(hours[hour] for hour in chosen) for chosen in (range(11, 18), (23, 0, 1, 2, 3, 4, 5)))
    assert 1.4 < afternoon / night < 2


def test_an_even_shape_arrives_evenly() -> None:
    trace = synthesize(Synthetic(10_000, 1024, 0.8, "gavel"), 3)
    halves = Counter(job.submit_ms * 2 // (span_ms(trace) + 1) for job in trace.jobs)
    assert halves[0] == pytest.approx(halves[1], rel=0.06)


def test_queues_have_skewed_shares_and_users_belong_to_one_queue() -> None:
    trace = synthesize(replace(LARGE, queues=4, users_per_queue=3), 1)
    shares = Counter(job.queue for job in trace.jobs)
    assert [queue for queue, _ in shares.most_common()] == ["q0", "q1", "q2", "q3"]
    assert shares["q0"] > 2 * shares["q1"]
    assert {job.user.partition("-")[0] == job.queue for job in trace.jobs} == {True}
    assert len({job.user for job in trace.jobs}) == 12


def test_sweeps_are_equal_jobs_of_which_most_are_cancelled_early() -> None:
    trace = synthesize(replace(LARGE, sweeps=0.5, failed=0.0, cancelled=0.0), 1)
    cancelled = [job for job in trace.jobs if job.ending is Ending.CANCELLED]
    assert len(cancelled) / len(trace.jobs) == pytest.approx(0.5 * 0.75, abs=0.05)


def test_a_trace_may_be_all_sweeps_and_their_members_are_alike() -> None:
    trace = synthesize(Synthetic(40, 64, 0.8, sweeps=1.0), 5)
    kept = {(job.gpus, job.duration_ms, job.user, job.model) for job in trace.jobs if job.ending is Ending.COMPLETED}
    assert len(kept) <= 40 / 5
    assert all(job.gpus in {gpus for gpus, *_ in kept} for job in trace.jobs)


def test_services_run_from_the_beginning_to_the_end_and_count_in_the_load() -> None:
    trace = synthesize(Synthetic(200, 64, 0.8, services=5), 1)
    services = [job for job in trace.jobs if job.kind is Kind.SERVICE]
    assert [(job.submit_ms, job.duration_ms) for job in services] == [(0, span_ms(trace))] * 5
    assert is_at_load(trace, 64, 0.8)


def test_services_that_are_more_than_the_load_are_refused() -> None:
    with pytest.raises(TraceError, match=r"its services alone are more than a load of 0.1 on 8 GPUs"):
        synthesize(Synthetic(100, 8, 0.1, services=20), 1)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"jobs": 1}, "2 to 10000000 jobs, got 1"),
        ({"jobs": 10**12}, "2 to 10000000 jobs, got 1000000000000"),
        ({"gpus": 0}, "1 GPU or more, got 0"),
        ({"load": 0.0}, "a load above 0, got 0.0"),
        ({"load": float("nan")}, "a load above 0, got nan"),
        ({"queues": 0}, "1 to 50000 queues, got 0"),
        ({"queues": 10**9}, "1 to 50000 queues, got 1000000000"),
        ({"users_per_queue": 0}, "1 to 10000 users a queue, got 0"),
        ({"services": 20_000}, "0 to 19999 services, got 20000"),
        ({"sweeps": 1.5}, "a share of jobs in sweeps, 0 to 1, got 1.5"),
        ({"elastic": -0.1}, "a share of elastic jobs, 0 to 1, got -0.1"),
        ({"deadlines": 2.0}, "a share of jobs with deadlines, 0 to 1, got 2.0"),
        ({"failed": 0.6, "cancelled": 0.6}, "no more failed and cancelled jobs than all, got 0.6 and 0.6"),
        ({"failed": -1.0}, "shares of failed and cancelled jobs, got -1.0, 0.135"),
        ({"shape": "square"}, "there is no shape 'square' (there is: philly, gavel, llm)"),
    ],
)
def test_what_cannot_be_made_is_refused(change: dict[str, object], expected: str) -> None:
    with pytest.raises(TraceError) as caught:
        synthesize(replace(LARGE, **change), 1)  # type: ignore[arg-type]
    assert expected in str(caught.value)


def test_shares_of_sizes_and_weights_of_durations_add_up() -> None:
    for shape in SHAPES.values():
        assert sum(size.share for size in shape.sizes) == pytest.approx(1, abs=0.001)
        for size in shape.sizes:
            assert sum(part.weight for part in size.durations) == pytest.approx(1)


@given(
    times=st.lists(st.integers(0, 10**9), min_size=2, max_size=20),
    gpus=st.integers(1, 5000),
    load=st.floats(0.01, 10),
)
def test_any_trace_can_be_brought_to_a_load(times: list[int], gpus: int, load: float) -> None:
    jobs = [TraceJob(str(i), at, 50_000_000, 1 + i, deadline_ms=at + 7, cancel_ms=at + 5) for i, at in enumerate(times)]
    trace = Trace("any", tuple(sorted(jobs, key=lambda job: job.submit_ms)))
    if not span_ms(trace):
        with pytest.raises(TraceError, match="all jobs are submitted at once"):
            at_load(trace, gpus, load)
        return
    moved = at_load(trace, gpus, load)
    assert is_at_load(moved, gpus, load)
    assert moved.jobs[0].submit_ms == trace.jobs[0].submit_ms
    for before, after in zip(trace.jobs, moved.jobs, strict=True):
        assert (after.id, after.duration_ms, after.gpus) == (before.id, before.duration_ms, before.gpus)
        assert (after.deadline_ms, after.cancel_ms) == (after.submit_ms + 7, after.submit_ms + 5)
    assert [job.submit_ms for job in moved.jobs] == sorted(job.submit_ms for job in moved.jobs)


def test_offered_load_is_work_over_what_there_is_while_jobs_are_submitted() -> None:
    trace = Trace("two", (TraceJob("a", 5_000, 10_000, 4), TraceJob("b", 15_000, 20_000, 2)))
    assert offered_load(trace, 8) == 1.0
    assert offered_load(at_load(trace, 8, 0.5), 8) == 0.5


@pytest.mark.parametrize(("gpus", "load"), [(0, 1.0), (8, 0.0), (8, -1.0), (8, float("inf")), (8, float("nan"))])
def test_a_load_that_is_none_is_refused(gpus: int, load: float) -> None:
    trace = Trace("two", (TraceJob("a", 0, 10, 4), TraceJob("b", 10, 20, 2)))
    with pytest.raises(TraceError, match="expected GPUs and a load above 0"):
        at_load(trace, gpus, load)
    with pytest.raises(TraceError, match="the load is not defined"):
        offered_load(Trace("none", ()), 8)
