"""Windows: figures of the steady part of a run, without the time in which a cluster fills and empties."""

from __future__ import annotations

import pytest

import phalanx
from phalanx.cluster.cluster import flat
from phalanx.simulate.figures.result import Timeline
from phalanx.simulate.figures.window import Window, WindowError, allocated_within
from phalanx.simulate.trace import Trace, TraceJob
from results import a_job_result

# One GPU; three jobs of 100 s that come every 50 s: they wait 0, 50 and 100 s.
CLUSTER = flat(1, 1)
TRACE = Trace("three", tuple(TraceJob(str(number), number * 50_000, 100_000, 1) for number in range(3)))


@pytest.mark.parametrize(
    ("text", "counted", "queued_s"),
    [("0s:", 3, 50.0), ("50s:", 2, 75.0), (":50s", 1, 0.0), ("50%:100%", 2, 75.0), ("50s:100s", 1, 50.0)],
)
def test_only_jobs_that_are_submitted_in_the_window_count(text: str, counted: int, queued_s: float) -> None:
    summary = phalanx.simulate(CLUSTER, TRACE, "fifo", costs="none", window=text).summary
    assert summary["window"]["jobs"] == counted
    assert summary["queued_s"]["mean"] == queued_s
    assert summary["by_queue"]["default"]["jobs"] == counted
    assert summary["jobs"]["submitted"] == 3
    assert summary["makespan_s"] == 300.0


def test_without_a_window_nothing_is_said_of_one() -> None:
    assert "window" not in phalanx.simulate(CLUSTER, TRACE, "fifo").summary


def test_every_run_of_a_comparison_has_the_window() -> None:
    results = phalanx.compare(CLUSTER, TRACE, ["fifo", "sjf"], costs="none", window="50s:")
    assert [result.summary["window"]["jobs"] for result in results] == [2, 2]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1d", "expected FROM:TO"),
        ("1d:2d:3d", "expected FROM:TO"),
        ("5d:2d", "it ends before it begins"),
        ("90%:10%", "it ends before it begins"),
        ("10%:10%", "it ends before it begins"),
        ("x:2d", "x: expected a time or a part"),
        ("0%:120%", "120%: expected 0% to 100%"),
    ],
)
def test_a_window_that_contradicts_itself_is_refused(text: str, message: str) -> None:
    with pytest.raises(WindowError) as error:
        phalanx.simulate(CLUSTER, TRACE, "fifo", window=text)
    assert message in str(error.value)


def test_a_window_without_a_job_and_one_that_ends_too_early_name_the_last_submission() -> None:
    jobs = [a_job_result("1", submit_s=0.0), a_job_result("2", submit_s=100.0)]
    with pytest.raises(WindowError, match="no job is submitted in it; the last is 100 s after the first"):
        Window.parse("1h:2h").jobs(jobs)
    with pytest.raises(WindowError, match="it ends at 100 s after the first submission, but begins at 200 s"):
        Window.parse("200s:").jobs(jobs)


def test_what_was_allocated_is_the_mean_over_the_window() -> None:
    timeline = Timeline([0.0, 10.0, 30.0], [0.2, 0.8, 0.4], [], [], [], 40.0)
    assert allocated_within(timeline, 0.0, 40.0) == pytest.approx((2 + 16 + 4) / 40)
    assert allocated_within(timeline, 10.0, 20.0) == pytest.approx(0.8)
    assert allocated_within(timeline, 50.0, 60.0) is None
