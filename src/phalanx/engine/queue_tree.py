"""A tree of queues with what waits in each: whose turn is next, kept up to date as the keys of queues change.

Of each place is known what is best in it, or at first only that nothing in it goes before its own key. Places are
looked into one by one, in the order of their keys, until the best of all is known: what waits further behind costs
nothing, and need not even be put there before somebody looks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from heapq import heapify, heappop, heappush, heapreplace

from phalanx.engine.queue_keys import INNER, LEAF, WHOLE, Entry, QueueKeys
from phalanx.engine.records import JobRecord

Turn = tuple[tuple[float, ...], str]
"""The key of an entry, with those of its queues before it, and the id of its job."""

Offer = tuple[Turn, int, int]
"""What is best in a place, or its key and no job, until that is known; void once the place has another version."""

UNKNOWN = ""
"""The job of an offer of which nothing is known but where it comes from."""

NOWHERE = -1

Bring = Callable[[int], list[Entry]]
"""Gives who waits in a place from the beginning: asked when somebody first looks there."""


def nobody(place: int) -> list[Entry]:
    """Where all are put into the tree at once, nobody is brought later."""
    return []


class QueueTree:
    """Entries by queue, the first in the order first. Places have the numbers that the keys of queues have."""

    def __init__(self, keys: QueueKeys, jobs: Mapping[str, JobRecord]) -> None:
        self.keys = keys
        self.jobs = jobs
        self._new: dict[int, list[Entry]] = {}
        self._entries: dict[int, list[Entry]] = {}
        self._offers: dict[int, list[Offer]] = {}
        self._versions: dict[int, int] = {}
        self._best: Turn | None = None
        self._is_known = False
        self._popped = NOWHERE
        self._seen = 0

    def __iter__(self) -> Iterator[Entry]:
        for by_place in (self._entries, self._new):
            for entries in by_place.values():
                yield from entries

    def best(self, bring: Bring = nobody) -> Turn | None:
        """The turn that is next."""
        if self._popped != NOWHERE:
            self._settle(bring)
        if self._seen < len(self.keys.changes):
            self._catch_up()
        if not self._is_known:
            self._best = self._best_inside(WHOLE, bring)
            self._is_known = True
        return self._best

    def add(self, entries: Iterable[Entry]) -> None:
        """Takes in many at once."""
        jobs, places = self.jobs, self.keys.places
        filled: dict[int, list[Entry]] = {}
        for entry in entries:
            queue = jobs[entry[1]].job.queue
            place = places[queue] if queue in places else self.keys.place(queue)
            if place in filled:
                filled[place].append(entry)
            else:
                filled[place] = [entry]
        for place, some in filled.items():
            self.put_all(place, some)

    def put_all(self, place: int, entries: list[Entry]) -> None:
        """Takes in some where their queue has its place."""
        if place in self._new:
            self._new[place] += entries
            return
        self._new[place] = entries
        if self._offers and place != self._popped:
            self._look_again(place)

    def push(self, entry: Entry) -> None:
        """Takes one in."""
        self.put_all(self.keys.place(self.jobs[entry[1]].job.queue), [entry])

    def pop(self) -> Entry:
        """Gives out the first. What is best has been asked for before."""
        found = self.best()
        assert found is not None, "nobody is in line"
        place = WHOLE
        while not (entries := self._waiting_in(place, nobody)):
            place = self._offers[place][0][1]
        self._popped = place
        return heappop(entries)

    def drop(self, takes: Callable[[Entry], bool]) -> None:
        """Gives out the next of the queue that the last entry was of, too, as long as these are taken."""
        entries = self._waiting_in(self._popped, nobody)
        while entries and takes(entries[0]):
            heappop(entries)

    def take_out(self, goes: Callable[[int], bool]) -> list[int]:
        """Gives out at once all classes that go."""
        if self._popped != NOWHERE:
            self._look_again(self._popped)
            self._popped = NOWHERE
        gone: list[int] = []
        for by_place in (self._entries, self._new):
            for place, entries in by_place.items():
                going = [entry[2] for entry in entries if goes(entry[2])]
                if going:
                    gone += going
                    out = dict.fromkeys(going)
                    by_place[place] = [entry for entry in entries if entry[2] not in out]
                    heapify(by_place[place])
                    self._look_again(place)
        return gone

    def _catch_up(self) -> None:
        """Takes note that queues have other keys than when the tree was last looked into."""
        changes, seen = self.keys.changes, self._seen
        self._seen = len(changes)
        if self._offers:
            around = self.keys.places_around
            found: dict[int, None] = {}
            for place in changes[seen:]:
                while place != WHOLE and place not in found:
                    found[place] = None
                    place = around[place]
            for place in found:
                self._doubt(place)

    def _settle(self, bring: Bring) -> None:
        """Has the place that the last entry was taken from looked into again, and all that it lies in.

        It was the best of each, so that what it offers now takes its place, unless keys have changed since.
        """
        place, self._popped = self._popped, NOWHERE
        around, now, versions = self.keys.places_around, self.keys.now, self._versions
        best = self._best_in(place, bring)
        while place != WHOLE:
            outside = around[place]
            offers, version = self._offers[outside], versions.get(place, 0)
            if not offers or offers[0][1] != place or offers[0][2] != version:
                self._look_again(place)
                return
            if best is None:
                heappop(offers)
            else:
                heapreplace(offers, (best, place, version))
            place, best = outside, self._best_inside(outside, bring)
            if place != WHOLE and best is not None:
                best = (*now[place], INNER, *best[0]), best[1]
        self._best, self._is_known = best, True

    def _look_again(self, place: int) -> None:
        """What is best in a place, and in all that it lies in, is to be found out anew."""
        around = self.keys.places_around
        while place != WHOLE:
            self._doubt(place)
            place = around[place]

    def _doubt(self, place: int) -> None:
        """Of a place nothing is known any more but its key, if anybody has looked there."""
        self._is_known = False
        offers = self._offers.get(self.keys.places_around[place])
        if offers is not None:
            version = self._versions[place] = self._versions.get(place, 0) + 1
            heappush(offers, ((self.keys.now[place], UNKNOWN), place, version))

    def _best_inside(self, place: int, bring: Bring) -> Turn | None:
        """What is best in the queues inside; None if nothing waits there."""
        offers, versions, now = self._offers.get(place), self._versions, self.keys.now
        if offers is None:
            offers = self._offers[place] = [
                ((now[inner], UNKNOWN), inner, versions.get(inner, 0)) for inner in self.keys.places_inside[place]
            ]
            heapify(offers)
        while offers:
            turn, inner, version = offers[0]
            if version == versions.get(inner, 0):
                if turn[1] is not UNKNOWN:
                    return turn
                best = self._best_in(inner, bring)
                if best is not None:
                    heapreplace(offers, (best, inner, version))
                    continue
            heappop(offers)
        return None

    def _best_in(self, place: int, bring: Bring) -> Turn | None:
        """What is best in a place: what waits in the queue itself, or in those inside it."""
        entries = self._waiting_in(place, bring)
        if entries:
            key, job, _ = entries[0]
            return (*self.keys.now[place], LEAF, *key), job
        inner = self._best_inside(place, bring)
        return ((*self.keys.now[place], INNER, *inner[0]), inner[1]) if inner is not None else None

    def _waiting_in(self, place: int, bring: Bring) -> list[Entry]:
        """What waits in a queue, in a heap."""
        entries = self._entries.get(place)
        if entries is None:
            entries = self._entries[place] = bring(place)
            heapify(entries)
        if place in self._new:
            entries += self._new.pop(place)
            heapify(entries)
        return entries
