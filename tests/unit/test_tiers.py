"""Tiers: what jobs were promised, and whether they had it."""

from __future__ import annotations

import pytest

from builders import a_job
from phalanx.cluster.cluster import flat
from phalanx.simulate.batch import run_one
from phalanx.simulate.costs import NO_COSTS
from phalanx.simulate.simulation import Setup
from phalanx.simulate.table import comparison_rows
from phalanx.simulate.trace import Trace, TraceJob
from phalanx.workload.tier import Tier, tier_of

HOUR_MS = 3_600_000


@pytest.mark.parametrize(
    ("labels", "priority", "tier"),
    [
        ((("tier", "standard"),), 500, Tier.STANDARD),
        ((), 200, Tier.PREMIUM),
        ((), 100, Tier.STANDARD),
        ((), 99, Tier.BASIC),
        ((("tier", "gold"),), 0, Tier.BASIC),
    ],
)
def test_a_tier_is_that_of_the_label_else_of_the_priority(
    labels: tuple[tuple[str, str], ...], priority: int, tier: Tier
) -> None:
    assert tier_of(a_job("a", labels=labels, priority=priority)) is tier


def two_jobs(policy: str) -> Setup:
    """Two hours on one GPU for two jobs of an hour that come at once, the basic one first."""
    jobs = (TraceJob("b", 0, HOUR_MS, 1), TraceJob("p", 1, HOUR_MS, 1, tier="premium"))
    return Setup(flat(1, 1), Trace("two", jobs), policy, costs=NO_COSTS)


def test_figures_of_tiers_tell_who_had_what_was_promised_under_any_policy() -> None:
    fair, first = run_one(two_jobs("singularity"), "singularity"), run_one(two_jobs("fifo"), "fifo")
    premium = fair.summary["tiers"]["premium"]
    assert premium == {"jobs": 1, "promised": 0.95, "fraction": 1.0, "attained": 1.0}
    assert first.summary["tiers"]["premium"]["attained"] == 0.0
    assert first.summary["tiers"]["premium"]["fraction"] == pytest.approx(0.5, abs=0.001)
    assert [row.texts()["premium_sla"] for row in comparison_rows([fair, first])] == ["100.0% *", "0.0%"]


def test_without_tiers_nothing_is_said_of_them() -> None:
    trace = Trace("one", (TraceJob("a", 0, 1000, 1),))
    result = run_one(Setup(flat(1, 1), trace, "fifo"), "fifo")
    assert "tiers" not in result.summary
    assert comparison_rows([result])[0].texts()["premium_sla"] == "-"


def test_promises_that_cannot_all_be_kept_are_broken_and_told() -> None:
    jobs = tuple(TraceJob(f"p{i}", 0, HOUR_MS, 1, tier="premium") for i in range(3))
    result = run_one(Setup(flat(1, 1), Trace("three", jobs), "singularity"), "singularity")
    assert result.summary["jobs"]["completed"] == 3
    assert result.summary["tiers"]["premium"]["attained"] < 1
