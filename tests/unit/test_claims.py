"""Claims of papers beside runs of a suite: the same kind of figure, and a verdict only where the set-up is known."""

from __future__ import annotations

from dataclasses import replace

import pytest

from phalanx.policy.registry import BUILTIN
from phalanx.simulate.report.markdown import suite_markdown
from phalanx.simulate.studies.claims import CLAIMS, ELSEWHERE, MEAN_JCT, Claim, found
from phalanx.simulate.studies.ranking import ranked
from phalanx.simulate.studies.suite import Cell, standard, workloads

CLAIM = Claim("A paper", "twice as fast", (2.0, 2.5), MEAN_JCT, "slow", "fast", "w", "another cluster")


def cell(policy: str, jct_s: float, load: float = 0.9, seed: int = 0, workload: str = "w") -> Cell:
    summary = {
        "policy": policy,
        "jct_s": {"mean": jct_s, "p99": jct_s},
        "gpu_allocated": 0.5,
        "makespan_s": 100 * jct_s,
        "fairness": {"jain": 0.5, "worst_ftf": jct_s},
        "run": {"wall_s": 1.0},
    }
    return Cell(workload, policy, load, seed, summary)


def test_the_ratio_is_of_means_over_seeds_at_each_load() -> None:
    cells = [cell("slow", 40, 1.1), cell("fast", 10, 1.1), cell("slow", 10), cell("slow", 20, seed=1)]
    cells += [cell("fast:x=1", 5), cell("fast:x=1", 7, seed=1), cell("slow", 99, workload="other")]
    told = found(CLAIM, cells)
    assert told is not None
    assert told.ratios == (2.5, 4.0)


def test_nothing_is_told_where_one_of_the_two_was_not_run() -> None:
    assert found(CLAIM, [cell("slow", 10)]) is None
    assert found(CLAIM, [cell("slow", 10), cell("fast", 5, workload="other")]) is None
    assert found(CLAIM, [cell("slow", 10), cell("fast", 5, load=0.7)]) is None


@pytest.mark.parametrize(
    ("jct_s", "of_published", "verdict"),
    [(10, 0.5, "no"), (15, 0.75, "no"), (16.2, 0.81, "yes"), (23, 1.0, "yes"), (29, 1.16, "yes"), (31, 1.24, "no")],
)
def test_where_the_set_up_is_known_a_ratio_agrees_within_a_fifth(
    jct_s: float, of_published: float, verdict: str
) -> None:
    told = found(replace(CLAIM, is_known=True), [cell("slow", jct_s), cell("fast", 10)])
    assert told is not None
    assert told.of_published == pytest.approx(of_published)
    assert told.verdict == verdict


def test_of_several_loads_the_nearest_is_held_against_the_paper() -> None:
    cells = [cell(policy, jct_s, load) for load, jct_s in ((0.7, 11), (0.9, 21), (1.1, 60)) for policy in ("slow",)]
    cells += [cell("fast", 10, load) for load in (0.7, 0.9, 1.1)]
    told = found(replace(CLAIM, is_known=True), cells)
    assert told is not None
    assert (told.of_published, told.verdict) == (1.0, "yes")


def test_where_the_set_up_is_not_known_no_ratio_agrees_or_disagrees() -> None:
    told = found(CLAIM, [cell("slow", 23), cell("fast", 10)])
    assert told is not None
    assert told.verdict == "not comparable"


def test_a_claim_on_use_is_held_against_the_time_for_all_work_and_one_on_fairness_against_the_worst_served() -> None:
    by = {(claim.over, claim.under): claim.figure.path for claim in CLAIMS}
    assert by["fifo", "gandiva"] == by["yarn-cs", "antman"] == ("makespan_s",)
    assert by["tiresias-las", "themis"] == ("fairness", "worst_ftf")
    assert by["yarn-cs", "tiresias-las"] == ("jct_s", "mean")


def test_every_claim_is_of_policies_and_workloads_there_are_and_says_what_it_assumes() -> None:
    names = {workload.name for workload in workloads(10)}
    for claim in CLAIMS:
        assert {claim.over, claim.under} <= set(BUILTIN)
        assert claim.workload in names
        assert claim.assumes
        assert 1 < claim.published[0] <= claim.published[1]
    papers = " ".join(each.paper for each in (*CLAIMS, *ELSEWHERE))
    for paper in ("Tiresias", "Gandiva", "Gavel", "Pollux", "Themis", "AntMan", "HiveD"):
        assert paper in papers


def test_the_page_has_a_row_for_each_claim_with_its_verdict_and_what_is_not_alike() -> None:
    cells = [cell("gandiva", 20, workload="philly"), cell("fifo", 30, workload="philly")]
    suite = replace(standard(policies=("gandiva", "fifo"), seeds=1), loads=(0.9,))
    suite = replace(suite, workloads=tuple(each for each in suite.workloads if each.name == "philly"))
    page = list(suite_markdown(suite, cells, ranked(cells), "phalanx compare", {}))
    (row,) = (line for line in page if line.startswith("| Gandiva"))
    assert [each.strip() for each in row.strip("|").split("|")][2:7] == [
        "1.26",
        "makespan, `fifo` / `gandiva`, philly",
        "1.50",
        "1.19",
        "not comparable",
    ]
    (other,) = (line for line in page if line.startswith("| HiveD"))
    assert "`phalanx bench cells --only sharing`" in other
