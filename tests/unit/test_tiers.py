"""Tiers: what jobs were promised, and whether they had it."""

from __future__ import annotations

from typing import Any

import pytest

from builders import World, a_job
from phalanx.cluster.cluster import flat
from phalanx.engine.turn import replay
from phalanx.planning import plan
from phalanx.simulate.simulation import Setup
from phalanx.simulate.studies.batch import run_one
from phalanx.simulate.studies.table import comparison_rows
from phalanx.simulate.trace import Trace, TraceJob
from phalanx.simulate.world.costs import NO_COSTS, Costs
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
    assert premium == {"jobs": 1, "promised": 0.95, "fraction": 1.0, "attained": 1.0, "needed_gpus": 1}
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


def premium_of(policy: str, *jobs: TraceJob, gpus: int = 1, costs: Costs = NO_COSTS) -> dict[str, Any]:
    result = run_one(Setup(flat(1, gpus), Trace("some", jobs), policy, costs=costs), policy)
    found: dict[str, Any] = result.summary["tiers"]["premium"]
    return found


def test_a_start_that_takes_less_than_the_slack_of_a_window_breaks_no_promise() -> None:
    figures = premium_of("fifo", TraceJob("a", 0, 60_000, 1, tier="premium"), costs=Costs())
    assert figures["fraction"] < 0.95
    assert figures["attained"] == 1.0


def test_a_promise_is_of_any_window_and_not_of_a_whole_life() -> None:
    jobs = TraceJob("first", 0, HOUR_MS // 2, 1), TraceJob("a", 0, 20 * HOUR_MS, 1, tier="premium")
    figures = premium_of("fifo", *jobs)
    assert figures["fraction"] > 0.95
    assert figures["attained"] == 0.0


@pytest.mark.parametrize(
    ("policy", "attained"),
    [("singularity", 0.5), ("singularity:premium=10", 1.0), ("singularity:premium=10,window=10m", 1.0), ("fifo", 0.5)],
)
def test_promises_are_those_of_the_policy_and_its_window(policy: str, attained: float) -> None:
    jobs = [TraceJob(name, 0, HOUR_MS * 2, 1, tier="premium") for name in ("a", "b")]
    figures = premium_of(policy, *jobs)
    assert figures["promised"] == (0.1 if "premium=10" in policy else 0.95)
    assert figures["attained"] == attained


def test_jobs_of_a_tier_that_promises_more_than_there_is_do_not_stop_one_another() -> None:
    jobs = [TraceJob(name, 0, HOUR_MS * 2, 8, tier="premium") for name in ("a", "b")]
    result = run_one(Setup(flat(1, 8), Trace("both", tuple(jobs)), "singularity"), "singularity")
    assert result.summary["preemptions"] == 0
    assert result.summary["tiers"]["premium"]["needed_gpus"] == 16
    assert result.summary["tiers"]["premium"]["attained"] == 0.5


def test_jobs_of_a_tier_that_can_have_all_it_promises_take_turns_for_it() -> None:
    jobs = [TraceJob(name, 0, HOUR_MS * 4, 1, tier="standard") for name in "abcd"]
    setup = Setup(flat(1, 3), Trace("four", tuple(jobs)), "singularity", costs=NO_COSTS)
    result = run_one(setup, "singularity")
    assert result.summary["preemptions"] > 0
    assert result.summary["tiers"]["standard"]["needed_gpus"] == 3


@pytest.mark.parametrize("costs", [NO_COSTS, Costs()])
def test_who_takes_turns_for_its_promise_has_it_in_spite_of_what_a_turn_costs(costs: Costs) -> None:
    jobs = [TraceJob(name, 0, 10 * HOUR_MS, 4, tier="standard", checkpoint_cost_ms=1000) for name in "ab"]
    policy = "singularity:standard=40,splice=1"
    result = run_one(Setup(flat(1, 4), Trace("two", tuple(jobs)), policy, costs=costs), policy)
    assert result.summary["preemptions"] > 0
    assert result.summary["tiers"]["standard"]["attained"] == 1.0


def test_where_promises_are_more_than_there_is_those_of_the_lower_tier_are_broken() -> None:
    tiers = ("basic", "basic", "standard", "premium", "premium")
    jobs = [TraceJob(f"j{i}", 600_000 * i, 10 * HOUR_MS, 4, tier=tier) for i, tier in enumerate(tiers)]
    result = run_one(Setup(flat(2, 4), Trace("five", tuple(jobs)), "singularity"), "singularity")
    figures = result.summary["tiers"]
    assert figures["standard"]["needed_gpus"] == 11
    assert (figures["premium"]["attained"], figures["standard"]["attained"]) == (1.0, 0.0)


@pytest.mark.parametrize("tier", ["premium", "standard", "basic"])
@pytest.mark.parametrize("gpus", [3, 6, 10])
def test_a_job_that_fills_no_whole_number_of_nodes_starts_at_any_tier(tier: str, gpus: int) -> None:
    jobs = (TraceJob("a", 0, HOUR_MS, gpus, tier=tier),)
    result = run_one(Setup(flat(3, 4), Trace("one", jobs), "singularity", costs=NO_COSTS), "singularity")
    assert result.summary["jobs"]["completed"] == 1
    assert result.jobs[0].end_s == HOUR_MS / 1000


def test_a_label_that_names_no_tier_is_refused_by_the_policy_that_goes_by_it_only() -> None:
    wrong = a_job("a", labels=(("tier", "premum"),))
    with pytest.raises(ValueError, match=r"label tier is 'premum'.* premium, standard, basic"):
        plan(flat(1, 1), [wrong], "singularity")
    for policy in ("fifo", "singularity:tiers=false"):
        state, _ = plan(flat(1, 1), [wrong], policy)
        assert state.record("a").has_devices


def test_a_journal_that_holds_such_a_job_from_before_is_read_as_ever() -> None:
    world = World(flat(1, 1), "singularity")
    world.submit(a_job("a", labels=(("tier", "premum"),)))
    assert replay(world.journal).record("a").has_devices
