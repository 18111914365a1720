"""Running order: the running attempts in the order of the policy, where those behind are preempted for those before."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator

from phalanx.engine.state.records import AttemptRecord
from phalanx.policy.policy import Key

LAST = "\U0010ffff"
"""Sorts behind every name."""


class RunningOrder:
    """Attempts that hold devices or have been promised some, by their keys, and the GPUs they have."""

    def __init__(self) -> None:
        self._order: list[tuple[Key, str]] = []
        self._gpus: list[int] = []
        self._attempts: dict[str, AttemptRecord] = {}

    def add(self, attempt: AttemptRecord, key: Key) -> None:
        """Puts an attempt in its place."""
        attempt.standing = key
        entry = (key, attempt.key)
        at = bisect_left(self._order, entry)
        self._attempts[attempt.key] = attempt
        self._order.insert(at, entry)
        self._gpus.insert(at, attempt.gpus)

    def remove(self, attempt: AttemptRecord) -> None:
        """Takes an attempt out, if it is there."""
        if attempt.standing is not None:
            at = bisect_left(self._order, (attempt.standing, attempt.key))
            del self._order[at], self._gpus[at]
            del self._attempts[attempt.key]
            attempt.standing = None

    def recount(self, attempt: AttemptRecord) -> None:
        """Takes note that an attempt has more or fewer GPUs than before, if it is there."""
        if attempt.standing is not None:
            self._gpus[bisect_left(self._order, (attempt.standing, attempt.key))] = attempt.gpus

    def settle(self, order: Callable[[AttemptRecord], Key]) -> None:
        """Puts everybody in the place that their keys say now, where keys change with time."""
        attempts = list(self._attempts.values())
        for attempt in attempts:
            attempt.standing = order(attempt)
        keyed = sorted(((attempt.standing or (), attempt.key), attempt.gpus) for attempt in attempts)
        self._order = [entry for entry, _ in keyed]
        self._gpus = [gpus for _, gpus in keyed]

    def behind(self, key: Key) -> Iterator[AttemptRecord]:
        """Attempts whose keys are greater, the last first."""
        for at in range(len(self._order) - 1, -1, -1):
            own, name = self._order[at]
            if own <= key:
                return
            yield self._attempts[name]

    def gpus_behind(self, key: Key) -> int:
        """GPUs of all whose keys are greater."""
        return sum(self._gpus[bisect_right(self._order, (key, LAST)) :])
