"""Wards: sleepers who need the same, of all queues; they are looked at one by one once there is enough for them.

When somebody leaves more than is needed, thousands could have it and one gets it. So nobody is woken for that: while
there is too little for its members, a ward is closed and costs nothing; while it is open, its members are drawn in the
order of the line, each only when its turn has come. Where only what a queue keeps for itself would do, only members of
such queues are looked at.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from phalanx.engine.demand import Demand
from phalanx.engine.heads import Entry, Heads
from phalanx.engine.queue_tree import QueueTree
from phalanx.engine.quotas import Most, Quotas
from phalanx.placement.fit import Ask

KINDS_MAX = 64
"""Wards of one decision. All are looked at whenever levels change, so whoever needs something rarer sleeps alone."""


class Levels(NamedTuple):
    """GPUs that are free or will be once those have left who leave, those that are free, and what the pool has left."""

    free_soon: int
    free: int
    pool: Most


class Ward:
    """Members of one need: the GPUs they cannot start without, what they take of quotas, and what tasks ask of nodes.

    `limited` are those of queues with limits: what these may have does not follow from what the pool has. `in_line` and
    `not_in_line` are those who are about to be let in.
    """

    def __init__(self, demand: Demand, limited: bool, tree: QueueTree) -> None:
        self.demand = demand
        self.gpus, self.need, self.asks = demand.gpus, demand.need, demand.asks
        self.limited = limited
        self.tree = tree
        self.resting: dict[int, None] = {}
        self.in_line: list[int] = []
        self.not_in_line: list[int] = []
        self.count = 0
        self.is_narrow = False

    def is_covered(self, pool: Sequence[int]) -> bool:
        """Whether the pool has what a member needs."""
        gpus, cpus, memory = self.need
        return gpus <= pool[0] and cpus <= pool[1] and memory <= pool[2]


class Wards:
    """Those of a decision. `sees_room` says of what tasks ask whether a node may have room where something grew.

    `open` are those that were open when there was as much as `levels` says; None, and that is to be found out anew.
    """

    def __init__(
        self,
        quotas: Quotas,
        heads: Heads,
        entry: Callable[[int], Entry],
        in_queue: Callable[[str], list[int]],
        sees_room: Callable[[tuple[Ask, ...]], bool],
    ) -> None:
        self.quotas = quotas
        self.heads = heads
        self._entry = entry
        self._in_queue = in_queue
        self._sees_room = sees_room
        self._wards: dict[tuple[Demand, bool], Ward] = {}
        self._ward_of: dict[int, Ward] = {}
        self._kept: list[tuple[int, str]] = []
        self._kept_by: dict[str, int] = {}
        self.levels: Levels | None = None
        self.open: list[Ward] = []

    def ward(self, kind: tuple[Demand, bool]) -> Ward | None:
        """That of a demand, in queues with limits or without; None if there are too many already."""
        found = self._wards.get(kind)
        if found is None and len(self._wards) < KINDS_MAX:
            found = self._wards[kind] = Ward(*kind, self.heads.beside())
        return found

    def put(self, ward: Ward, i: int, in_line: bool) -> None:
        """Lets a class sleep in a ward; `in_line` says that its turn is still to come."""
        self._ward_of[i] = ward
        ward.count += 1
        if in_line:
            ward.tree.push(self._entry(i))
        else:
            ward.resting[i] = None
        self.levels = None

    def let_in(self) -> None:
        """Takes in all who have come into wards at once; who is in line is in the tree of its ward already."""
        for ward in self._wards.values():
            coming = dict.fromkeys((*ward.in_line, *ward.not_in_line), ward)
            self._ward_of.update(coming)
            ward.count += len(coming)
            ward.resting.update(dict.fromkeys(ward.not_in_line))
            ward.in_line.clear()
            ward.not_in_line.clear()
        self.levels = None

    def take(self, i: int) -> None:
        """Has a class leave its ward, if it is in one."""
        ward = self._ward_of.pop(i, None)
        if ward is not None:
            ward.count -= 1
            ward.resting.pop(i, None)

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self._wards)

    def of(self, i: int) -> Ward | None:
        """The ward that a class sleeps in; None if it is in none."""
        return self._ward_of.get(i)

    def __iter__(self) -> Iterator[Ward]:
        return iter(self._wards.values())

    def look_anew(self, are_back: Callable[[Ward], bool]) -> None:
        """Something has grown: whether wards are open is to be found out anew, and who of narrow ones is helped.

        Of which wards all stand in line from now on is told by `are_back`.
        """
        self.levels = None
        for ward in self._wards.values():
            ward.is_narrow = False
            if ward.resting and are_back(ward):
                ward.tree.add([self._entry(i) for i in ward.resting])
                ward.resting.clear()

    def open_up(self, levels: Levels) -> None:
        """Finds those of whose members some would not simply be refused again."""
        self.levels = levels
        self.open = [ward for ward in self._wards.values() if ward.count and self._is_open(ward, levels)]

    def _is_open(self, ward: Ward, levels: Levels) -> bool:
        if levels.free_soon < ward.gpus:
            return False
        if ward.limited:
            return True
        if ward.is_covered(levels.pool):
            return self._sees_room(ward.asks)
        # What may not be had for lack of quota is told so, while there are GPUs.
        return levels.free >= ward.gpus

    def narrow(self, levels: Levels) -> Iterator[int]:
        """Members that may have what they need by what their queues keep, where the pool has too little; each once,
        until something grows.
        """
        for ward in self._wards.values():
            is_narrow = not ward.limited and levels.free < ward.gpus <= levels.free_soon
            if not is_narrow or ward.is_narrow or ward.is_covered(levels.pool):
                continue
            if ward.count and self._sees_room(ward.asks):
                ward.is_narrow = True
                for queue in self._keeping(ward.need[0] - levels.pool[0]):
                    yield from (i for i in self._in_queue(queue) if self._ward_of.get(i) is ward)

    def _keeping(self, least: int) -> list[str]:
        """Queues that may have so much without the pool."""
        if not self._kept:
            for queue in self.quotas.accounts:
                if queue:
                    self._keep(queue)
        return [queue for _, queue in self._kept[bisect_left(self._kept, (least, "")) :]]

    def note(self, touched: Iterable[str]) -> None:
        """Takes note that queues have got or lost something."""
        for queue in touched:
            if queue in self._kept_by:
                self._keep(queue)

    def _keep(self, queue: str) -> None:
        """What a queue has left of what it keeps; of those it lies in all that they keep is counted, used or not."""
        trail = self.quotas.accounts[queue].trail
        kept = max(trail[-1].kept[0] - trail[-1].drawn[0], 0) + sum(max(each.kept[0], 0) for each in trail[1:-1])
        before = self._kept_by.get(queue)
        if before != kept:
            if before is not None:
                del self._kept[bisect_left(self._kept, (before, queue))]
            self._kept_by[queue] = kept
            insort(self._kept, (kept, queue))
