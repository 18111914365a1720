"""The two trees: physical cells, which are hardware, and virtual cells, which are what a virtual cluster owns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from phalanx.cluster.cells import LEAF_LEVEL, Chain
from phalanx.placement.cells.priority import FREE

if TYPE_CHECKING:
    from phalanx.placement.cells.group import Group
    from phalanx.placement.cells.trees.view import View

NOT_LISTED = -1


class PhysicalCell:
    """A piece of hardware.

    `lineage[level]` is the cell of that level this one lies in, itself included. Above a node `bad_nodes` counts; a
    cell inside a node is as healthy as the node.
    """

    __slots__ = (
        "address",
        "bad_nodes",
        "chain",
        "children",
        "guaranteed",
        "idle_children",
        "index",
        "is_split",
        "level",
        "lineage",
        "node_name",
        "opportunistic",
        "parent",
        "position",
        "priority",
        "reserving",
        "slot",
        "using",
        "view",
        "virtual",
    )

    def __init__(self, chain: Chain, level: int, address: str, parent: PhysicalCell | None) -> None:
        self.chain = chain
        self.level = level
        self.address = address
        self.parent = parent
        self.children: tuple[PhysicalCell, ...] = ()
        self.lineage: tuple[PhysicalCell | None, ...] = ()
        self.node_name = ""
        self.index = 0
        # The buddy system: whether its children are given out one by one, how many of them are free, and where in the
        # free list it stands.
        self.is_split = False
        self.idle_children = 0
        self.position = NOT_LISTED
        self.virtual: VirtualCell | None = None
        self.bad_nodes = 0
        # Leaves in it that opportunistic work has; a node also counts those that guaranteed work has.
        self.opportunistic = 0
        self.guaranteed = 0
        self.view: View[PhysicalCell] | None = None
        self.slot = 0
        # A leaf: the group that has it, and the one that will have it when that one has gone.
        self.priority = FREE
        self.using: Group | None = None
        self.reserving: Group | None = None

    @property
    def node(self) -> PhysicalCell:
        """The node this lies in; only for a node and what is in one."""
        node = self.lineage[self.chain.node_level]
        assert node is not None
        return node

    @property
    def is_in_node(self) -> bool:
        """Whether it lies in one node, or is one."""
        return self.level <= self.chain.node_level

    @property
    def is_healthy(self) -> bool:
        """Whether all of its hardware works."""
        return not (self.node if self.is_in_node else self).bad_nodes

    @property
    def is_idle(self) -> bool:
        """Whether the buddy system has it to give, on its own or as a part of a larger cell."""
        cell: PhysicalCell | None = self
        while cell is not None and cell.position == NOT_LISTED:
            if cell.is_split:
                return False
            cell = cell.parent
        return cell is not None

    @property
    def state(self) -> str:
        """A leaf's state, in HiveD's words."""
        if self.reserving is not None:
            return "Reserved" if self.using is None else "Reserving"
        return "Free" if self.using is None else "Used"

    def leaves(self) -> list[PhysicalCell]:
        """All leaves in it, in order."""
        if self.level == LEAF_LEVEL:
            return [self]
        return [leaf for child in self.children for leaf in child.leaves()]

    def __repr__(self) -> str:
        return f"<{self.chain.types[self.level]} {self.address}>"


class VirtualCell:
    """A cell that a virtual cluster owns, or a part of one. It is bound to hardware only while something uses it."""

    __slots__ = (
        "address",
        "bound_children",
        "chain",
        "children",
        "home",
        "is_pinned",
        "level",
        "lineage",
        "owner",
        "parent",
        "physical",
        "priority",
        "root",
        "slot",
        "used",
        "used_at",
        "view",
    )

    def __init__(self, owner: str, chain: Chain, level: int, address: str, parent: VirtualCell | None) -> None:
        self.owner = owner
        self.chain = chain
        self.level = level
        self.address = address
        self.parent = parent
        self.root: VirtualCell = self if parent is None else parent.root
        # The cell that placing sees as a node: a real one, or a whole smaller cell that is owned on its own.
        self.home: VirtualCell = self
        self.children: tuple[VirtualCell, ...] = ()
        self.lineage: tuple[VirtualCell | None, ...] = ()
        self.is_pinned = False
        self.physical: PhysicalCell | None = None
        self.bound_children = 0
        # Kept by roots and homes: leaves in use; homes also by priority.
        self.used = 0
        self.used_at: dict[int, int] = {}
        self.priority = FREE
        self.view: View[VirtualCell] | None = None
        self.slot = 0

    @property
    def leaf_count(self) -> int:
        """How many leaves it has."""
        return self.chain.leaves[self.level]

    def leaves(self) -> list[VirtualCell]:
        """All leaves in it, in order."""
        if self.level == LEAF_LEVEL:
            return [self]
        return [leaf for child in self.children for leaf in child.leaves()]

    def __repr__(self) -> str:
        return f"<{self.chain.types[self.level]} {self.address}>"
