"""Nodes by how much of them is in use, so that the best one is found without looking at all."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

from phalanx.placement.cells.trees.cell import PhysicalCell, VirtualCell
from phalanx.placement.cells.trees.undo import Undo

Cell = TypeVar("Cell", PhysicalCell, VirtualCell)

Rank = tuple[int, int]
"""What orders nodes, smaller first; nodes of one rank stand in the order of the site."""


class View(Generic[Cell]):
    """Nodes in buckets of equal rank and equal room. A bucket is an integer with a bit for each node."""

    __slots__ = ("_buckets", "_undo", "in_use_at", "nodes")

    def __init__(self, nodes: list[Cell], undo: Undo) -> None:
        self.nodes: list[Cell] = nodes
        self.in_use_at: dict[int, int] = {}
        self._undo = undo
        self._buckets: dict[tuple[Rank, int], int] = {}
        for slot, node in enumerate(nodes):
            node.view = self
            node.slot = slot
            key = key_of(node)
            self._buckets[key] = self._buckets.get(key, 0) | 1 << slot

    def move(self, slot: int, old: tuple[Rank, int], new: tuple[Rank, int]) -> None:
        """A node's rank and room have changed."""
        if old != new:
            self._move(slot, old, new)
            self._undo.did(self._move, slot, new, old)

    def _move(self, slot: int, old: tuple[Rank, int], new: tuple[Rank, int]) -> None:
        rest = self._buckets[old] & ~(1 << slot)
        if rest:
            self._buckets[old] = rest
        else:
            del self._buckets[old]
        self._buckets[new] = self._buckets.get(new, 0) | 1 << slot

    def count(self, priority: int, more: int) -> None:
        """So many more leaves of the view are in use at a priority."""
        self._undo.put(self.in_use_at, priority, self.in_use_at.get(priority, 0) + more)

    def in_use_below(self, priority: int) -> int:
        """Leaves of the view in use at lower priorities."""
        return sum(count for at, count in self.in_use_at.items() if at < priority)

    def with_room(self, least: int) -> Iterator[Cell]:
        """Nodes with at least so many free leaves, best rank first."""
        ranked: dict[Rank, int] = {}
        for (rank, room), bits in self._buckets.items():
            if room >= least:
                ranked[rank] = ranked.get(rank, 0) | bits
        for rank in sorted(ranked):
            bits = ranked[rank]
            while bits:
                lowest = bits & -bits
                yield self.nodes[lowest.bit_length() - 1]
                bits ^= lowest

    def room(self) -> dict[int, int]:
        """How many nodes have how many free leaves."""
        counts: dict[int, int] = {}
        for (_, room), bits in self._buckets.items():
            counts[room] = counts.get(room, 0) + bits.bit_count()
        return counts

    def ranks(self) -> dict[tuple[Rank, int], int]:
        """The buckets as they are, for checking."""
        return dict(self._buckets)


def key_of(cell: PhysicalCell | VirtualCell) -> tuple[Rank, int]:
    """The rank and room of a node.

    A virtual cluster packs: fewest free leaves first, whatever the priorities. Opportunistic work packs among its own
    kind and stays away from guaranteed work, which would sooner or later want the rest of the node.
    """
    size = cell.chain.leaves[cell.level]
    if isinstance(cell, VirtualCell):
        return (size - cell.used, 0), size - cell.used
    return (-cell.opportunistic, cell.guaranteed), size - cell.opportunistic - cell.guaranteed
