"""Baselines: the packings ours is compared with. They choose nodes one by one and know nothing of racks.

Each is the same search on the same engine with other preferences. Where a gang must lie in one rack, racks are tried
in the baseline's own order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from random import Random

from phalanx.cluster.bits import members
from phalanx.cluster.capacity import Capacity
from phalanx.cluster.topology import Domain
from phalanx.placement.packings import NodeByNode, Tight


@dataclass(slots=True)
class BestFit(Tight):
    """The node, or rack, with the fewest free GPUs that still fits; an empty node is like any other."""

    def rooms(self, tightest_first: Iterable[Domain], capacity: Capacity) -> Iterable[Domain]:
        """Fewest free GPUs first."""
        return sorted(tightest_first, key=lambda domain: (capacity.free_gpus(domain.nodes), domain.index))


@dataclass(slots=True)
class WholeFromLast(BestFit):
    """Best-fit that takes the highest number of empty nodes, not the lowest, for whole nodes: neither better nor
    worse. Were all nodes taken so, each run would be the mirror image of best-fit's.
    """

    def ranked(self, capacity: Capacity, gpus: int, nodes: int) -> Iterator[int]:
        """As best-fit has it; of empty nodes one by one."""
        for alike in BestFit.ranked(self, capacity, gpus, nodes):
            if gpus < capacity.gpus_max:
                yield alike
            else:
                yield from (capacity.topology.bit[node] for node in reversed(list(members(alike))))


@dataclass(slots=True)
class FirstFit(NodeByNode):
    """The lowest number that fits."""

    def ranked(self, capacity: Capacity, gpus: int, nodes: int) -> Iterator[int]:
        """All that fit, as one set: its lowest member is taken."""
        fitting = nodes & sum(capacity.with_free[gpus:])
        if fitting:
            yield fitting

    def rooms(self, tightest_first: Iterable[Domain], capacity: Capacity) -> Iterable[Domain]:
        """In the order of the tree."""
        return sorted(tightest_first, key=lambda domain: domain.index)


@dataclass(slots=True)
class AnyFit(NodeByNode):
    """One at random of those that fit."""

    rng: Random = field(default_factory=lambda: Random(0))

    def ranked(self, capacity: Capacity, gpus: int, nodes: int) -> Iterator[int]:
        """In random order."""
        fitting = list(members(nodes & sum(capacity.with_free[gpus:])))
        self.rng.shuffle(fitting)
        for node in fitting:
            yield capacity.topology.bit[node]

    def rooms(self, tightest_first: Iterable[Domain], capacity: Capacity) -> Iterable[Domain]:
        """In random order."""
        shuffled = list(tightest_first)
        self.rng.shuffle(shuffled)
        return shuffled
