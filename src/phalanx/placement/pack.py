"""Packing: which of the nodes that fit is best. Scores are named, and nodes of equal score stand in one set."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from phalanx.cluster.bits import lowest, members, span
from phalanx.cluster.capacity import Capacity
from phalanx.cluster.topology import Domain
from phalanx.workload.job import Job

RANGE_SMALL = 64
"""Nodes up to which listing a range is cheaper than intersecting sets as long as the cluster."""

ODD_PENALTY = 2
"""A node left with 1, 3, 5 or 7 free GPUs counts as two GPUs worse: pairs and fours no longer fit it."""


def tight(free: int, gpus: int) -> int:
    """Free GPUs left over: fewer are better."""
    return free - gpus


def even(free: int, gpus: int) -> int:
    """What an odd rest costs."""
    return ODD_PENALTY * ((free - gpus) % 2)


SCORES = {"tight": tight, "even": even}


@dataclass(slots=True)
class Packing:
    """Partly used nodes first, so that empty nodes stay whole; among them the least score, then the lowest number.

    All that is scored depends on how many GPUs a node has free, so nodes are ranked a set at a time. Every choice
    among places that fit is made here; what fits, and that the whole gang does, is for the search.
    """

    _orders: dict[tuple[int, int], tuple[int, ...]] = field(default_factory=dict)

    def begin(self, job: Job) -> None:
        """A job is about to be placed."""

    @property
    def one_by_one(self) -> bool:
        """Whether each task of a gang takes the best node for itself, instead of filling nodes together."""
        return False

    def order(self, gpus: int, gpus_max: int) -> tuple[int, ...]:
        """Free counts from the best to the worst for a task of `gpus`."""
        key = (gpus, gpus_max)
        found = self._orders.get(key)
        if found is None:
            counts = range(gpus, gpus_max + 1)
            found = tuple(sorted(counts, key=lambda free: sum(score(free, gpus) for score in SCORES.values())))
            self._orders[key] = found
        return found

    def ranked(self, capacity: Capacity, gpus: int, nodes: int) -> Iterator[int]:
        """Sets of nodes that have `gpus` free, the best set first."""
        if not nodes & (nodes - 1):
            if nodes and capacity.free[lowest(nodes)].bit_count() >= gpus:
                yield nodes
            return
        order = self.order(gpus, capacity.gpus_max)
        idle = nodes & capacity.idle
        used = nodes ^ idle
        if used:
            for free in order:
                found = used & capacity.with_free[free]
                if found:
                    yield found
        if idle:
            for free in order:
                found = idle & capacity.with_free[free]
                if found:
                    yield found

    def levels(self, outward: tuple[str, ...]) -> tuple[str, ...]:
        """Which of the levels that would do are tried, in turn: all, from the tightest."""
        return outward

    def rooms(self, tightest_first: Iterable[Domain], capacity: Capacity) -> Iterable[Domain]:
        """Domains with room for a gang, the best first: the tightest."""
        return tightest_first

    def filling(self, capacity: Capacity, gpus: int, nodes: int, first: int, last: int) -> Iterator[int]:
        """Nodes from `first` up to `last` in the order in which a gang of tasks fills them: the emptiest first."""
        if last - first <= RANGE_SMALL:
            here = [first + i for i in members(nodes >> first & (1 << last - first) - 1)]
            if gpus and len(here) > 1:
                here.sort(key=lambda node: -capacity.free[node].bit_count())
            yield from here
            return
        if last - first < len(capacity.topology.nodes):
            nodes &= span(first, last)
        for free in range(capacity.gpus_max, gpus - 1, -1) if gpus else range(capacity.gpus_max + 1):
            yield from members(nodes & capacity.with_free[free])
