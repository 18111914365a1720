"""Tiers, the replay of Llama 3's failures, and whole designs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from phalanx.faults.reliability.course import Course
from phalanx.faults.reliability.design import DesignError, Wish, design
from phalanx.faults.reliability.ettr import exact_split
from phalanx.faults.reliability.network import reroute
from phalanx.faults.reliability.replay import SECONDS, replay_llama
from phalanx.faults.reliability.strategies import Times, strategies
from phalanx.faults.reliability.tiers import Tier, Way, by_chance, replayed, tiered_split, with_intervals
from phalanx.faults.taxonomy.cause import Recovery
from phalanx.faults.taxonomy.choose import profile_of
from phalanx.faults.taxonomy.fleet import Fleet

WISH = Wish(Fleet(10_000), 0.95, profile_of("course-10k"), 405e9, 2.5)


def test_one_tier_is_the_exact_closed_form() -> None:
    course = Course(0.5, 600, 10, 30, 60, 200, 100)
    tiers = (Tier("storage", 10, 100, interval_s=600),)
    split = tiered_split(tiers, (Way("any", 0.5, 0, 30, 60, 200),))
    assert split.parts == pytest.approx(exact_split(course).parts, rel=1e-9)


@pytest.mark.parametrize("scale", [0.2, 1, 3])
@pytest.mark.parametrize("number", range(4))
def test_the_closed_form_of_tiers_is_within_two_percent_of_chance(scale: float, number: int) -> None:
    rates = {each: rate * scale for each, rate in zip(Recovery, (0.05, 0.1, 0.25, 0.05), strict=True)}
    strategy = strategies(rates, Times(), 0.01, 0.9)[number]
    until_s = 8_000 * 3600 / sum(rates.values())
    booked = replayed(strategy.tiers, by_chance(strategy.ways, until_s, 3), until_s)
    assert booked.whole_s == pytest.approx(until_s, rel=1e-9)
    closed = tiered_split(strategy.tiers, strategy.ways)
    assert booked.work / until_s == pytest.approx(closed.work, rel=0.02)


def test_a_tier_is_saved_by_the_rate_of_the_failures_that_need_it() -> None:
    ways = (Way("process", 0.4, 0, 0, 0, 0), Way("node", 0.1, 1, 0, 0, 0))
    memory, storage = with_intervals((Tier("memory", 1, 1), Tier("storage", 20, 1)), ways)
    # √(2·1·9000) and √(2·20·36000), to first order.
    assert memory.interval_s == pytest.approx(134.2, rel=0.02)
    assert storage.interval_s == pytest.approx(1200, rel=0.02)


def test_a_tier_that_is_needed_less_often_than_a_deeper_one_is_saved_along_with_it() -> None:
    ways = (Way("process", 0.001, 0, 0, 0, 0), Way("node", 0.5, 1, 0, 0, 0))
    memory, storage = with_intervals((Tier("memory", 1, 1), Tier("storage", 1, 1)), ways)
    assert memory.interval_s == storage.interval_s
    assert memory.save_s == 0


def test_llama_3_under_four_strategies() -> None:
    found = {each.strategy.name: each for each in replay_llama(seeds=5)}
    assert [*found] == ["restart", "tiers", "spares", "templates"]
    ratios = [each.replayed for each in found.values()]
    assert ratios == sorted(ratios), "each keeps more than the one before"
    assert found["restart"].replayed == pytest.approx(0.875, abs=0.005)
    # The paper tells of more than 90 % of effective training time.
    assert found["tiers"].replayed > 0.9
    for each in found.values():
        assert each.replayed == pytest.approx(each.closed, rel=0.01)
        assert each.booked.whole_s == pytest.approx(SECONDS, rel=1e-9)
        assert each.booked.failures <= 419


def test_a_design_takes_the_simplest_strategy_that_reaches_its_target() -> None:
    assert design(WISH).chosen.strategy.name == "tiers"
    assert design(replace(WISH, target=0.9)).chosen.strategy.name == "restart"
    assert design(replace(WISH, target=0.98)).chosen.strategy.name in ("spares", "templates")


def test_detection_as_slow_as_the_design_allows_just_reaches_the_target() -> None:
    found = design(WISH)
    assert found.detect_most_s is not None
    times = replace(WISH.times, detect_s=found.detect_most_s)
    again = design(replace(WISH, times=times))
    reached = next(each for each in again.options if each.strategy.name == found.chosen.strategy.name)
    assert reached.ettr == pytest.approx(WISH.target, abs=1e-3)


def test_a_target_beyond_reach_names_the_best_and_what_bounds_it() -> None:
    found = design(replace(WISH, fleet=Fleet(100_000), target=0.999))
    assert not found.reached
    assert found.chosen.ettr == max(each.ettr for each in found.options)
    assert "of the time" in found.bound
    assert found.detect_most_s is None


def test_what_each_strategy_loses_and_keeps_is_all_of_its_time() -> None:
    for option in design(WISH).options:
        assert option.ettr + sum(option.lost.values()) == pytest.approx(1, abs=1e-9)


@pytest.mark.parametrize("target", [0, 1, 1.2, -1, float("nan")])
def test_a_target_is_between_0_and_1(target: float) -> None:
    with pytest.raises(DesignError, match="above 0 and below 1"):
        replace(WISH, target=target)


def test_a_price_below_zero_is_refused() -> None:
    with pytest.raises(DesignError, match="-1 USD"):
        replace(WISH, usd_gpu_h=-1)


def test_a_lost_uplink_of_eight_slows_what_is_not_hidden_by_a_seventh() -> None:
    found = reroute(per_hour=0.01, repair_hours=100, uplinks=8, exposed=0.7, reroute_s=36, restart_s=360)
    # One link is down on average: half of the time there is one, and 0.7·(8/7 − 1) = 0.1 is lost then.
    assert found.bandwidth_left == pytest.approx(7 / 8)
    assert found.slowdown == pytest.approx(0.05)
    assert found.stall_share == pytest.approx(1e-4)
    assert found.saved_share == pytest.approx(9e-4)
