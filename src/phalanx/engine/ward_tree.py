"""A tree of queues with who lies in wards: whose turn is next of those whose wards are open."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from heapq import heappush

from phalanx.engine.queue_keys import WHOLE, Entry, QueueKeys
from phalanx.engine.queue_tree import NOWHERE, Bring, QueueTree, Turn, nobody
from phalanx.engine.records import JobRecord
from phalanx.engine.ward import Ward


class WardTree(QueueTree):
    """One for all wards: `ward_of` are those in which classes lie, None for who lies in none.

    A ward that has closed makes what is known of places no better than a bound, as nobody comes before that. One that
    has opened makes all of it void (`forget`).
    """

    def __init__(self, keys: QueueKeys, jobs: Mapping[str, JobRecord], ward_of: Sequence[Ward | None]) -> None:
        super().__init__(keys, jobs)
        self._ward_of = ward_of
        self._lying: dict[int, dict[Ward, list[Entry]]] = {}

    def best(self, bring: Bring = nobody) -> Turn | None:
        """The turn that is next of those whose wards are open."""
        while (turn := super().best(bring)) is not None:
            place = self._offers[WHOLE][0][1]
            while not (lying := self._waiting_in(place, bring)) and self._offers.get(place):
                place = self._offers[place][0][1]
            if lying and lying[0][1] == turn[1]:
                return turn
            self._look_again(place)
        return None

    def _waiting_in(self, place: int, bring: Bring) -> list[Entry]:
        """What waits in a queue, in a heap: that of the open ward whose first comes before the others'."""
        lying = self._lying.get(place)
        if lying is None:
            lying = self._lying[place] = {}
            self._lay(lying, bring(place))
        if place in self._new:
            self._lay(lying, self._new.pop(place))
        first: list[Entry] = []
        for ward, entries in lying.items():
            if ward.is_open and entries and (not first or entries[0] < first[0]):
                first = entries
        return first

    def _lay(self, lying: dict[Ward, list[Entry]], entries: Iterable[Entry]) -> None:
        for entry in entries:
            ward = self._ward_of[entry[2]]
            # Who has got up since is put here again should it lie down once more.
            if ward is not None:
                heappush(lying.setdefault(ward, []), entry)

    def forget(self) -> None:
        """Of no place anything is known any more."""
        self._offers.clear()
        self._versions.clear()
        self._is_known = False
        self._popped = NOWHERE
