"""Sharing a device: what asks mean, what fits beside what, what must go, and how fast jobs run that share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from phalanx.cluster import device
from phalanx.cluster.device import DeviceLoad, Mode, Obstacle, Portion
from phalanx.cluster.mig import Instance
from phalanx.placement.sharing import Interference, slowdown, speed, wanted
from phalanx.workload.share import ShareAsk, fraction_ask, mig_ask, mps_ask, turn_ask

MEMORY_MB = 80_000


def h100() -> DeviceLoad:
    return DeviceLoad("H100", MEMORY_MB)


def want(ask: ShareAsk | None, revocable: bool = False) -> Portion:
    portion = wanted(ask, "H100", MEMORY_MB, revocable)
    assert portion is not None
    return portion


def give(load: DeviceLoad, holder: str, ask: ShareAsk | None, revocable: bool = False) -> Portion:
    portion = device.fit(load, want(ask, revocable))
    assert portion is not None
    device.add(load, holder, portion)
    assert device.violations(load) == ()
    return portion


class TestAsks:
    @pytest.mark.parametrize(
        ("make", "key"),
        [
            (lambda: fraction_ask(0), "share.fraction"),
            (lambda: fraction_ask(1001), "share.fraction"),
            (lambda: fraction_ask(500, 0), "share.memory"),
            (lambda: mps_ask(0), "share.mps"),
            (lambda: mps_ask(101), "share.mps"),
            (lambda: mps_ask(30, -1), "share.memory"),
            (lambda: turn_ask(1), "share.turns"),
            (lambda: turn_ask(65), "share.turns"),
            (lambda: mig_ask("half"), "share.mig"),
            (lambda: mig_ask("1g.10gb+gfx"), "share.mig"),
            (lambda: mig_ask("MIG 1g.10gb"), "share.mig"),
        ],
    )
    def test_a_bad_ask_is_refused_by_the_name_of_its_key(self, make: Callable[[], ShareAsk], key: str) -> None:
        with pytest.raises(ValueError, match=key):
            make()

    def test_no_ask_is_the_whole_device(self) -> None:
        assert want(None) == Portion(Mode.WHOLE, 1000, MEMORY_MB)

    def test_a_fraction_takes_as_much_of_the_memory_rounded_down(self) -> None:
        assert wanted(fraction_ask(333), None, 1000) == Portion(Mode.FRACTION, 333, 333)
        assert wanted(fraction_ask(333), None, 999) == Portion(Mode.FRACTION, 333, 332)

    def test_memory_that_is_asked_for_is_taken_instead(self) -> None:
        assert want(mps_ask(30, 5_000)) == Portion(Mode.MPS, 300, 5_000)

    def test_more_memory_than_the_device_has_can_never_be_given(self) -> None:
        assert wanted(fraction_ask(100, MEMORY_MB + 1), "H100", MEMORY_MB) is None

    def test_a_mig_instance_takes_its_multiprocessors_and_slices(self) -> None:
        assert want(mig_ask("3g.40gb")) == Portion(Mode.MIG, 454, MEMORY_MB // 2, mig_profile="3g.40gb")

    def test_a_profile_the_model_does_not_have_can_never_be_given(self) -> None:
        assert wanted(mig_ask("1g.10gb"), "H200", 141_000) is None
        assert wanted(mig_ask("1g.10gb"), None, MEMORY_MB) is None

    def test_each_turn_keeps_its_part_of_the_memory(self) -> None:
        assert want(turn_ask(3)) == Portion(Mode.TURNS, 333, MEMORY_MB // 3, turns=3)


class TestModes:
    @pytest.mark.parametrize("first", [None, fraction_ask(100), mps_ask(10), mig_ask("1g.10gb"), turn_ask(4)])
    @pytest.mark.parametrize("second", [None, fraction_ask(100), mps_ask(10), mig_ask("1g.10gb"), turn_ask(4)])
    def test_only_portions_of_one_mode_share_a_device(self, first: ShareAsk | None, second: ShareAsk | None) -> None:
        load = h100()
        mode = give(load, "a", first).mode
        alike = want(second).mode is mode and mode is not Mode.WHOLE
        assert device.obstacle(load, want(second)) is (None if alike else Obstacle.MODE)

    def test_an_empty_device_takes_any_mode_again(self) -> None:
        load = h100()
        give(load, "a", mps_ask(50))
        device.remove(load, "a")
        assert load.mode is None
        give(load, "b", turn_ask(2))

    def test_a_whole_device_has_one_holder_even_where_its_memory_is_not_known(self) -> None:
        load = DeviceLoad(None, 0)
        device.add(load, "a", device.whole(0))
        assert device.obstacle(load, device.whole(0, revocable=True)) is Obstacle.MODE

    def test_mps_takes_no_more_clients_than_its_server(self) -> None:
        load = h100()
        for i in range(device.MPS_CLIENTS_MAX):
            give(load, f"a{i}", mps_ask(1))
        assert device.obstacle(load, want(mps_ask(1))) is Obstacle.SLOT


class TestGuarantees:
    def test_guaranteed_compute_never_exceeds_the_device(self) -> None:
        load = h100()
        give(load, "a", fraction_ask(600, 1))
        assert device.obstacle(load, want(fraction_ask(401, 1))) is Obstacle.COMPUTE
        give(load, "b", fraction_ask(400, 1))
        assert load.free_permille == 0

    def test_revocable_compute_may_exceed_it(self) -> None:
        load = h100()
        give(load, "a", fraction_ask(1000, 1))
        give(load, "b", fraction_ask(900, 1), revocable=True)
        give(load, "c", fraction_ask(900, 1), revocable=True)
        assert load.free_permille == 0

    def test_revocable_compute_does_not_stand_in_the_way_of_a_guarantee(self) -> None:
        load = h100()
        give(load, "a", fraction_ask(900, 1), revocable=True)
        give(load, "b", fraction_ask(1000, 1))

    def test_memory_is_never_given_twice_revocable_or_not(self) -> None:
        load = h100()
        give(load, "a", fraction_ask(100, 60_000), revocable=True)
        assert device.obstacle(load, want(fraction_ask(100, 20_001))) is Obstacle.MEMORY
        assert device.obstacle(load, want(fraction_ask(100, 20_001), revocable=True)) is Obstacle.MEMORY

    def test_a_holder_holds_one_portion(self) -> None:
        load = h100()
        portion = give(load, "a", fraction_ask(100))
        with pytest.raises(ValueError, match="a already holds"):
            device.add(load, "a", portion)

    def test_a_portion_that_does_not_fit_is_refused_and_changes_nothing(self) -> None:
        load = h100()
        give(load, "a", fraction_ask(600))
        before = replace(load, holders=dict(load.holders))
        with pytest.raises(ValueError, match=r"portion for b does not fit \(memory\)"):
            device.add(load, "b", want(fraction_ask(600)))
        assert load == before

    @pytest.mark.parametrize("ask", [mig_ask("1g.10gb"), turn_ask(2)])
    def test_a_portion_without_its_place_is_refused(self, ask: ShareAsk) -> None:
        with pytest.raises(ValueError, match=r"pass what fit\(\) returned"):
            device.add(h100(), "a", want(ask))

    def test_removing_who_holds_nothing_is_refused(self) -> None:
        with pytest.raises(ValueError, match="b holds nothing"):
            device.remove(h100(), "b")

    @pytest.mark.parametrize(
        "broken",
        [
            {"compute_permille": 0},
            {"compute_permille": 1001},
            {"memory_mb": -1},
            {"mig_profile": "1g.10gb"},
            {"turns": 2},
            {"mode": Mode.MIG},
            {"mode": Mode.TURNS},
        ],
    )
    def test_a_portion_that_makes_no_sense_is_refused(self, broken: dict[str, Any]) -> None:
        with pytest.raises(ValueError, match="portion: "):
            replace(Portion(Mode.FRACTION, 500, 100), **broken)

    def test_a_broken_rule_is_named(self) -> None:
        load = h100()
        give(load, "a", fraction_ask(600))
        load.holders["b"] = want(fraction_ask(600))
        load.holders["c"] = want(None)
        assert device.violations(load) == (
            "guaranteed compute is 2200 of 1000 ‰",
            "resident memory is 176000 of 80000 MB",
            "holders differ in mode",
            "the kept sums differ from the holders",
        )


class TestTurns:
    def test_turns_are_given_lowest_first_and_no_more_than_asked(self) -> None:
        load = h100()
        assert [give(load, name, turn_ask(3)).turn for name in "abc"] == [0, 1, 2]
        assert device.obstacle(load, want(turn_ask(3))) is Obstacle.SLOT
        device.remove(load, "b")
        assert give(load, "d", turn_ask(3)).turn == 1

    def test_jobs_that_ask_for_other_turns_do_not_join(self) -> None:
        load = h100()
        give(load, "a", turn_ask(3))
        assert device.obstacle(load, want(turn_ask(2))) is Obstacle.SLOT

    def test_a_turn_that_is_named_is_given_or_refused(self) -> None:
        load = h100()
        last = want(turn_ask(2)).at_turn(1)
        assert device.fit(load, last) == last
        device.add(load, "a", last)
        assert device.fit(load, last) is None
        assert device.fit(load, want(turn_ask(2)).at_turn(2)) is None


class TestMig:
    def test_instances_are_put_where_they_leave_the_most_room(self) -> None:
        load = h100()
        assert give(load, "a", mig_ask("1g.10gb")).mig_offset == 6
        assert give(load, "b", mig_ask("2g.20gb")).mig_offset == 4
        assert give(load, "c", mig_ask("4g.40gb")).mig_offset == 0
        assert device.obstacle(load, want(mig_ask("1g.10gb"))) is Obstacle.SLOT

    def test_one_holder_has_the_media_engines(self) -> None:
        load = h100()
        give(load, "a", mig_ask("1g.10gb+me"))
        assert device.obstacle(load, want(mig_ask("1g.10gb+me"))) is Obstacle.SLOT
        give(load, "b", mig_ask("1g.10gb"))

    def test_a_device_without_mig_takes_no_instance(self) -> None:
        load = DeviceLoad(None, MEMORY_MB)
        assert device.obstacle(load, want(mig_ask("1g.10gb"))) is Obstacle.UNSUPPORTED

    def test_an_offset_that_is_named_is_given_or_refused(self) -> None:
        load = h100()
        first = want(mig_ask("3g.40gb")).at_offset(0)
        device.add(load, "a", first)
        assert device.fit(load, first) is None
        assert device.fit(load, want(mig_ask("1g.10gb")).at_offset(7)) is None

    def test_an_idle_instance_of_the_profile_is_used_before_a_new_one(self) -> None:
        load = h100()
        device.set_layout(load, (Instance(1, "1g.10gb"),))
        assert give(load, "a", mig_ask("1g.10gb")).mig_offset == 1
        assert not device.repartition(load).needed

    def test_a_new_instance_goes_beside_idle_ones_where_it_can(self) -> None:
        load = h100()
        idle = Instance(4, "3g.40gb")
        device.set_layout(load, (idle,))
        assert give(load, "a", mig_ask("2g.20gb")).mig_offset == 0
        assert device.layout_wanted(load) == (Instance(0, "2g.20gb"), idle)
        change = device.repartition(load)
        assert (change.destroy, change.create) == ((), (Instance(0, "2g.20gb"),))

    def test_idle_instances_make_way_where_they_must_and_held_ones_never(self) -> None:
        load = h100()
        device.set_layout(load, (Instance(0, "3g.40gb"), Instance(4, "3g.40gb")))
        device.add(load, "a", want(mig_ask("3g.40gb")).at_offset(4))
        assert give(load, "b", mig_ask("4g.40gb")).mig_offset == 0
        change = device.repartition(load)
        assert (change.destroy, change.create) == ((Instance(0, "3g.40gb"),), (Instance(0, "4g.40gb"),))

    def test_the_mode_is_switched_for_the_first_instance_and_back_for_other_shares(self) -> None:
        load = h100()
        give(load, "a", mig_ask("1g.10gb"))
        assert device.repartition(load).switch_mode
        device.set_layout(load, device.layout_wanted(load))
        assert not device.repartition(load).needed
        device.remove(load, "a")
        assert not device.repartition(load).needed
        give(load, "b", None)
        change = device.repartition(load)
        assert change.switch_mode
        assert change.destroy == (Instance(6, "1g.10gb"),)

    def test_an_impossible_layout_is_refused(self) -> None:
        with pytest.raises(ValueError, match="no legal MIG layout"):
            device.set_layout(h100(), (Instance(3, "2g.20gb"),))


class TestMakingRoom:
    def test_nobody_goes_where_there_is_room(self) -> None:
        load = h100()
        give(load, "a", fraction_ask(900, 1), revocable=True)
        assert device.make_room(load, want(fraction_ask(1000, 1)), device.revocable_holders(load)) == ()

    def test_the_first_that_suffice_go(self) -> None:
        load = h100()
        for name in "abc":
            give(load, name, fraction_ask(100, 25_000), revocable=True)
        asked = want(fraction_ask(500, 40_000))
        assert device.make_room(load, asked, ("c", "b", "a")) == ("c", "b")

    def test_nobody_goes_who_need_not(self) -> None:
        load = h100()
        give(load, "small", fraction_ask(100, 10_000), revocable=True)
        give(load, "large", fraction_ask(100, 60_000), revocable=True)
        assert device.make_room(load, want(fraction_ask(500, 50_000)), ("small", "large")) == ("large",)

    def test_a_slice_is_cleared_by_who_holds_that_slice(self) -> None:
        load = h100()
        device.add(load, "right", want(mig_ask("3g.40gb"), revocable=True).at_offset(4))
        device.add(load, "left", want(mig_ask("3g.40gb"), revocable=True).at_offset(0))
        assert device.make_room(load, want(mig_ask("4g.40gb")), ("right", "left")) == ("left",)

    def test_another_mode_needs_all_of_them_gone(self) -> None:
        load = h100()
        give(load, "a", mps_ask(10), revocable=True)
        give(load, "b", mps_ask(10), revocable=True)
        assert device.make_room(load, want(None), device.revocable_holders(load)) == ("a", "b")

    def test_guaranteed_holders_are_no_victims_of_a_guarantee(self) -> None:
        load = h100()
        give(load, "a", fraction_ask(600))
        give(load, "b", fraction_ask(400), revocable=True)
        assert device.revocable_holders(load) == ("b",)
        assert device.make_room(load, want(fraction_ask(600)), device.revocable_holders(load)) is None


class TestSpeed:
    def test_a_whole_device_runs_at_full_speed(self) -> None:
        load = h100()
        give(load, "a", None)
        assert speed(load, "a") == slowdown(load, "a") == 1.0

    def test_jobs_that_take_turns_divide_the_time_less_the_switching(self) -> None:
        load = h100()
        give(load, "a", turn_ask(4))
        assert (speed(load, "a"), slowdown(load, "a")) == (1.0, 1.0)
        give(load, "b", turn_ask(4))
        assert speed(load, "a", Interference(switch_overhead=0.1)) == pytest.approx(0.45)
        assert slowdown(load, "a", Interference(switch_overhead=0.1)) == pytest.approx(2 / 0.9)

    def test_a_fraction_runs_at_its_share_less_the_switching_once_it_has_a_neighbour(self) -> None:
        load = h100()
        give(load, "a", fraction_ask(250))
        assert (speed(load, "a"), slowdown(load, "a")) == (0.25, 1.0)
        give(load, "b", fraction_ask(250))
        two = speed(load, "a", Interference(switch_overhead=0.2))
        give(load, "c", fraction_ask(250))
        assert two == speed(load, "a", Interference(switch_overhead=0.2)) == pytest.approx(0.2)

    def test_every_mps_neighbour_costs_a_little(self) -> None:
        load = h100()
        for name in "abc":
            give(load, name, mps_ask(30))
        assert speed(load, "a", Interference(mps_per_neighbour=0.1)) == pytest.approx(0.3 * 0.81)
        assert slowdown(load, "a", Interference(mps_per_neighbour=0.1)) == pytest.approx(1 / 0.81)

    def test_mig_instances_do_not_disturb_each_other_unless_told(self) -> None:
        load = h100()
        give(load, "a", mig_ask("3g.40gb"))
        give(load, "b", mig_ask("3g.40gb"))
        assert (speed(load, "a"), slowdown(load, "a")) == (0.454, 1.0)
        assert slowdown(load, "a", Interference(mig_per_neighbour=0.5)) == 2.0

    def test_revocable_jobs_divide_what_the_guaranteed_leave(self) -> None:
        load = h100()
        none = Interference(mps_per_neighbour=0.0)
        give(load, "a", mps_ask(60, 1))
        give(load, "b", mps_ask(30, 1), revocable=True)
        assert speed(load, "b", none) == pytest.approx(0.3)
        give(load, "c", mps_ask(90, 1), revocable=True)
        assert speed(load, "a", none) == pytest.approx(0.6)
        assert speed(load, "b", none) == pytest.approx(0.1)
        assert speed(load, "c", none) == pytest.approx(0.3)

    def test_on_a_device_that_is_all_guaranteed_they_live_on_its_idle_moments(self) -> None:
        load = h100()
        give(load, "a", mps_ask(100, 1))
        give(load, "b", mps_ask(50, 1), revocable=True)
        assert speed(load, "b", Interference(mps_per_neighbour=0.0, scavenged_permille=20)) == pytest.approx(0.02)

    @pytest.mark.parametrize(
        ("broken", "key"),
        [
            ({"switch_overhead": 1.0}, "switch_overhead"),
            ({"mps_per_neighbour": -0.1}, "mps_per_neighbour"),
            ({"mig_per_neighbour": 2.0}, "mig_per_neighbour"),
            ({"scavenged_permille": 0}, "scavenged_permille"),
        ],
    )
    def test_an_interference_out_of_range_is_refused_by_name(self, broken: dict[str, Any], key: str) -> None:
        with pytest.raises(ValueError, match=f"interference.{key}"):
            Interference(**broken)
