"""Paired differences: which policies the runs tell apart, and which figures are of the same jobs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from phalanx.simulate.figures.result import Result
from phalanx.simulate.studies.paired import clear_best, differences, not_told_apart
from phalanx.simulate.studies.ranking import MEAN_JCT, ranked
from phalanx.simulate.studies.suite import Cell
from phalanx.simulate.studies.table import MEASURES, comparison_rows, is_alike
from results import a_job_result, a_result, a_waiting_job

JCT = next(measure for measure in MEASURES if measure.key == "mean_jct")
ALLOCATED = next(measure for measure in MEASURES if measure.key == "allocated")


def runs_of(**means: Sequence[float]) -> dict[str, dict[int, Result]]:
    """Runs by policy, with a mean time to completion for each seed."""
    return {
        policy: {
            seed: with_figure(a_result(policy, jobs=5), {"jct_s": {"mean": mean, "p95": mean}})
            for seed, mean in enumerate(own)
        }
        for policy, own in means.items()
    }


def with_figure(result: Result, figures: dict[str, Any]) -> Result:
    return msgspec.structs.replace(result, summary=result.summary | figures)


def test_a_difference_that_every_seed_shows_is_told_though_seeds_differ_more() -> None:
    runs = runs_of(a=(100.0, 500.0, 900.0), b=(110.0, 511.0, 909.0))
    (found,) = differences(JCT, 0.9, runs)
    assert (found.policy, found.best, found.worse.mean) == ("b", "a", 10.0)
    # Differences of 10, 11 and 9: a deviation of 1, and 4.303 standard errors to either side.
    assert found.worse.low == pytest.approx(10 - 4.303 / 3**0.5, abs=0.001)
    assert found.is_told_apart
    assert clear_best([found]) == "a"
    assert found.data()["worse_by"] == 10.0


def test_a_difference_that_seeds_disagree_on_is_none() -> None:
    found = list(differences(JCT, 0.9, runs_of(a=(100.0, 500.0, 900.0), b=(300.0, 400.0, 901.0), c=(1e6, 1e6, 1e6))))
    assert [(each.policy, each.is_told_apart) for each in found] == [("b", False), ("c", True)]
    assert clear_best(found) is None
    assert not_told_apart(found) == ("a", "b")


def test_of_shares_the_higher_is_the_better() -> None:
    runs = {
        policy: {seed: with_figure(a_result(policy, jobs=5), {"gpu_allocated": share}) for seed in (1, 2)}
        for policy, share in (("low", 0.4), ("high", 0.5))
    }
    (found,) = differences(ALLOCATED, 0.9, runs)
    assert (found.best, found.policy) == ("high", "low")
    assert found.worse.mean == pytest.approx(0.1)


def test_one_seed_and_equal_runs_tell_nothing_apart() -> None:
    assert not list(differences(JCT, 0.9, runs_of(a=(1.0,), b=(2.0,))))
    assert not list(differences(JCT, 0.9, runs_of(a=(1.0, 2.0))))
    (found,) = differences(JCT, 0.9, runs_of(a=(1.0, 2.0), b=(1.0, 2.0)))
    assert not found.is_told_apart
    assert not_told_apart([found]) == ()


def test_times_of_other_jobs_are_not_alike_and_have_no_best() -> None:
    first, second = a_result("first", jobs=6), a_result("second", jobs=6)
    fewer = msgspec.structs.replace(second, jobs=[*second.jobs[:-1], a_waiting_job(second.jobs[-1].job_id)])
    assert is_alike(JCT, [first, second])
    assert not is_alike(JCT, [first, fewer])
    assert is_alike(ALLOCATED, [first, fewer])
    other = msgspec.structs.replace(second, jobs=[*second.jobs, a_job_result("more")])
    assert not is_alike(ALLOCATED, [first, other])
    marked = [[cell.best for cell in row.cells] for row in comparison_rows([first, other])]
    assert not any(map(any, marked))


def test_shares_of_clusters_of_other_sizes_are_not_marked() -> None:
    full, idle = a_result("full", jobs=20), a_result("idle", jobs=20)
    idle.summary["gpu_allocated"] = 0.01
    assert any(row.texts()["allocated"].endswith("*") for row in comparison_rows([full, idle]))
    assert not any(row.texts()["allocated"].endswith("*") for row in comparison_rows([full, idle], ("allocated",)))


def test_a_suite_names_as_best_only_what_its_seeds_tell_from_all_others() -> None:
    def cell(policy: str, seed: int, mean: float) -> Cell:
        summary = a_result(policy, jobs=5).summary | {"jct_s": {"mean": mean, "p99": mean}}
        return Cell("philly", policy, 0.9, seed, summary)

    apart = [cell("a", 1, 100.0), cell("a", 2, 300.0), cell("b", 1, 110.0), cell("b", 2, 310.0)]
    close = [cell("c", 1, 90.0), cell("c", 2, 330.0)]
    place = ("philly", 0.9)
    assert ranked(apart).not_told_apart(MEAN_JCT, place) == ("a",)
    assert ranked([*apart, *close]).not_told_apart(MEAN_JCT, place) == ("a", "c")
    assert ranked(apart[:1]).not_told_apart(MEAN_JCT, place) == ()
