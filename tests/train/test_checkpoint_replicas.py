"""Where copies lie, and what that is worth."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations
from math import comb

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.train.checkpoint.copies.replicas import place


def machines(count: int, ranks_each: int = 1) -> list[list[int]]:
    return [list(range(n * ranks_each, (n + 1) * ranks_each)) for n in range(count)]


@given(st.integers(1, 9), st.integers(1, 4), st.data())
def test_the_probability_is_that_of_trying_all_losses(count: int, copies: int, data: st.DataObject) -> None:
    placement = place(machines(count), copies)
    lost = data.draw(st.integers(0, count))
    survived = sum(placement.recovers(some) for some in combinations(range(count), lost))
    assert placement.recovery_probability(lost) == Fraction(survived, comb(count, lost))


@pytest.mark.parametrize(
    ("count", "copies", "lost", "expected"),
    [
        (16, 2, 2, 0.9333),
        (16, 2, 3, 0.8000),
        (16, 2, 4, 0.6154),
        (15, 3, 3, 0.9890),
        (15, 3, 4, 0.9560),
        (1000, 2, 2, 0.999),
        (1000, 2, 4, 0.994),
        (1000, 2, 8, 0.972),
    ],
)
def test_known_probabilities(count: int, copies: int, lost: int, expected: float) -> None:
    assert float(place(machines(count), copies).recovery_probability(lost)) == pytest.approx(expected, abs=5e-4)


def test_fewer_losses_than_copies_are_always_survived() -> None:
    placement = place(machines(7), 3)
    assert [placement.recovery_probability(lost) for lost in range(3)] == [1, 1, 1]
    assert placement.recovery_probability(3) < 1


def test_a_remainder_forms_a_ring() -> None:
    placement = place(machines(7), 2)
    assert placement.groups == ((0, 1), (2, 3))
    assert placement.ring == (4, 5, 6)
    assert [placement.holders(rank) for rank in (0, 1, 4, 5, 6)] == [(0, 1), (1, 0), (4, 5), (5, 6), (6, 4)]
    assert placement.sources(4) == (6,)


@given(st.integers(1, 12), st.integers(1, 4), st.integers(1, 3))
def test_every_snapshot_has_its_copies_on_as_many_machines(count: int, copies: int, ranks_each: int) -> None:
    placement = place(machines(count, ranks_each), copies)
    for rank in range(count * ranks_each):
        holders = placement.holders(rank)
        assert holders[0] == rank
        assert len({holder // ranks_each for holder in holders}) == len(holders) == min(copies, count)
        assert all(rank in placement.sources(holder) for holder in holders[1:])


def test_copies_lie_in_different_racks_where_that_is_possible() -> None:
    racks = [{"rack": f"r{n // 4}"} for n in range(16)]
    assert place(machines(16), 2).shared_domains(racks) == 16
    assert place(machines(16), 2, racks).shared_domains(racks) == 0
    assert place(machines(16), 4, racks).shared_domains(racks) == 0


def test_copies_lie_in_different_racks_and_on_different_feeds() -> None:
    domains = [{"rack": f"r{n // 3}", "feed": "AB"[n % 2]} for n in range(12)]
    assert place(machines(12), 2, domains).shared_domains(domains) == 0


def test_a_rack_that_is_too_large_is_shared_as_little_as_can_be() -> None:
    racks = [{"rack": "big"}] * 4 + [{"rack": "small"}] * 2
    placement = place(machines(6), 2, racks)
    assert placement.shared_domains(racks) == 2, "one pair must lie in the large rack; each of the two counts it"
