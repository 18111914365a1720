"""Gavel's figure again: jobs as its authors draw them, with and without an eye for GPU types."""

from __future__ import annotations

from collections import Counter

import pytest

from phalanx.bench.estimates import QUICK as FEW
from phalanx.bench.estimates import run as estimates
from phalanx.bench.heterogeneity import MODELS, QUICK, cluster, drawn, run


def test_jobs_are_drawn_as_the_authors_draw_them() -> None:
    jobs = drawn(4_000, 5.0, 0).jobs
    minutes = [job.duration_ms / 60_000 for job in jobs]
    assert min(minutes) >= 10**1.5 - 0.01
    assert max(minutes) <= 10**4 + 0.01
    assert sum(each < 1_000 for each in minutes) / len(minutes) == pytest.approx(0.8, abs=0.02)
    assert jobs[-1].submit_ms / 3_600_000 == pytest.approx(4_000 / 5, rel=0.05)
    assert len(MODELS) == len(set(MODELS)) == 26
    assert set(Counter(job.model for job in jobs)) == set(MODELS)
    assert {job.gpus for job in jobs} == {1}


def test_the_cluster_has_as_many_gpus_of_each_type() -> None:
    counts = Counter(node.gpu_type for node in cluster().nodes for _ in range(node.gpus))
    assert counts == {"V100": 36, "P100": 36, "K80": 36}


@pytest.mark.needs("highspy")
def test_the_largest_ratio_stands_beside_the_papers() -> None:
    rows = {row["name"]: row["value"] for row in run(QUICK, lambda line: None)}
    ratio = rows["heterogeneity: 30 jobs an hour: mean JCT, gavel blind to types / gavel"]
    assert rows["heterogeneity: largest ratio / the paper's (up to 3.5)"] == pytest.approx(ratio / 3.5, rel=1e-4)


def test_the_errors_of_estimates_are_told_of_both_forms() -> None:
    rows = {row["name"]: row["value"] for row in estimates(FEW, lambda line: None)}
    for form in ("all-reduce", "parameter servers"):
        assert rows[f"optimus, {form}: error of the estimated end at 75%"] < 0.2
    assert rows["optimus, parameter servers: error of the pace foretold of a new size and spread"] is not None
