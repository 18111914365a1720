from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import World, a_job, starts
from phalanx.cluster.cluster import Cluster, Node
from phalanx.cluster.queues import Queue, ancestors
from phalanx.policy.fair_tree import fairshares
from phalanx.policy.registry import policy
from phalanx.policy.view import Usage
from reference.fair_tree import Account, factors, weights

HOUR_MS = 3_600_000


@dataclass
class Moment:
    """Queues with weights, and what those with none inside have used."""

    weight: dict[str, int]
    used: dict[str, int]
    now: int = 0
    total: Usage = field(default_factory=Usage)
    memory: dict[str, object] = field(default_factory=dict)

    def queues(self) -> tuple[str, ...]:
        return tuple(self.used)

    def queue(self, path: str) -> Queue | None:
        return Queue(path, weight=self.weight.get(path, 1))

    def usage(self, queue: str) -> Usage:
        return Usage()

    def spent_gpu_ms(self, path: str) -> float:
        return float(sum(used for queue, used in self.used.items() if path in ancestors(queue)))


def shares(used: dict[str, int], **weight: int) -> dict[str, float]:
    return fairshares(Moment(weight, used))


def test_who_has_used_least_for_its_shares_is_first() -> None:
    assert shares({"a": 6, "b": 4, "c": 0}) == {"c": 1, "b": 2 / 3, "a": 1 / 3}
    assert shares({"a": 6, "b": 4, "c": 0}, a=2) == {"c": 1, "a": 2 / 3, "b": 1 / 3}


def test_all_of_a_better_branch_go_before_all_of_a_worse_one() -> None:
    # d has used 9 of 19, e 10: every team of d goes first, also the one that has used most of all.
    used = {"e/x": 1, "e/y": 9, "d/x": 9, "d/y": 0}
    assert shares(used) == {"d/y": 1, "d/x": 3 / 4, "e/x": 2 / 4, "e/y": 1 / 4}


def test_equals_share_the_better_rank_and_use_up_both() -> None:
    assert shares({"a": 5, "b": 5, "c": 7}) == {"a": 1, "b": 1, "c": 1 / 3}


def test_before_anybody_has_used_anything_all_are_first() -> None:
    assert shares({"a": 0, "d/x": 0, "d/y": 0}) == {"a": 1, "d/x": 1, "d/y": 1}


def test_what_lies_in_equals_is_sorted_together() -> None:
    # d and e are equal. Their teams are: d/x and e/x have half of what their neighbours have, and so on.
    used = {"d/x": 2, "d/y": 4, "e/x": 2, "e/y": 4}
    assert shares(used) == {"d/x": 1, "e/x": 1, "d/y": 2 / 4, "e/y": 2 / 4}


USERS = st.builds(Account, st.integers(1, 4), st.integers(0, 6))
ACCOUNTS = st.recursive(
    USERS,
    lambda inner: st.builds(
        Account, st.integers(1, 4), st.just(0), st.dictionaries(st.sampled_from("abcd"), inner, min_size=1)
    ),
    max_leaves=10,
)


def used(account: Account, path: str = "") -> dict[str, int]:
    if not account.inside:
        return {path: account.usage}
    found: dict[str, int] = {}
    for name, each in account.inside.items():
        found.update(used(each, f"{path}/{name}".lstrip("/")))
    return found


@given(st.dictionaries(st.sampled_from("abcd"), ACCOUNTS, min_size=1))
def test_the_factors_are_those_of_slurms_walk(inside: dict[str, Account]) -> None:
    root = Account(1, inside=inside)
    found = fairshares(Moment(dict(weights(root)), used(root)))
    count = len(found)
    expected = factors(root)
    assert {path: Fraction(round(value * count), count) for path, value in found.items()} == expected


def test_the_branch_that_had_less_goes_first_and_what_is_long_ago_is_forgotten() -> None:
    queues = (Queue("a"), Queue("b"))

    def first(idle_ms: int) -> str:
        world = World(Cluster((Node("n0", (), 4),), queues=queues), "fair-tree:half_life=1h")
        world.run(a_job("a0", 4, queue="a"))
        world.end("a0", after_ms=HOUR_MS)
        world.run(a_job("b0", 1, queue="b"), after_ms=idle_ms)
        world.end("b0", after_ms=HOUR_MS)
        return starts(world.submit(a_job("a1", 4, queue="a"), a_job("b1", 4, queue="b")))[0]

    assert first(idle_ms=0) == "b1"
    assert first(idle_ms=10 * HOUR_MS) == "a1"


def test_the_half_life_is_a_week_if_nothing_is_said() -> None:
    assert policy("fair-tree").half_life_ms == 7 * 24 * HOUR_MS
    with pytest.raises(ValueError, match="policy fair-tree: half_life=off: expected a time above 0"):
        policy("fair-tree:half_life=off")
