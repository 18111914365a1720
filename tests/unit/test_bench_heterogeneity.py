"""Gavel's figure again: jobs as its authors draw them, heterogeneity-aware and agnostic."""

from __future__ import annotations

from collections import Counter

import pytest

from phalanx.bench.simulate.estimates import QUICK as FEW
from phalanx.bench.simulate.estimates import run as estimates
from phalanx.bench.simulate.heterogeneity import MODELS, QUICK, Blind, Size, cluster, drawn, mean_jct_s, run
from phalanx.simulate.simulation import Setup, Simulation
from phalanx.simulate.trace import Trace, TraceJob
from phalanx.simulate.world.costs import NO_COSTS
from phalanx.workload.family import relative_speed

HOUR_MS = 3_600_000


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
    ratio = rows["heterogeneity: 6 jobs an hour: mean JCT, gavel blind to types / gavel, mean of 2 seeds"]
    low, high = (
        rows[f"heterogeneity: 6 jobs an hour: mean JCT, gavel blind to types / gavel, 95 % {end}"]
        for end in ("from", "to")
    )
    assert low is not None
    assert high is not None
    assert low < ratio < high
    assert rows["heterogeneity: largest mean ratio / the paper's (up to 3.5)"] == pytest.approx(ratio / 3.5, rel=1e-4)


@pytest.mark.needs("highspy")
def test_who_is_blind_to_types_has_a_third_of_its_time_on_each_though_faster_ones_are_free() -> None:
    jobs = tuple(TraceJob(str(number), 0, 120 * HOUR_MS, 1, model="A3C") for number in range(3))
    simulation = Simulation(Setup(cluster(), Trace("few", jobs), "gavel:round=3600", costs=NO_COSTS))
    simulation.begin()
    simulation.run.adviser = Blind()
    simulation.go()
    paces = [relative_speed(name, "V100", "A3C") for name in ("V100", "P100", "K80")]
    for record in simulation.run.state.jobs.values():
        assert record.ended_ms == pytest.approx(120 * HOUR_MS * len(paces) / sum(paces), rel=0.1)


@pytest.mark.needs("highspy")
def test_a_run_in_which_arrivals_end_before_those_who_count_are_done_is_no_result() -> None:
    with pytest.raises(ValueError, match="all 20 jobs have come before"):
        mean_jct_s(Size(first=10, last=15, drawn=20, per_hour=(6.0,), round_s=3600), 6.0, False, 0)


def test_the_errors_of_estimates_are_told_of_both_forms() -> None:
    rows = {row["name"]: row["value"] for row in estimates(FEW, lambda line: None)}
    for form in ("all-reduce", "parameter servers"):
        assert rows[f"optimus, {form}: error of the estimated end at 75%"] < 0.2
    assert rows["optimus, parameter servers: error of the pace foretold of a new size and spread"] is not None
