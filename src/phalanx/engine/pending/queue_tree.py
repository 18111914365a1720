"""The tree of queues, best first: the queue whose first candidate goes before those of all others.

Of each place the best turn below it is known, or at first only that nothing there goes before its own key. Places are
looked into in the order of their keys until the best of all is known: what is further behind costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush, heapreplace

from phalanx.engine.state.order import INNER, LEAF, WHOLE, QueueKeys
from phalanx.policy.policy import Key

Turn = tuple[tuple[float, ...], str]
"""The key of a job, with those of its queues before it, and its id."""

Offer = tuple[Turn, int, int]
"""The best turn of a place, or its key and no job until that is known; void once the place has another version."""

UNKNOWN = ""
"""The job of an offer of which only the place is known."""

First = Callable[[int], tuple[Key, str] | None]
"""The key and id of the first candidate of the queue at a place; None without one."""


class QueueTree:
    """What is known of the places. It stays true while candidates of a place only become fewer: then it is a bound."""

    def __init__(self, keys: QueueKeys, first: First) -> None:
        self._keys = keys
        self._first = first
        self._offers: dict[int, list[Offer]] = {}
        self._versions: dict[int, int] = {}

    def best(self) -> int | None:
        """The place of the queue whose first candidate is next."""
        while (turn := self._best_inside(WHOLE)) is not None:
            place = self._offers[WHOLE][0][1]
            while (entry := self._first(place)) is None and self._offers.get(place):
                place = self._offers[place][0][1]
            if entry is not None and entry[1] == turn[1]:
                return place
            self.look_again(place)
        return None

    def forget(self) -> None:
        """Of no place anything is known any more: there may be more candidates than before."""
        self._offers.clear()
        self._versions.clear()

    def look_again(self, place: int) -> None:
        """What is best in a place, and in all around it, is to be found out anew."""
        while place != WHOLE:
            self._doubt(place)
            place = self._keys.around[place]

    def reorder(self, places: list[int]) -> None:
        """Takes note that queues have other keys than when the tree was last looked into."""
        found: dict[int, None] = {}
        for place in places:
            while place != WHOLE and place not in found:
                found[place] = None
                place = self._keys.around[place]
        for place in found:
            self._doubt(place)

    def _doubt(self, place: int) -> None:
        """Of a place only its key is known any more."""
        offers = self._offers.get(self._keys.around[place])
        if offers is not None:
            version = self._versions[place] = self._versions.get(place, 0) + 1
            heappush(offers, ((self._keys.now[place], UNKNOWN), place, version))

    def _best_inside(self, place: int) -> Turn | None:
        """The best turn of the queues inside a place; None without candidates there."""
        offers, versions, now = self._offers.get(place), self._versions, self._keys.now
        if offers is None:
            offers = self._offers[place] = [
                ((now[inner], UNKNOWN), inner, versions.get(inner, 0)) for inner in self._keys.inside[place]
            ]
            heapify(offers)
        while offers:
            turn, inner, version = offers[0]
            if version == versions.get(inner, 0):
                if turn[1] is not UNKNOWN:
                    return turn
                best = self._best_in(inner)
                if best is not None:
                    heapreplace(offers, (best, inner, version))
                    continue
            heappop(offers)
        return None

    def _best_in(self, place: int) -> Turn | None:
        """The best turn of a place: of the queue itself, or of those inside it."""
        entry = self._first(place)
        if entry is not None:
            return (*self._keys.now[place], LEAF, *entry[0]), entry[1]
        inner = self._best_inside(place)
        return ((*self._keys.now[place], INNER, *inner[0]), inner[1]) if inner is not None else None
