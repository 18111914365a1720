"""Packing: which of the nodes that fit is best. Scores are named, and nodes of equal score stand in one set."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from phalanx.cluster.capacity import Capacity

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

    All that is scored depends on how many GPUs a node has free, so nodes are ranked a set at a time.
    """

    _orders: dict[tuple[int, int], tuple[int, ...]] = field(default_factory=dict)

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
