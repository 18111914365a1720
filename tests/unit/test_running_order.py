"""Running attempts in the order of the policy, beside a list that is sorted anew whenever it is asked."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

from hypothesis import given
from hypothesis import strategies as st

from phalanx.engine.state.records import AttemptRecord
from phalanx.engine.state.running_order import RunningOrder
from phalanx.policy.policy import Key

STEPS = st.lists(
    st.tuples(
        st.sampled_from(("still", "falls", "remove", "recount")),
        st.integers(0, 5),
        st.integers(0, 9),
        st.integers(0, 4),
    ),
    max_size=30,
)


def attempt_of(number: int) -> AttemptRecord:
    return cast("AttemptRecord", SimpleNamespace(key=f"j{number}/1", gpus=1, standing=None))


class Sorted:
    """The keys of all attempts as they are at the moment, sorted when asked."""

    def __init__(self) -> None:
        self.keys: dict[str, tuple[Key, int | None, int]] = {}

    def now(self, name: str, now: int) -> Key:
        key, since_ms, _ = self.keys[name]
        return key if since_ms is None else (max(key[0] - (now - since_ms), 0), *key[1:])

    def behind(self, key: Key, now: int) -> list[str]:
        found = sorted((self.now(name, now), name) for name in self.keys)
        return [name for own, name in reversed(found) if own > key]


@given(STEPS, st.integers(0, 9))
def test_the_order_is_that_of_the_keys_at_the_moment(steps: list[tuple[str, int, int, int]], first: int) -> None:
    standing, plain, now = RunningOrder(), Sorted(), 0
    attempts = [attempt_of(number) for number in range(6)]
    for what, number, length_ms, pass_ms in steps:
        attempt, now = attempts[number], now + pass_ms
        standing.fall_to(now)
        is_there = attempt.key in plain.keys
        if what == "recount" and is_there:
            attempt.__dict__["gpus"] = length_ms
            standing.recount(attempt)
            plain.keys[attempt.key] = (*plain.keys[attempt.key][:2], length_ms)
        elif what != "recount":
            standing.remove(attempt)
            plain.keys.pop(attempt.key, None)
        if what in ("still", "falls"):
            since_ms = now if what == "falls" else None
            standing.add(attempt, (length_ms, number), since_ms)
            plain.keys[attempt.key] = ((length_ms, number), since_ms, attempt.gpus)
        for at in ((), (first, 3)):
            behind = plain.behind(at, now)
            assert [each.key for each in standing.behind(at)] == behind
            assert standing.gpus_behind(at) == sum(plain.keys[name][2] for name in behind)
        for each in attempts:
            if each.key in plain.keys:
                assert standing.key_of(each, now) == plain.now(each.key, now) == each.standing


def test_keys_that_go_anywhere_are_asked_for_anew() -> None:
    standing, attempts = RunningOrder(), [attempt_of(number) for number in range(3)]
    for number, attempt in enumerate(attempts):
        standing.add(attempt, (number,))
    standing.settle(lambda attempt: (-attempts.index(attempt),))
    assert list(standing.behind(())) == attempts
    standing.remove(attempts[1])
    assert list(standing.behind((-2,))) == [attempts[0]]
