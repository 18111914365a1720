"""Spot nodes with a deadline, and whether to own or to rent."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from phalanx.faults.money.own_or_rent import HOURS_PER_MONTH, Offer, PriceError
from phalanx.faults.spot.policies import POLICIES, cheapest, on_demand_only, spot_only, uniform
from phalanx.faults.spot.run import run
from phalanx.faults.spot.task import Task, best_interval_h
from phalanx.faults.spot.zone import STEP_H, SpotError, Zone, drawn, read_trace

TASK = Task(work_h=10, deadline_h=20, changeover_h=0.1, save_h=0.1, interval_h=1.0)


def zone(*hours: tuple[bool, float], spot_usd_h: float = 1.0) -> Zone:
    """A zone in which spot nodes are there or gone for so many hours in turn."""
    return Zone("a", spot_usd_h, 3.0, tuple(there for there, lasts in hours for _ in range(round(lasts / STEP_H))))


ALWAYS, NEVER = zone((True, 300)), zone((False, 300))


def test_on_demand_costs_its_price_for_the_work_and_the_start() -> None:
    outcome = run(TASK, on_demand_only, [ALWAYS])
    assert outcome.finish_h == pytest.approx(10.1)
    assert outcome.usd == pytest.approx(30.3)


def test_spot_nodes_that_stay_cost_theirs_and_the_saves() -> None:
    outcome = run(TASK, spot_only, [ALWAYS])
    assert outcome.finish_h == pytest.approx(11.1, abs=0.01)
    assert outcome.usd == pytest.approx(11.1, abs=0.01)
    assert outcome.lost_h == 0


def test_a_reclaim_loses_what_came_after_the_last_save_unless_the_notice_is_long_enough() -> None:
    broken = zone((True, 3.0), (False, 1.0), (True, 100))
    short = run(TASK, spot_only, [broken])
    # 2.9 h of working and saving are 2.64 h of work, of which 2 are saved.
    assert short.lost_h == pytest.approx(2.9 / 1.1 - 2, abs=0.01)
    assert run(replace(TASK, notice_h=0.2), spot_only, [broken]).lost_h == 0


def test_a_reclaim_in_the_middle_of_a_save_keeps_the_one_before() -> None:
    # The first save is under way from 1.1 h to 1.2 h after the start.
    caught = run(replace(TASK, changeover_h=0.1), spot_only, [zone((True, 1.1), (False, 1.0), (True, 100))])
    assert caught.lost_h == pytest.approx(1.0 / 1.1, abs=0.01)


def test_without_spot_nodes_uniform_progress_is_in_time_by_going_on_demand() -> None:
    outcome = run(TASK, uniform, [NEVER])
    assert outcome.met(TASK)
    assert outcome.spot_h == 0
    assert not run(TASK, spot_only, [NEVER]).met(TASK)


def test_uniform_progress_costs_less_than_on_demand_and_waits_no_longer_than_it_may() -> None:
    mixed = Zone("a", 1.0, 3.0, drawn(3, 40, 2.0, 2.0))
    assert run(TASK, uniform, [mixed]).usd < run(TASK, on_demand_only, [mixed]).usd


@pytest.mark.parametrize("policy", [uniform, cheapest])
def test_no_deadline_is_missed_in_a_thousand_random_cases(policy: object) -> None:
    chance = Random(7)
    for case in range(1000):
        work_h, changeover_h = chance.uniform(1, 40), chance.uniform(0.01, 0.5)
        task = Task(
            work_h,
            work_h + changeover_h + (chance.expovariate(0.1) if case % 10 else 0.0),
            changeover_h,
            chance.uniform(0.005, 0.3),
            2 / 60,
            chance.uniform(0.2, 5),
        )
        there = drawn(case, task.deadline_h, chance.uniform(0.2, 10), chance.uniform(0.2, 10))
        name = "uniform" if policy is uniform else "cheapest"
        outcome = run(task, POLICIES[name], [Zone("a", 1.0, 3.0, there)])
        assert outcome.met(task), (case, task, outcome)


def test_of_several_zones_the_cheapest_that_has_nodes_is_taken() -> None:
    dear, cheap = Zone("dear", 2.0, 3.0, ALWAYS.there), zone((False, 2.0), (True, 300))
    assert run(TASK, spot_only, [dear, cheap]).usd == pytest.approx(2 * run(TASK, spot_only, [ALWAYS]).usd, abs=0.1)
    assert run(TASK, spot_only, [replace(dear, spot_usd_h=0.5), cheap]).usd < 6


def test_the_rate_of_reclaims_of_a_trace_and_its_interval() -> None:
    trace = Zone("a", 1.0, 3.0, drawn(1, 20_000, 4.0, 2.0))
    assert trace.reclaims_per_h == pytest.approx(1 / 4, rel=0.1)
    # √(2·0.02·4) = 0.4 h, to first order.
    assert best_interval_h(0.02, 0.25, 10.0) == pytest.approx(0.4, rel=0.05)
    assert best_interval_h(0.02, 0.0, 10.0) == 10.0


@pytest.mark.parametrize(
    ("broken", "told"),
    [
        ({"deadline_h": 9.0}, "cannot be met"),
        ({"work_h": -1.0}, "work_h is -1"),
        ({"interval_h": 0.0}, "above 0"),
        ({"save_h": float("nan")}, "save_h is nan"),
    ],
)
def test_a_task_that_there_cannot_be_is_refused(broken: dict[str, float], told: str) -> None:
    with pytest.raises(SpotError, match=told):
        replace(TASK, **broken)


def test_negative_prices_and_broken_traces_are_refused() -> None:
    with pytest.raises(SpotError, match="spot_usd_h is -1"):
        Zone("a", -1, 3, ())
    with pytest.raises(SpotError, match="line 2 is 'x'"):
        read_trace("1\nx\n", "trace")
    with pytest.raises(SpotError, match="is empty"):
        read_trace("", "trace")
    with pytest.raises(SpotError, match="no zones"):
        run(TASK, uniform, [])


OFFER = Offer(1000, 0.8, 2.5, 30_000, power_kw=1.3, pue=1.3, usd_kwh=0.1, staff_usd_year=1e6, upkeep_share_year=0.05)


def test_owning_pays_from_the_month_in_which_both_have_cost_the_same() -> None:
    months = OFFER.break_even_months
    assert months is not None
    own, rent = OFFER.after(months)
    assert own == pytest.approx(rent)
    assert OFFER.after(months - 1)[0] > OFFER.after(months - 1)[1]
    # 1.69 kW · 0.1 USD · 730.5 h · 1000 GPUs, and a twelfth of a million and of 5 % of 30 million.
    assert OFFER.owning_month == pytest.approx(1.69 * 0.1 * HOURS_PER_MONTH * 1000 + 2.5e6 / 12)


def test_gpus_that_are_hardly_used_are_never_worth_their_price() -> None:
    assert replace(OFFER, utilisation=0.05).break_even_months is None
    assert OFFER.break_even_utilisation(36) == pytest.approx(OFFER.after(36)[0] / (1000 * 2.5 * HOURS_PER_MONTH * 36))


@pytest.mark.parametrize(
    "broken", [{"utilisation": 1.2}, {"rent_usd_gpu_h": -1.0}, {"gpus": 0}, {"usd_kwh": float("nan")}]
)
def test_prices_that_there_cannot_be_are_refused(broken: dict[str, float]) -> None:
    with pytest.raises(PriceError):
        replace(OFFER, **broken)
