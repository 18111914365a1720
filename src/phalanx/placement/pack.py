"""Packing: which of the nodes that fit is best. Nodes of equal score stand in one set."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from phalanx.cluster.bits import members, span
from phalanx.cluster.capacity import Capacity
from phalanx.cluster.topology import Domain
from phalanx.workload.job import Job

RANGE_SMALL = 64
"""Nodes up to which listing a range is cheaper than intersecting sets as long as the cluster."""


@dataclass(slots=True)
class Packing:
    """Partly used nodes first, so that empty nodes stay whole.

    Among partly used nodes the *busiest* is best, the one with the most tasks: it stays in use until the last of them
    ends, and the more there are the longer that takes, whereas one with few tasks is soon whole again. Among equally
    busy ones, those that would be left *even* come first: pairs and fours do not fit 1, 3, 5 or 7 free GPUs. Then, and
    among empty nodes, the *tightest* is best. Of what is equal in all that, the lowest number is taken.

    All of it depends on how many tasks a node has and how many GPUs are free, so nodes are ranked a set at a time.
    Every choice among places that fit is made here; what fits, and that the whole gang does, is for the search.
    """

    def begin(self, job: Job) -> None:
        """A job is about to be placed."""

    @property
    def one_by_one(self) -> bool:
        """Whether each task of a gang takes the best node for itself, instead of filling nodes together."""
        return False

    @property
    def keeps_types(self) -> bool:
        """Whether a gang goes to GPUs of one type where one type holds it: together it runs as fast as the slowest."""
        return True

    def ranked(self, capacity: Capacity, gpus: int, nodes: int) -> Iterator[int]:
        """Sets of nodes that have `gpus` free, the best set first."""
        if not nodes:
            return
        # An even rest before an odd one, and of each the smallest first.
        frees = (*range(gpus, capacity.gpus_max + 1, 2), *range(gpus + 1, capacity.gpus_max + 1, 2))
        for by_free in reversed(capacity.in_use):
            for free in frees:
                having = by_free[free]
                if having:
                    best = nodes & having
                    if best:
                        yield best
        idle = nodes & capacity.idle
        if idle:
            for having in capacity.with_free[gpus:]:
                tightest = idle & having
                if tightest:
                    yield tightest

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
