"""A tree of queues with what waits in each: whose turn is next, kept up to date as the keys of queues change.

Each place of the tree knows the best of what waits in it. Where a key changes, only that place and those it lies in are
worked out again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from heapq import heapify, heappop, heappush

from phalanx.engine.queue_keys import INNER, LEAF, WHOLE, Entry, QueueKeys
from phalanx.engine.records import JobRecord

Turn = tuple[tuple[float, ...], str]
"""The key of an entry, with those of its queues before it, and the id of its job."""

Offer = tuple[Turn, int, int]
"""What was best in a place when it had some version, for the place around it: void once it has another."""

NOBODY = -1


class QueueTree:
    """Entries by queue, the first in the order first. Places have the numbers that the keys of queues have."""

    def __init__(self, keys: QueueKeys, jobs: Mapping[str, JobRecord]) -> None:
        self.keys = keys
        self.jobs = jobs
        self._entries: dict[int, list[Entry]] = {}
        self._offers: dict[int, list[Offer]] = {}
        self._versions: dict[int, int] = {}
        self._best: Turn | None = None
        self._popped = NOBODY
        self._stale: dict[int, None] = {}

    def __iter__(self) -> Iterator[Entry]:
        for entries in self._entries.values():
            yield from entries

    @property
    def best(self) -> Turn | None:
        """The turn that is next."""
        if self._stale or self._popped != NOBODY:
            self._settle()
        return self._best

    def add(self, entries: list[Entry]) -> None:
        """Takes in many at once."""
        filled: dict[int, list[Entry]] = {}
        jobs, places = self.jobs, self.keys.places
        for entry in entries:
            queue = jobs[entry[1]].job.queue
            place = places[queue] if queue in places else self.keys.place(queue)
            if place in filled:
                filled[place].append(entry)
            else:
                filled[place] = [entry]
        for place, some in filled.items():
            if place in self._entries:
                some += self._entries[place]
            if len(some) > 1:
                heapify(some)
            self._entries[place] = some
        self._refresh_all(filled)

    def push(self, entry: Entry) -> None:
        """Takes one in."""
        place = self.keys.place(self.jobs[entry[1]].job.queue)
        entries = self._entries.setdefault(place, [])
        heappush(entries, entry)
        if entries[0] is entry and place != self._popped:
            self._refresh(place)

    def pop(self) -> Entry:
        """Gives out the first."""
        if self._stale or self._popped != NOBODY:
            self._settle()
        place = WHOLE
        while not (entries := self._entries.get(place)):
            place = self._offers[place][0][1]
        self._popped = place
        return heappop(entries)

    def drop(self, takes: Callable[[int], bool]) -> None:
        """Gives out the next of the queue that the last entry was of, too, as long as these are taken."""
        entries = self._entries.get(self._popped)
        while entries and takes(entries[0][2]):
            heappop(entries)

    def changed(self, places: Iterable[int]) -> None:
        """Takes note that queues have other keys."""
        self._stale.update(dict.fromkeys(places))

    def _settle(self) -> None:
        """Works out what is best where the last entry was taken from, or keys have changed."""
        if self._stale:
            places = [place for place in self._stale if place in self._versions]
            if self._popped != NOBODY:
                places.append(self._popped)
            self._stale = {}
            self._refresh_all(places)
        else:
            self._refresh(self._popped)
        self._popped = NOBODY

    def _refresh_all(self, places: Iterable[int]) -> None:
        """Works out what is best in many places: the innermost first, and each that they lie in once."""
        around = self.keys.places_around
        found: dict[int, None] = {}
        for place in places:
            while place != WHOLE and place not in found:
                found[place] = None
                place = around[place]
        # A place has a greater number than the one around it.
        for place in sorted(found, reverse=True):
            self._offer(place)
        self._best = self._best_inside(WHOLE)

    def _refresh(self, place: int) -> None:
        """Works out what is best in a place, and so in all that it lies in."""
        around = self.keys.places_around
        while place != WHOLE:
            self._offer(place)
            place = around[place]
        self._best = self._best_inside(WHOLE)

    def _offer(self, place: int) -> None:
        """Works out what is best in a place, given what is in those inside it, and has the one around it know."""
        version = self._versions.get(place, 0) + 1
        self._versions[place] = version
        entries = self._entries.get(place)
        best: Turn
        if entries:
            key, job, _ = entries[0]
            best = ((*self.keys.now[place], LEAF, *key), job)
        else:
            inner = self._best_inside(place)
            if inner is None:
                return
            best = ((*self.keys.now[place], INNER, *inner[0]), inner[1])
        offers = self._offers.setdefault(self.keys.places_around[place], [])
        heappush(offers, (best, place, version))

    def _best_inside(self, place: int) -> Turn | None:
        """What is best in the queues inside; None if nothing waits there."""
        offers, versions = self._offers.get(place), self._versions
        while offers and versions[offers[0][1]] != offers[0][2]:
            heappop(offers)
        return offers[0][0] if offers else None
