"""Wards: kinds of waiting jobs of all queues that are placed alike, looked at one by one while there may be room for
them.

Somebody who leaves may help thousands, and one gets what is left. So nobody is tried for that: while there is too
little for its members, or no place for one of them, a ward is closed and costs nothing; while it is open, its members
are drawn in the order of the line. Where the pool of the cluster has too little for them, only members of queues that
keep enough for themselves are looked at.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from phalanx.engine.demand import Demand
from phalanx.engine.draft import Draft
from phalanx.engine.quotas import Most, Quotas
from phalanx.engine.state import State
from phalanx.engine.ward import Ward
from phalanx.engine.ward_tree import WardTree

KINDS_MAX = 64
"""Wards of one decision. All are looked at whenever levels change, so whoever needs something rarer has none."""


class Levels(NamedTuple):
    """GPUs that are free or will be once those have left who leave, and what the pool has left."""

    free_soon: int
    pool: Most


class Wards:
    """Those of a decision, and the tree of all who lie in them."""

    def __init__(self, state: State, draft: Draft, tree: WardTree) -> None:
        self.state = state
        self.draft = draft
        self.tree = tree
        self._wards: tuple[dict[Demand, Ward], dict[Demand, Ward]] = ({}, {})
        self._every: list[Ward] = []
        self._kept: list[tuple[int, str]] = []
        self._kept_by: dict[str, int] = {}
        self._levels: Levels | None = None
        self._soon = self._free_soon()

    def __iter__(self) -> Iterator[Ward]:
        return iter(self._every)

    def of(self, limited: bool) -> Mapping[Demand, Ward]:
        """Those of queues with limits, or without, by what members need."""
        return self._wards[limited]

    def ward(self, demand: Demand, limited: bool) -> Ward | None:
        """That of a demand, in queues with limits or without; None if there are too many already."""
        found = self._wards[limited].get(demand)
        if found is None and len(self._every) < KINDS_MAX:
            found = self._wards[limited][demand] = Ward(demand, limited)
            self._every.append(found)
            self._levels = None
        return found

    def close(self, demand: Demand) -> None:
        """One of a demand was refused, so that all others of it would be, until something grows."""
        for wards in self._wards:
            ward = wards.get(demand)
            if ward is not None:
                ward.is_open, ward.full, ward.looked = False, True, len(self.draft.grown)

    def look_anew(self) -> None:
        """Something has grown: where that may help them, members may be tried anew."""
        self._soon = self._free_soon()
        self.widen()
        for ward in self._every:
            if ward.full:
                grown = 0
                for nodes in self.draft.grown[ward.looked :]:
                    grown |= nodes
                ward.full = not grown & self._may_take(ward.demand)

    def widen(self) -> None:
        """Has who may have what it needs of what its queue keeps be looked for anew."""
        self._levels = None
        for ward in self._every:
            ward.narrow = False

    def open_up(self, levels: Levels) -> bool:
        """Finds those that are open now; whether that was to be found out."""
        if levels == self._levels:
            return False
        self._levels = levels
        opens = [ward for ward in self._every if self._may_place(ward, levels) and _may_have(ward, levels)]
        if not all(ward.is_open for ward in opens):
            self.tree.forget()
        for ward in self._every:
            ward.is_open = ward in opens
        return True

    @property
    def is_any_open(self) -> bool:
        """Whether anybody may lie in an open ward."""
        return any(ward.is_open for ward in self._every)

    def _may_place(self, ward: Ward, levels: Levels) -> bool:
        return not ward.full and ward.demand.gpus <= levels.free_soon and bool(self._may_take(ward.demand))

    def narrow(self, levels: Levels) -> Iterator[tuple[Ward, str]]:
        """Wards for whose members the pool has too little, and queues that may keep enough; each once, until something
        grows.
        """
        for ward in self._every:
            if not ward.narrow and not _may_have(ward, levels) and self._may_place(ward, levels):
                ward.narrow = True
                for queue in self._keeping(ward.need[0] - levels.pool[0]):
                    if queue not in ward.standing:
                        yield ward, queue

    def _may_take(self, demand: Demand) -> int:
        """Nodes that may have the GPUs of the smallest task: a quick look."""
        if not demand.least:
            return demand.reach
        found = self._soon[demand.least] if demand.least < len(self._soon) else 0
        for having in self.state.capacity.with_free[demand.least :]:
            found |= having
        return found & demand.reach

    def _free_soon(self) -> list[int]:
        """For every number of GPUs, the nodes that have so many once those have left who leave."""
        capacity, bit = self.state.capacity, self.state.topology.bit
        left: dict[int, int] = {}
        for attempt in self.draft.leaving.values():
            for booking in attempt.bookings:
                # Of devices that are shared it is not told that they are ceded; all who share them may be leaving.
                shared = booking.devices if booking.portion is not None else 0
                left[booking.node] = left.get(booking.node, 0) | shared
        found = [0] * (capacity.gpus_max + 2)
        for node, shared in left.items():
            soon = capacity.free[node] | (capacity.ceding[node] | shared) & ~capacity.claimed[node]
            found[soon.bit_count()] |= bit[node]
        for gpus in range(len(found) - 2, -1, -1):
            found[gpus] |= found[gpus + 1]
        return found

    def _keeping(self, least: int) -> list[str]:
        """Queues that may have so much without the pool."""
        quotas = self.state.quotas
        if not self._kept:
            for queue in quotas.accounts:
                if queue:
                    self._keep(quotas, queue)
        return [queue for _, queue in self._kept[bisect_left(self._kept, (least, "")) :]]

    def note(self, touched: Iterable[str]) -> None:
        """Takes note that queues have got or lost something."""
        for queue in touched:
            if queue in self._kept_by:
                self._keep(self.state.quotas, queue)

    def _keep(self, quotas: Quotas, queue: str) -> None:
        """What a queue has left of what it keeps; of those it lies in all that they keep is counted, used or not."""
        trail = quotas.accounts[queue].trail
        kept = max(trail[-1].kept[0] - trail[-1].drawn[0], 0) + sum(max(each.kept[0], 0) for each in trail[1:-1])
        before = self._kept_by.get(queue)
        if before != kept:
            if before is not None:
                del self._kept[bisect_left(self._kept, (before, queue))]
            self._kept_by[queue] = kept
            insort(self._kept, (kept, queue))


def _may_have(ward: Ward, levels: Levels) -> bool:
    """Whether members may have what they need, whatever their queues keep; those with limits are asked one by one."""
    return ward.limited or ward.is_covered(levels.pool)
