"""Whose turn it is on devices that are taken in turns."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from phalanx.backends.local.attempt_files import Turn
from phalanx.backends.local.turn_order import Key, TurnOrder


def a_turn(*places: tuple[str, int], beside: str = "") -> Turn:
    return Turn(places=[list(place) for place in places], beside=beside)


G0, G1, G2 = ("n0", 0), ("n0", 1), ("n1", 0)
A, B, C, D = ("a", 1), ("b", 1), ("c", 1), ("d", 1)


def turns(turn_order: TurnOrder, count: int) -> list[set[Key]]:
    """Who runs now, and in the turns after."""
    seen = []
    for _ in range(count):
        seen.append(set(turn_order.running))
        turn_order.turn()
    return seen


def test_who_is_alone_on_its_devices_never_rests() -> None:
    turn_order = TurnOrder()
    turn_order.join(A, a_turn(G0))
    turn_order.join(B, a_turn(G1))
    assert turns(turn_order, 3) == [{A, B}] * 3
    assert turn_order.resting == ()


def test_two_on_one_device_run_in_turn() -> None:
    turn_order = TurnOrder()
    turn_order.join(A, a_turn(G0))
    turn_order.join(B, a_turn(G0))
    assert turns(turn_order, 4) == [{A}, {B}, {A}, {B}]


def test_a_newcomer_interrupts_nobody_and_is_next() -> None:
    turn_order = TurnOrder()
    turn_order.join(A, a_turn(G0))
    turn_order.turn()
    turn_order.join(B, a_turn(G0))
    assert turns(turn_order, 3) == [{A}, {B}, {A}]


def test_a_gang_rests_and_runs_as_a_whole() -> None:
    turn_order = TurnOrder()
    turn_order.join(A, a_turn(G0, G2))
    turn_order.join(B, a_turn(G0))
    turn_order.join(C, a_turn(G2))
    assert turns(turn_order, 4) == [{A}, {B, C}, {A}, {B, C}]


def test_whoever_finds_its_devices_free_runs_beside() -> None:
    turn_order = TurnOrder()
    turn_order.join(A, a_turn(G0))
    turn_order.join(B, a_turn(G0, G1))
    turn_order.join(C, a_turn(G1))
    assert turns(turn_order, 3) == [{A, C}, {B}, {A, C}]


def test_who_leaves_gives_its_turn_to_the_next_at_once() -> None:
    turn_order = TurnOrder()
    for key in (A, B, C):
        turn_order.join(key, a_turn(G0))
    turn_order.leave(A)
    assert turns(turn_order, 3) == [{B}, {C}, {B}]


def test_two_who_are_packed_run_in_each_others_turns() -> None:
    turn_order = TurnOrder()
    turn_order.join(A, a_turn(G0, beside="b"))
    turn_order.join(B, a_turn(G0, beside="a"))
    turn_order.join(C, a_turn(G0))
    turn_order.join(D, a_turn(G0))
    assert turns(turn_order, 4) == [{A, B}, {A, B}, {C}, {D}]


def test_packed_by_one_of_them_only_is_not_packed() -> None:
    turn_order = TurnOrder()
    turn_order.join(A, a_turn(G0, beside="b"))
    turn_order.join(B, a_turn(G0))
    assert turns(turn_order, 2) == [{A}, {B}]


def test_two_are_packed_and_unpacked_while_they_run() -> None:
    turn_order = TurnOrder()
    turn_order.join(A, a_turn(G0))
    turn_order.join(B, a_turn(G0))
    turn_order.join(A, a_turn(G0, beside="b"))
    assert set(turn_order.running) == {A}
    turn_order.join(B, a_turn(G0, beside="a"))
    assert set(turn_order.running) == {A, B}
    turn_order.join(A, a_turn(G0))
    assert len(turn_order.running) == 1


PLACES = st.tuples(st.sampled_from(["n0", "n1"]), st.integers(0, 2))
GANGS = st.lists(st.lists(PLACES, min_size=1, max_size=4, unique=True), min_size=1, max_size=6)


@given(GANGS)
def test_no_device_has_two_at_once_and_nobody_waits_for_more_than_a_round(gangs: list[list[tuple[str, int]]]) -> None:
    turn_order = TurnOrder()
    for number, places in enumerate(gangs):
        turn_order.join((str(number), 1), a_turn(*places))
    seen: Counter[Key] = Counter()
    for _ in range(2 * len(gangs)):
        used = Counter(place for key in turn_order.running for place in gangs[int(key[0])])
        assert not used or max(used.values()) == 1
        assert set(turn_order.running) | set(turn_order.resting) == {(str(number), 1) for number in range(len(gangs))}
        for key in turn_order.resting:
            assert any(used[place] for place in gangs[int(key[0])]), "nobody rests whose devices are all free"
        seen.update(list(turn_order.running))
        turn_order.turn()
    assert all(seen[str(number), 1] >= 2 for number in range(len(gangs))), "each had its turn in every round"
