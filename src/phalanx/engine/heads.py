"""Heads: which kind of waiting job comes next, kept up to date as queues get devices.

Where the policy orders queues, each place of their tree knows the best of what waits in it. A job that gets devices
changes the keys of its queue and of those it lies in, and only these are worked out again.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush

from phalanx.cluster.queues import ancestors
from phalanx.engine.state import OVERDUE, State
from phalanx.policy.policy import Key, no_queues

Entry = tuple[Key, str, int]
"""The key of a job, its id, and the number of its class."""

END = float("inf")
Turn = tuple[tuple[float, ...], str]
"""The key of somebody who was given out, with those of its queues, and its id."""

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
        self._popped: _Place | None = None
        self.clock = 0
        self._turns: list[Turn] = []
        self._moments: list[int] = []
        self._until = -1
        self._last: dict[int, Turn | None] = {}
        state.touched.clear()

    def __bool__(self) -> bool:
        self._settle()
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
            place = filled.get(queue)
            if place is None:
                place = filled[queue] = self._place(queue)
            place.entries.append(entry)
        for place in filled.values():
            heapify(place.entries)
        self._refresh_all(filled)

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
        self.clock += 1
        if self._first:
            entry = heappop(self._first)
            if not self._by_queue:
                self._takes_turn(entry[:2])
            return entry
        self._settle()
        if self.state.touched:
            self.catch_up()
        place = self._whole
        if place.best is not None:
            self._takes_turn(place.best)
        while place.inside:
            place = place.first()
        self._popped = place
        return heappop(place.entries)

    def drop(self, takes: Callable[[int], bool]) -> None:
        """Gives out the next classes of the queue that the last entry was of, too, as long as these are taken."""
        if self._popped is not None:
            entries = self._popped.entries
            while entries and takes(entries[0][2]):
                heappop(entries)

    def watch(self, queue: str) -> None:
        """Keeps the keys of a queue from now on, for those of its classes that are not in line."""
        if self._by_queue and queue not in self._places:
            for place in self._place(queue).chain:
                self._key(place)

    def ran_out(self) -> None:
        """Takes note that everybody who was in line has had its turn."""
        self.clock += 1
        self._takes_turn(((END,), ""))

    def had_turn(self, entry: Entry, after: int, until: int) -> bool:
        """Whether an entry that was not in line would have been given out between two moments of the walk."""
        last = self._last_turn(after, until)
        if last is None:
            return False
        if not self._by_queue or entry[0][0] == OVERDUE:
            return entry[:2] < last
        chain = self._places[self.state.jobs[entry[1]].job.queue].chain
        if all(each.keys[-1][0] <= after + 1 for each in chain):
            return (_flat(chain, entry), entry[1]) < last
        turns = self._turns[bisect_right(self._moments, after) : bisect_right(self._moments, until)]
        moments = self._moments[bisect_right(self._moments, after) : bisect_right(self._moments, until)]
        return any(
            (_flat_then(chain, entry, moment), entry[1]) < turn for moment, turn in zip(moments, turns, strict=True)
        )

    def _last_turn(self, after: int, until: int) -> Turn | None:
        """The last in the order of those who were given out between two moments. Many ask for the same two."""
        if self._until != until:
            self._until = until
            self._last.clear()
        if after not in self._last:
            turns = self._turns[bisect_right(self._moments, after) : bisect_right(self._moments, until)]
            self._last[after] = max(turns, default=None)
        return self._last[after]

    def _takes_turn(self, turn: Turn) -> None:
        self._moments.append(self.clock)
        self._turns.append(turn)

    def catch_up(self) -> None:
        """Works out the keys of queues anew that have got or lost something since."""
        self._settle()
        touched: dict[str, _Place] = {}
        for queue in self.state.touched:
            for path in ancestors(queue):
                if path in self._places:
                    touched[path] = self._places[path]
                    touched[path].key = None
        for place in touched.values():
            self._key(place)
        self._refresh_all(touched)
        self.state.touched.clear()

    def _settle(self) -> None:
        """Works out what is best where the last entry was taken from."""
        if self._popped is not None:
            place, self._popped = self._popped, None
            self._refresh(place)

    def _place(self, queue: str) -> _Place:
        place = self._places.get(queue)
        if place is None:
            outside = queue.rpartition("/")[0] if self._levels else ""
            above = self._place(outside) if outside else self._whole
            place = self._places[queue] = _Place(queue, above)
            above.inside[queue] = place
        return place

    def _refresh_all(self, places: dict[str, _Place]) -> None:
        """Likewise for many places: the innermost first, and each that they lie in once."""
        levels: dict[int, dict[str, _Place]] = {}
        for place in places.values():
            each: _Place | None = place
            while each is not None and each.above is not None and each.path not in levels.get(each.depth, {}):
                levels.setdefault(each.depth, {})[each.path] = each
                each = each.above
        for depth in sorted(levels, reverse=True):
            for place in levels[depth].values():
                self._offer(place)
        self._whole.best = self._whole.best_inside()

    def _refresh(self, place: _Place) -> None:
        """Works out what is best in a place, and so in all that it lies in."""
        each = place
        while each.above is not None:
            self._offer(each)
            each = each.above
        self._whole.best = each.best_inside()

    def _offer(self, place: _Place) -> None:
        """Works out what is best in a place, given what is in those inside it, and has the one around it know."""
        if place.entries:
            key, name, _ = place.entries[0]
            best: tuple[Key, str] | None = ((*(place.key or self._key(place)), LEAF, *key), name)
        else:
            inner = place.best_inside() if place.inside else None
            best = ((*(place.key or self._key(place)), INNER, *inner[0]), inner[1]) if inner is not None else None
        place.best = best
        place.version += 1
        if best is not None and place.above is not None:
            heappush(place.above.offers, (best, place.path, place.version))

    def _key(self, place: _Place) -> Key:
        if place.key is None:
            place.key = self._order(place.path, self.state.usage(place.path), self.state)
            if not place.keys or place.keys[-1][1] != place.key:
                place.keys.append((self.clock, place.key))
        return place.key


def _flat(chain: tuple[_Place, ...], entry: Entry) -> Key:
    """The key that an entry has in the whole: those of its queue and of the queues that lies in go before its own."""
    key: Key = (LEAF, *entry[0])
    for place in chain:
        own = place.keys[-1][1]
        key = (*own, *key) if place is chain[0] else (*own, INNER, *key)
    return key


def _flat_then(chain: tuple[_Place, ...], entry: Entry, moment: int) -> Key:
    """Likewise at a moment of the walk."""
    key: Key = (LEAF, *entry[0])
    for place in chain:
        own = next((key for since, key in reversed(place.keys) if since <= moment), place.keys[0][1])
        key = (*own, *key) if place is chain[0] else (*own, INNER, *key)
    return key


class _Place:
    """One queue, or the whole: what waits in it, or the queues inside by their best.

    Of `offers` those count that are of a queue's present version: what was its best before does not any more.
    """

    __slots__ = ("above", "best", "chain", "depth", "entries", "inside", "key", "keys", "offers", "path", "version")

    def __init__(self, path: str, above: _Place | None) -> None:
        self.path = path
        self.above = above
        self.chain: tuple[_Place, ...] = (self, *above.chain) if above is not None else ()
        self.depth: int = above.depth + 1 if above is not None else 0
        self.entries: list[Entry] = []
        self.inside: dict[str, _Place] = {}
        self.best: tuple[Key, str] | None = None
        self.key: Key | None = None
        self.keys: list[tuple[int, Key]] = []
        self.version = 0
        self.offers: list[tuple[tuple[Key, str], str, int]] = []

    def best_inside(self) -> tuple[Key, str] | None:
        """What is best in the queues inside; None if nothing waits there."""
        offers, inside = self.offers, self.inside
        while offers and inside[offers[0][1]].version != offers[0][2]:
            heappop(offers)
        return offers[0][0] if offers else None

    def first(self) -> _Place:
        """The queue inside whose best is first."""
        self.best_inside()
        return self.inside[self.offers[0][1]]
