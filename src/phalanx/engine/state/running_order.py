"""Running order: the running attempts in the order of the policy, where those behind are preempted for those before."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from heapq import merge

from phalanx.engine.state.records import AttemptRecord
from phalanx.policy.policy import Key

LAST = "\U0010ffff"
"""Sorts behind every name."""

Entry = tuple[Key, str]


class Ranks:
    """Names in the order of their keys, and the GPUs of each."""

    def __init__(self, entries: list[Entry] | None = None, gpus: list[int] | None = None) -> None:
        self.entries = entries or []
        self._gpus = gpus or []

    def add(self, entry: Entry, gpus: int) -> None:
        """Puts a name in its place."""
        at = bisect_left(self.entries, entry)
        self.entries.insert(at, entry)
        self._gpus.insert(at, gpus)

    def remove(self, entry: Entry) -> None:
        """Takes a name out."""
        at = bisect_left(self.entries, entry)
        del self.entries[at], self._gpus[at]

    def recount(self, entry: Entry, gpus: int) -> None:
        """Takes note that a name has so many GPUs."""
        self._gpus[bisect_left(self.entries, entry)] = gpus

    def behind(self, key: Key) -> Iterator[Entry]:
        """Those whose keys are greater, the last first."""
        for at in range(len(self.entries) - 1, bisect_right(self.entries, (key, LAST)) - 1, -1):
            yield self.entries[at]

    def gpus_behind(self, key: Key) -> int:
        """GPUs of all whose keys are greater."""
        return sum(self._gpus[bisect_right(self.entries, (key, LAST)) :])


class RunningOrder:
    """Attempts that hold devices or have been promised some, by their keys, and the GPUs they have.

    Keys that begin with a remaining time all fall alike: they are kept as what they were at time 0, so that the order
    among them stays. Once nothing remains, they stand still.
    """

    def __init__(self) -> None:
        self._still = Ranks()
        self._falling = Ranks()
        self._places: dict[str, tuple[Ranks, Key]] = {}
        self._attempts: dict[str, AttemptRecord] = {}
        self._now = 0

    def add(self, attempt: AttemptRecord, key: Key, falls_from_ms: int | None = None) -> None:
        """Puts an attempt in its place; from `falls_from_ms` on its key falls, if it is given."""
        attempt.standing = key
        self._attempts[attempt.key] = attempt
        if falls_from_ms is None:
            self._place(attempt, self._still, key)
        else:
            self._place(attempt, self._falling, _later(key, falls_from_ms))

    def _place(self, attempt: AttemptRecord, ranks: Ranks, key: Key) -> None:
        self._places[attempt.key] = ranks, key
        ranks.add((key, attempt.key), attempt.gpus)

    def remove(self, attempt: AttemptRecord) -> None:
        """Takes an attempt out, if it is there."""
        place = self._places.pop(attempt.key, None)
        if place is not None:
            ranks, key = place
            ranks.remove((key, attempt.key))
            del self._attempts[attempt.key]
            attempt.standing = None

    def recount(self, attempt: AttemptRecord) -> None:
        """Takes note that an attempt has more or fewer GPUs than before, if it is there."""
        place = self._places.get(attempt.key)
        if place is not None:
            ranks, key = place
            ranks.recount((key, attempt.key), attempt.gpus)

    def settle(self, order: Callable[[AttemptRecord], Key]) -> None:
        """Puts everybody in the place that their keys say now, where keys change with time."""
        attempts = self._attempts
        entries = sorted([(order(attempt), name) for name, attempt in attempts.items()])
        self._still, self._falling = Ranks(entries, [attempts[name].gpus for _, name in entries]), Ranks()
        for key, name in entries:
            attempts[name].standing = key
            self._places[name] = self._still, key

    def fall_to(self, now: int) -> None:
        """Takes note of the time, where keys begin with a remaining time."""
        self._now = now
        falling = self._falling.entries
        while falling and falling[0][0][0] < now:
            key, name = falling[0]
            self._falling.remove(falling[0])
            self._place(self._attempts[name], self._still, (0, *key[1:]))

    def key_of(self, attempt: AttemptRecord, now: int) -> Key:
        """The key of an attempt that is there; its `standing` is the same from then on."""
        ranks, key = self._places[attempt.key]
        attempt.standing = key if ranks is self._still else (max(key[0] - now, 0), *key[1:])
        return attempt.standing

    def behind(self, key: Key) -> Iterator[AttemptRecord]:
        """Attempts whose keys are greater, the last first."""
        still, now = self._still.behind(key), self._now
        if not self._falling.entries:
            for each, name in still:
                attempt = self._attempts[name]
                attempt.standing = each
                yield attempt
            return
        falling = ((_later(each, -now), name) for each, name in self._falling.behind(_later(key, now)))
        for each, name in merge(still, falling, reverse=True):
            attempt = self._attempts[name]
            attempt.standing = each
            yield attempt

    def gpus_behind(self, key: Key) -> int:
        """GPUs of all whose keys are greater."""
        return self._still.gpus_behind(key) + self._falling.gpus_behind(_later(key, self._now))


def _later(key: Key, by_ms: int) -> Key:
    """A key whose first number is greater."""
    return (key[0] + by_ms, *key[1:]) if key else ()
