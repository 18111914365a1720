"""Groups: gangs that have leaves, or are waiting for the groups that are in the way to go."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from phalanx.placement.cells.priority import GUARANTEED_MAX, OPPORTUNISTIC
from phalanx.placement.cells.request import Request
from phalanx.placement.cells.trees.cell import PhysicalCell, VirtualCell


class GroupState(StrEnum):
    """The life of a group, in HiveD's words."""

    ALLOCATED = "Allocated"
    PREEMPTING = "Preempting"
    BEING_PREEMPTED = "BeingPreempted"


class Seat:
    """The place of one pod: leaves of one node, and the virtual leaves they stand for.

    A leaf is None once a new configuration has no such hardware; node and indices stay, since the pod still runs
    there. `owned_types` are the types of the owned cells that the leaves are parts of: a new configuration looks for
    such cells.
    """

    __slots__ = ("indices", "leaves", "node", "owned_types", "virtual")

    def __init__(self, node: str, indices: list[int], owned_types: list[str]) -> None:
        self.node = node
        self.indices = indices
        self.owned_types = owned_types
        self.leaves: list[PhysicalCell | None] = [None] * len(indices)
        self.virtual: list[VirtualCell | None] | None = None

    @classmethod
    def of(cls, leaves: Sequence[PhysicalCell], virtual: Sequence[VirtualCell] | None) -> Seat:
        """A seat on some leaves."""
        types = [leaf.chain.types[leaf.root.level] for leaf in virtual] if virtual is not None else []
        seat = cls(leaves[0].node_name, [leaf.index for leaf in leaves], types)
        seat.leaves = list(leaves)
        seat.virtual = list(virtual) if virtual is not None else None
        return seat

    def unplaced(self) -> Seat:
        """The same seat with no hardware known for it."""
        return Seat(self.node, list(self.indices), list(self.owned_types))

    @property
    def size(self) -> int:
        """How many leaves the pod has."""
        return len(self.indices)


class Group:
    """A gang with its seats. `serial` orders groups by when they came."""

    __slots__ = ("chain", "lazily_preempted_by", "request", "seats", "serial", "state")

    def __init__(self, request: Request, chain: str, seats: list[Seat], state: GroupState, serial: int) -> None:
        self.request = request
        self.chain = chain
        self.seats = seats
        self.state = state
        self.serial = serial
        self.lazily_preempted_by: str = ""

    @property
    def name(self) -> str:
        """Its name."""
        return self.request.group

    @property
    def is_guaranteed(self) -> bool:
        """Whether it stands on cells of its own virtual cluster. Lazy preemption ends that."""
        return not self.request.is_opportunistic and not self.lazily_preempted_by

    @property
    def priority(self) -> int:
        """The priority at which it holds its leaves now."""
        if not self.is_guaranteed:
            return OPPORTUNISTIC
        return GUARANTEED_MAX if self.request.is_kept else self.request.priority

    def pairs(self) -> list[tuple[PhysicalCell, VirtualCell | None]]:
        """Its leaves, each with the virtual leaf it stands for, seat by seat."""
        pairs: list[tuple[PhysicalCell, VirtualCell | None]] = []
        for seat in self.seats:
            for i, leaf in enumerate(seat.leaves):
                if leaf is not None:
                    pairs.append((leaf, seat.virtual[i] if seat.virtual is not None else None))
        return pairs

    def leaves(self) -> list[PhysicalCell]:
        """Its leaves, seat by seat."""
        return [leaf for seat in self.seats for leaf in seat.leaves if leaf is not None]
