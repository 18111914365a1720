"""The keys of queues: where each stands among those beside it, now and at earlier moments of a walk."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

from phalanx.cluster.queues import ancestors
from phalanx.engine.state import State
from phalanx.policy.policy import Key, no_queues

Entry = tuple[Key, str, int]
"""The key of a job, its id, and the number of its class."""

LEAF, INNER = 0, 1
"""Of two that are equal at a level, one with none inside goes first: its key ends there."""

WHOLE = 0
"""The place around all others."""

Past = list[tuple[int, Key]]
"""The keys a queue has had, each with the moment since when; the present one comes last."""


class QueueKeys:
    """Those of the queues that were asked for, each of which has a place: a number greater than that of the one it lies
    in. `places` are these by path, `now` the keys by place. `clock` counts the moments of the walk.
    """

    def __init__(self, state: State) -> None:
        self.state = state
        policy = state.policy
        self._has_levels = bool(state.quotas) and policy.level_order is not no_queues
        self._order = policy.level_order if policy.level_order is not no_queues else policy.queue_order
        self.clock = 0
        self.now: list[Key] = [()]
        self.places_around: list[int] = [WHOLE]
        self.places_inside: list[list[int]] = [[]]
        self.places: dict[str, int] = {}
        self.changes: list[int] = []
        self._past: list[Past] = [[]]
        self._chains: dict[str, tuple[Past, ...]] = {}

    def place(self, path: str) -> int:
        """The place of a queue, whose keys are kept from now on."""
        place = self.places.get(path)
        if place is None:
            outside = path.rpartition("/")[0] if self._has_levels else ""
            around = self.place(outside) if outside else WHOLE
            place = self.places[path] = len(self.now)
            key = self._order(path, self.state.usage(path), self.state)
            self.now.append(key)
            self.places_around.append(around)
            self.places_inside.append([])
            self.places_inside[around].append(place)
            self._past.append([(self.clock, key)])
        return place

    def chain(self, queue: str) -> tuple[Past, ...]:
        """The keys of a queue, and of those that it lies in, the innermost first."""
        chain = self._chains.get(queue)
        if chain is None:
            place, found = self.place(queue), []
            while place != WHOLE:
                found.append(self._past[place])
                place = self.places_around[place]
            chain = self._chains[queue] = tuple(found)
        return chain

    def catch_up(self, touched: Iterable[str]) -> None:
        """Works out the keys anew of queues that have got or lost something. `changes` are the places where they have
        changed, one after the other.
        """
        for path in dict.fromkeys(path for queue in touched for path in ancestors(queue)):
            place = self.places.get(path)
            if place is not None:
                key = self._order(path, self.state.usage(path), self.state)
                if key != self.now[place]:
                    self.now[place] = key
                    self._past[place].append((self.clock, key))
                    self.changes.append(place)


def flat(chain: tuple[Past, ...], entry: Entry) -> Key:
    """The key that an entry has in the whole: those of its queue and of the queues that lies in go before its own."""
    key: Key = (*chain[0][-1][1], LEAF, *entry[0])
    for past in chain[1:]:
        key = (*past[-1][1], INNER, *key)
    return key


def flat_then(chain: tuple[Past, ...], entry: Entry, moment: int) -> Key:
    """Likewise at a moment of the walk."""
    key: Key = (*_then(chain[0], moment), LEAF, *entry[0])
    for past in chain[1:]:
        key = (*_then(past, moment), INNER, *key)
    return key


def _then(past: Past, moment: int) -> Key:
    return past[max(bisect_right(past, moment, key=_since) - 1, 0)][1]


def _since(had: tuple[int, Key]) -> int:
    return had[0]
