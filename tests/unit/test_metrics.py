"""Metrics: each figure by hand on a few jobs, what is null, and that equal runs print equal bytes."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.simulate.figures.fairness import jain, served, worst_ftf
from phalanx.simulate.figures.metrics import Cost, per_job_csv, summarize
from phalanx.simulate.figures.never_fit import NeverFit, TooSmall, never_fit_notes
from phalanx.simulate.figures.result import JobResult
from phalanx.simulate.figures.spread import percentile, spread
from phalanx.simulate.studies.table import MEASURES, comparison_rows, count_text, duration_text
from results import a_job_result, a_result, a_waiting_job, an_empty_result, some_totals, too_large

KEYS = (
    "schema, policy, jobs, makespan_s, jct_s, wait_s, queued_s, slowdown, by_queue, by_size, "
    "gpu_allocated, gpu_busy, fragmentation, preemptions, moves, resizes, "
    "lost_gpu_s, goodput, fairness, events, digest, run"
)
COLUMNS = "job_id,queue,state,submit_s,start_s,end_s,wait_s,queued_s,jct_s,gpus,attempts,preemptions,lost_gpu_s,nodes"
finite = st.floats(min_value=0, max_value=1e9, allow_nan=False)


def csv_of(jobs: Sequence[JobResult]) -> list[str]:
    file = io.StringIO(newline="")
    per_job_csv(jobs, file)
    return file.getvalue().splitlines()


def test_the_object_has_the_fields_that_programs_know_in_their_order() -> None:
    summary = summarize([a_job_result()], some_totals())
    assert ", ".join(summary) == KEYS
    assert list(summary["jobs"]) == ["submitted", "completed", "failed", "cancelled", "never_fit", "unfinished"]
    assert (
        list(summary["jct_s"]) == list(summary["wait_s"]) == list(summary["queued_s"]) == ["mean", "p50", "p95", "p99"]
    )
    assert list(summary["fairness"]) == ["jain", "worst_ftf"]
    assert list(summary["run"]) == ["wall_s", "peak_mb"]


def test_every_job_is_counted_once() -> None:
    jobs = [
        a_job_result("1"),
        a_job_result("2", state="failed"),
        a_job_result("3", state="cancelled"),
        a_waiting_job("4"),
        a_waiting_job("5"),
        a_job_result("6", state="running", end_s=None),
        a_waiting_job("7", state="cancelled"),
    ]
    counts = summarize(jobs, some_totals(never_fit=too_large("4", "7")))["jobs"]
    assert counts == {"submitted": 7, "completed": 1, "failed": 1, "cancelled": 2, "never_fit": 1, "unfinished": 2}
    assert counts["submitted"] == sum(counts.values()) - counts["submitted"]


def test_what_is_too_small_for_jobs_that_never_fit_is_told_with_the_largest_of_them() -> None:
    jobs = [a_job_result("1"), a_waiting_job("2"), a_waiting_job("3", gpus=16), a_waiting_job("4", gpus=8)]
    of_queue = {job: NeverFit(TooSmall.QUEUE, f"job {job} is too large for its queue") for job in ("3", "4")}
    summary = summarize(jobs, some_totals(never_fit={**too_large("2"), **of_queue}))
    assert summary["never_fit"] == {
        "cluster": {"jobs": 1, "largest": "2", "gpus": 1, "why": "job 2 asks for 64 GPUs"},
        "queue": {"jobs": 2, "largest": "3", "gpus": 16, "why": "job 3 is too large for its queue"},
    }
    assert list(never_fit_notes(summary)) == [
        "1 job never fits its cluster: job 2 asks for 64 GPUs",
        "2 jobs never fit their queue; the largest: job 3 is too large for its queue",
    ]


def test_where_all_jobs_fit_nothing_is_told_of_those_that_do_not() -> None:
    summary = summarize(
        [a_waiting_job("1"), a_waiting_job("2", state="cancelled")], some_totals(never_fit=too_large("2"))
    )
    assert "never_fit" not in summary
    assert not list(never_fit_notes(summary))


def test_a_state_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="completed"):
        summarize([a_job_result(state="completed")], some_totals())


def test_makespan_runs_from_the_first_submission_to_the_last_end_of_any_kind() -> None:
    jobs = [
        a_job_result("1", submit_s=5.0),
        a_job_result("2", state="failed", end_s=300.0),
        a_waiting_job("3", submit_s=2.0),
    ]
    assert summarize(jobs[:2], some_totals())["makespan_s"] == 300.0
    assert summarize([jobs[0], jobs[2]], some_totals())["makespan_s"] == 108.0


def test_times_to_completion_are_of_completed_jobs_and_waits_of_started_ones() -> None:
    jobs = [
        a_job_result("1", start_s=10.0, end_s=110.0),
        a_job_result("2", start_s=30.0, end_s=40.0, state="failed", queued_s=35.0),
        a_waiting_job("3", queued_s=70.0),
        a_waiting_job("4", queued_s=999.0),
    ]
    summary = summarize(jobs, some_totals(never_fit=too_large("4")))
    assert summary["jct_s"] == {"mean": 110.0, "p50": 110.0, "p95": 110.0, "p99": 110.0}
    assert summary["wait_s"]["mean"] == 20.0
    assert summary["queued_s"] == {"mean": 38.333333, "p50": 35.0, "p95": 70.0, "p99": 70.0}


def test_shares_are_of_the_clusters_time_and_goodput_is_of_what_was_held() -> None:
    summary = summarize([a_job_result(preemptions=2), a_job_result("2", preemptions=1)], some_totals())
    assert (summary["gpu_allocated"], summary["gpu_busy"], summary["goodput"]) == (0.5, 0.375, 0.5)
    assert (summary["preemptions"], summary["moves"], summary["resizes"]) == (3, 2, 3)
    assert (summary["lost_gpu_s"], summary["fragmentation"]) == (40.0, 0.25)


def test_a_run_to_which_nobody_came_has_no_figures() -> None:
    summary = an_empty_result().summary
    nothing = {"mean": None, "p50": None, "p95": None, "p99": None}
    assert summary["makespan_s"] is None
    assert summary["jct_s"] == summary["wait_s"] == summary["queued_s"] == nothing
    assert summary["gpu_allocated"] is summary["goodput"] is summary["fragmentation"] is None
    assert summary["fairness"] == {"jain": None, "worst_ftf": None}
    assert summary["jobs"]["submitted"] == 0


def test_what_the_run_took_is_apart_from_the_rest() -> None:
    jobs = [a_job_result()]
    with_cost, without = summarize(jobs, some_totals(), cost=Cost(1.25, 64.0)), summarize(jobs, some_totals())
    assert with_cost.pop("run") == {"wall_s": 1.25, "peak_mb": 64.0}
    assert without.pop("run") == {"wall_s": None, "peak_mb": None}
    assert json.dumps(with_cost) == json.dumps(without)


def test_the_order_of_the_jobs_does_not_change_a_byte() -> None:
    result = a_result(jobs=200)
    totals = some_totals()
    alone_s = {job.job_id: 7.0 for job in result.jobs}
    forward, backward = summarize(result.jobs, totals, alone_s), summarize(result.jobs[::-1], totals, alone_s)
    assert json.dumps(forward) == json.dumps(backward)


def test_figures_have_six_decimals_and_no_negative_zero() -> None:
    summary = summarize([a_job_result(end_s=10.0 + 1 / 3)], some_totals(lost_gpu_s=-0.0, fragmentation=2 / 3))
    assert summary["jct_s"]["mean"] == 10.333333
    assert summary["fragmentation"] == 0.666667
    assert math.copysign(1.0, summary["lost_gpu_s"]) == 1.0


def test_a_figure_that_is_no_number_is_refused() -> None:
    with pytest.raises(ValueError, match="finite"):
        summarize([], some_totals(lost_gpu_s=math.nan))


def test_times_are_told_by_queue_and_by_size_and_beside_what_jobs_would_take_alone() -> None:
    jobs = [
        a_job_result("1", queue="a", gpus=8, start_s=100.0, end_s=300.0),
        a_job_result("2", queue="b", gpus=1, start_s=50.0, end_s=55.0),
        a_job_result("3", queue="a", gpus=1, start_s=0.0, end_s=40.0, state="failed"),
    ]
    found = summarize(jobs, some_totals(), {"1": 200.0, "2": 5.0, "3": 40.0})
    # 300 ÷ 200, and 55 ÷ 10, since a job that runs for 5 s counts as one of 10; the failed one counts in neither.
    assert found["slowdown"]["mean"] == (1.5 + 5.5) / 2
    assert {name: part["queued_s"]["mean"] for name, part in found["by_queue"].items()} == {"a": 50.0, "b": 50.0}
    sizes = {size: (part["jobs"], part["completed"]) for size, part in found["by_size"].items()}
    assert sizes == {"1": (2, 1), "8": (1, 1)}
    assert list(sizes) == ["1", "8"]
    assert found["by_size"]["1"]["queued_s"]["p99"] == 50.0


@pytest.mark.parametrize(("percent", "expected"), [(0, 1), (1, 1), (50, 5), (51, 6), (95, 10), (99, 10), (100, 10)])
def test_percentiles_are_by_nearest_rank(percent: int, expected: int) -> None:
    assert percentile(list(range(1, 11)), percent) == expected


def test_a_rank_that_floats_would_get_wrong() -> None:
    # 0.29 · 100 is 28.999999999999996 and 0.07 · 100 is 7.000000000000001.
    assert percentile(list(range(1, 101)), 29) == 29
    assert percentile(list(range(1, 101)), 7) == 7


@given(st.lists(finite, min_size=1), st.integers(0, 100))
def test_a_percentile_is_a_value_that_so_many_do_not_exceed(values: list[float], percent: int) -> None:
    found = percentile(sorted(values), percent)
    assert found in values
    assert sum(value <= found for value in values) * 100 >= percent * len(values)
    assert sum(value < found for value in values) * 100 < max(percent, 1) * len(values)


@given(st.lists(finite, min_size=1))
def test_a_spread_rises(values: list[float]) -> None:
    figures = spread(values)
    assert figures["p50"] <= figures["p95"] <= figures["p99"] <= round(max(values), 6)  # type: ignore[operator]
    assert round(min(values), 6) - 1e-6 <= figures["mean"] <= round(max(values), 6) + 1e-6  # type: ignore[operator]


def test_jain_is_one_for_equals_and_one_nth_for_one_who_has_everything() -> None:
    assert jain([0.3, 0.3, 0.3]) == pytest.approx(1.0)
    assert jain([0.7, 0.0, 0.0, 0.0]) == pytest.approx(0.25)
    assert jain([]) is None
    assert jain([0.0, 0.0]) is None


@given(st.lists(st.floats(0.001, 1), min_size=1, max_size=50))
def test_jain_lies_between_one_nth_and_one(shares: list[float]) -> None:
    assert 1 / len(shares) - 1e-9 <= (jain(shares) or 0.0) <= 1 + 1e-9


def test_a_queue_is_served_by_the_gpu_time_it_did_not_wait() -> None:
    jobs = [
        a_job_result("1", queue="a", gpus=2, start_s=50.0, end_s=100.0),
        a_job_result("2", queue="a", gpus=6, start_s=0.0, end_s=100.0),
        a_job_result("3", queue="b", start_s=0.0, end_s=10.0),
        a_waiting_job("4", queue="c", submit_s=60.0, queued_s=40.0),
        a_job_result("5", queue="d", state="running", start_s=60.0, end_s=None),
    ]
    assert served(jobs, 100.0) == {"a": 0.875, "b": 1.0, "c": 0.0, "d": 0.4}


def test_a_queue_that_never_asked_for_anything_counts_for_nobody() -> None:
    assert served([a_job_result(gpus=0)], 200.0) == {}


def test_fairness_leaves_out_jobs_that_never_fit() -> None:
    jobs = [a_job_result("1", queue="a", start_s=0.0), a_waiting_job("2", queue="b", queued_s=110.0)]
    assert summarize(jobs, some_totals())["fairness"]["jain"] == 0.5
    assert summarize(jobs, some_totals(never_fit=too_large("2")))["fairness"]["jain"] == 1.0


def test_a_job_alone_is_as_fast_as_its_ideal() -> None:
    assert worst_ftf([a_job_result(start_s=0.0, end_s=100.0, gpus=8)], {"1": 100.0}, 8, 100.0) == 1.0


def test_the_ideal_is_the_time_on_an_equal_part_of_the_cluster() -> None:
    # Two jobs of 8 GPUs for 100 s on 8 GPUs: the first runs at once, the second after it. While the first is there so
    # is the second, so its part is 4 GPUs; the second shares half of its stay, so its part is 8 ÷ 1.5 GPUs.
    jobs = [a_job_result("1", start_s=0.0, end_s=100.0, gpus=8), a_job_result("2", start_s=100.0, end_s=200.0, gpus=8)]
    assert worst_ftf(jobs[:1], {"1": 100.0}, 8, 200.0) == 1.0
    assert worst_ftf(jobs, {"1": 100.0}, 8, 200.0) == pytest.approx(0.5)
    assert worst_ftf(jobs, {"1": 100.0, "2": 100.0}, 8, 200.0) == pytest.approx(200 / 150)


def test_a_job_smaller_than_its_part_has_its_own_time_for_an_ideal() -> None:
    jobs = [a_job_result(str(number), start_s=90.0, end_s=100.0) for number in range(4)]
    assert worst_ftf(jobs, {str(number): 10.0 for number in range(4)}, 8, 100.0) == 10.0


def test_finish_time_fairness_is_unknown_without_times_alone_and_without_completed_jobs() -> None:
    assert worst_ftf([a_job_result()], {}, 8, 110.0) is None
    assert worst_ftf([a_job_result()], {"1": 0.0}, 8, 110.0) is None
    assert worst_ftf([a_job_result(state="failed")], {"1": 5.0}, 8, 110.0) is None


def test_a_job_that_ends_as_it_comes_is_no_trouble() -> None:
    assert worst_ftf([a_job_result(start_s=0.0, end_s=0.0)], {"1": 1.0}, 8, 0.0) == 0.0


def test_the_csv_has_the_columns_that_programs_know() -> None:
    jobs = [a_job_result("7", nodes=("n1", "n2"), lost_gpu_s=1 / 3), a_waiting_job("8", queued_s=5.0)]
    assert csv_of(jobs) == [
        COLUMNS,
        "7,research,succeeded,0.0,10.0,110.0,10.0,10.0,110.0,1,1,0,0.333333,n1;n2",
        "8,research,waiting,0.0,,,,5.0,,1,0,0,0.0,",
    ]


def test_the_csv_quotes_what_would_break_it() -> None:
    assert csv_of([a_job_result('a,"b"')])[1].startswith('"a,""b""",research')


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (0.0421, "42.1ms"),
        (0.9999, "1s"),
        (12.34, "12.3s"),
        (59.96, "1m 0s"),
        (320, "5m 20s"),
        (3599.7, "1h 0m"),
        (11_530, "3h 12m"),
        (86_399, "1d 0h"),
        (190_000, "2d 5h"),
        (-90, "-1m 30s"),
    ],
)
def test_durations_are_said_in_their_two_largest_units(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text


def test_counts_are_whole_and_means_of_counts_are_not() -> None:
    assert (count_text(12345.0), count_text(2.25)) == ("12,345", "2.2")


def test_the_comparison_marks_the_best_of_each_column_in_its_direction() -> None:
    slow, fast = a_result("slow", load=1.4), a_result("fast", load=0.3)
    rows = [row.texts() for row in comparison_rows([slow, fast])]
    assert list(rows[0]) == ["policy", *(measure.key for measure in MEASURES)]
    assert [row["policy"] for row in rows] == ["slow", "fast"]
    assert not rows[0]["mean_wait"].endswith("*")
    assert rows[1]["mean_wait"].endswith(" *")
    assert rows[0]["allocated"].endswith(" *")
    assert not any(row["completed"].endswith("*") for row in rows), "where all are equal none is best"


def test_nobody_is_best_in_a_column_in_which_all_read_the_same() -> None:
    first, second = a_result("a"), a_result("a")
    first.summary["gpu_allocated"], second.summary["gpu_allocated"] = 0.36701, 0.36702
    first.summary["fragmentation"], second.summary["fragmentation"] = 0.0151, 0.0162
    rows = [row.texts() for row in comparison_rows([first, second])]
    assert [row["allocated"] for row in rows] == ["36.7%", "36.7%"]
    assert [row["fragmentation"] for row in rows] == ["1.5% *", "1.6%"]


def test_one_result_is_best_at_nothing_and_nothing_is_a_dash() -> None:
    (row,) = comparison_rows([an_empty_result()])
    assert not any(cell.best for cell in row.cells)
    assert row.texts()["mean_jct"] == "-"


def test_a_result_without_a_figure_leaves_the_best_to_others() -> None:
    rows = comparison_rows([an_empty_result(), a_result("a"), a_result("b")])
    column = [row.cells[1] for row in rows]
    assert column[0].best is False
    assert sum(cell.best for cell in column) == 1
