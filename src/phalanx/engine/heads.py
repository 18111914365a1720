"""Heads: which kind of waiting job comes next, kept up to date as queues get devices.

Where the policy orders queues, each place of their tree knows the best of what waits in it. A job that gets devices
changes the keys of its queue and of those it lies in, and only these are worked out again.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush

from phalanx.cluster.queues import ancestors
from phalanx.engine.state import OVERDUE, State
from phalanx.policy.policy import Key, no_queues

Entry = tuple[Key, str, int]
"""The key of a job, its id, and the number of its class."""

LEAF, INNER = 0, 1
"""Of two that are equal at a level, one with none inside goes first: its key ends there."""


def queue_key(state: State, queue: str) -> Key:
    """The key of a queue, which goes before those of its jobs."""
    policy = state.policy
    if policy.level_order is no_queues:
        return policy.queue_order(queue, state.usage(queue), state)
    if not state.quotas:
        return policy.level_order(queue, state.usage(queue), state)
    key: Key = ()
    for path in ancestors(queue):
        if path:
            key = (*policy.level_order(path, state.usage(path), state), INNER if key else LEAF, *key)
    return key


class Heads:
    """Entries, the first in the order first."""

    def __init__(self, state: State) -> None:
        self.state = state
        self._first: list[Entry] = []
        policy = state.policy
        self._by_queue = policy.orders_queues
        self._levels = bool(state.quotas) and policy.level_order is not no_queues
        self._order = policy.level_order if policy.level_order is not no_queues else policy.queue_order
        self._places: dict[str, _Place] = {}
        self._whole = _Place("", None)
        state.touched.clear()

    def __bool__(self) -> bool:
        return bool(self._first) or self._whole.best is not None

    def __iter__(self) -> Iterator[Entry]:
        yield from self._first
        for place in self._places.values():
            yield from place.entries

    def add(self, entries: list[Entry]) -> None:
        """Takes in many at once."""
        if not self._by_queue:
            self._first += entries
            heapify(self._first)
            return
        filled: dict[str, _Place] = {}
        for entry in entries:
            if entry[0][0] == OVERDUE:
                heappush(self._first, entry)
                continue
            queue = self.state.jobs[entry[1]].job.queue
            place = filled[queue] = self._place(queue)
            place.entries.append(entry)
        for place in filled.values():
            heapify(place.entries)
            self._refresh(place)

    def push(self, entry: Entry) -> None:
        """Takes one in."""
        if not self._by_queue or entry[0][0] == OVERDUE:
            heappush(self._first, entry)
            return
        place = self._place(self.state.jobs[entry[1]].job.queue)
        heappush(place.entries, entry)
        if place.entries[0] is entry:
            self._refresh(place)

    def pop(self) -> Entry:
        """Gives out the first."""
        if self._first:
            return heappop(self._first)
        if self.state.touched:
            self.catch_up()
        place = self._whole
        while place.inside:
            place = place.first()
        entry = heappop(place.entries)
        self._refresh(place)
        return entry

    def catch_up(self) -> None:
        """Works out the keys of queues anew that have got or lost something since."""
        for queue in self.state.touched:
            touched = [self._places[path] for path in ancestors(queue) if path in self._places]
            for place in touched:
                place.key = None
            if touched:
                self._refresh(touched[0])
        self.state.touched.clear()

    def _place(self, queue: str) -> _Place:
        place = self._places.get(queue)
        if place is None:
            outside = queue.rpartition("/")[0] if self._levels else ""
            above = self._place(outside) if outside else self._whole
            place = self._places[queue] = _Place(queue, above)
            above.inside[queue] = place
        return place

    def _refresh(self, place: _Place) -> None:
        """Works out what is best in a place, and so in all that it lies in."""
        each: _Place | None = place
        while each is not None and each.above is not None:
            inner = each.first().best if each.inside and each.has_any() else None
            own = each.entries[0] if each.entries else None
            each.best = self._best(each, inner, own)
            each.above.offer(each)
            each = each.above
        self._whole.best = self._whole.first().best if self._whole.has_any() else None

    def _best(self, place: _Place, inner: tuple[Key, str] | None, own: Entry | None) -> tuple[Key, str] | None:
        if own is not None:
            return (*self._key(place), LEAF, *own[0]), own[1]
        if inner is not None:
            return (*self._key(place), INNER, *inner[0]), inner[1]
        return None

    def _key(self, place: _Place) -> Key:
        if place.key is None:
            place.key = self._order(place.path, self.state.usage(place.path), self.state)
        return place.key


class _Place:
    """One queue, or the whole: what waits in it, or the queues inside by their best."""

    __slots__ = ("_offers", "above", "best", "entries", "inside", "key", "path", "version")

    def __init__(self, path: str, above: _Place | None) -> None:
        self.path = path
        self.above = above
        self.entries: list[Entry] = []
        self.inside: dict[str, _Place] = {}
        self.best: tuple[Key, str] | None = None
        self.key: Key | None = None
        self.version = 0
        self._offers: list[tuple[tuple[Key, str], str, int]] = []

    def offer(self, place: _Place) -> None:
        """Takes note of what is best in a queue inside; what was before does not count any more."""
        place.version += 1
        if place.best is not None:
            heappush(self._offers, (place.best, place.path, place.version))

    def has_any(self) -> bool:
        """Whether anything waits in a queue inside."""
        offers = self._offers
        while offers and self.inside[offers[0][1]].version != offers[0][2]:
            heappop(offers)
        return bool(offers)

    def first(self) -> _Place:
        """The queue inside whose best is first."""
        self.has_any()
        return self.inside[self._offers[0][1]]
