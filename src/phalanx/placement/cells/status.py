"""What the cells look like to people: groups and cells in HiveD's words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from phalanx.placement.cells.cell import FREE, OPPORTUNISTIC, PhysicalCell, VirtualCell
from phalanx.placement.cells.estate import Estate
from phalanx.placement.cells.group import Group
from phalanx.workload.cells import LEAF_LEVEL, CellError

HEALTHY, BAD = "Healthy", "Bad"


@dataclass(frozen=True, slots=True)
class GroupStatus:
    """A group: `state` is Allocated, Preempting or BeingPreempted; `nodes` maps nodes to indices of leaves.

    `virtual_cells` maps owned cells to the leaves of them that it uses; it is None for opportunistic work, and for a
    group that was preempted lazily, by `lazily_preempted_by`.
    """

    name: str
    virtual_cluster: str
    priority: int
    state: str
    nodes: dict[str, list[int]]
    virtual_cells: dict[str, list[str]] | None
    pods: tuple[str, ...]
    preempting_pods: tuple[str, ...]
    lazily_preempted_by: str = ""

    @property
    def is_lazily_preempted(self) -> bool:
        """Whether it has lost its guarantee and runs on."""
        return bool(self.lazily_preempted_by)


@dataclass(frozen=True, slots=True)
class CellStatus:
    """A virtual cell and all in it. `state` is Free, Used, Reserving or Reserved; `physical` is empty while unbound."""

    type: str
    address: str
    state: str
    healthiness: str
    priority: int
    physical: str
    is_node: bool
    is_opportunistic: bool
    children: tuple[CellStatus, ...] = ()

    @property
    def is_healthy(self) -> bool:
        """Whether all hardware it is bound to works."""
        return self.healthiness == HEALTHY


def group_status(group: Group, pods: Sequence[str], preempting_pods: Sequence[str]) -> GroupStatus:
    """A group as people see it."""
    nodes: dict[str, list[int]] = {}
    owned: dict[str, list[str]] = {}
    for seat in group.seats:
        nodes.setdefault(seat.node, []).extend(seat.indices)
        for leaf in seat.virtual or ():
            if leaf is not None:
                owned.setdefault(leaf.root.address, []).append(leaf.address)
    return GroupStatus(
        group.name,
        group.request.virtual_cluster,
        group.request.priority,
        group.state.value,
        nodes,
        owned if group.is_guaranteed else None,
        tuple(pods),
        tuple(preempting_pods),
        group.lazily_preempted_by,
    )


def cluster_status(estate: Estate, name: str) -> tuple[CellStatus, ...]:
    """The cells that a virtual cluster owns, then the leaves that its opportunistic groups use."""
    if name not in estate.clusters:
        known = ", ".join(estate.clusters) or "none"
        raise CellError(f"there is no virtual cluster '{name}' (there are: {known})")
    owned = [_virtual_status(root, is_bad=False) for root in estate.clusters[name].roots()]
    borrowed = [
        _borrowed_status(leaf)
        for group in sorted(estate.groups.values(), key=lambda group: group.serial)
        if group.request.virtual_cluster == name and not group.is_guaranteed
        for leaf in group.leaves()
        if leaf.reserving is None
    ]
    return (*owned, *borrowed)


def _virtual_status(cell: VirtualCell, is_bad: bool) -> CellStatus:
    """A cell in a broken node is broken whether or not it is bound itself."""
    physical = cell.physical
    is_bad = is_bad or (physical is not None and not physical.is_healthy)
    inside_is_bad = is_bad and physical is not None and physical.is_in_node
    children = tuple(_virtual_status(child, inside_is_bad) for child in cell.children)
    if cell.level == LEAF_LEVEL:
        held = physical is not None and cell.priority != FREE
        state, priority = physical.state if held and physical is not None else "Free", cell.priority
    else:
        states = {child.state for child in children}
        state = "Used" if "Used" in states else min(states) if len(states) == 1 else "Free"
        priority = max(child.priority for child in children)
    return CellStatus(
        cell.chain.types[cell.level],
        cell.address,
        state,
        BAD if is_bad else HEALTHY,
        priority,
        physical.address if physical is not None else "",
        cell.level == cell.chain.node_level,
        is_opportunistic=False,
        children=children,
    )


def _borrowed_status(leaf: PhysicalCell) -> CellStatus:
    return CellStatus(
        leaf.chain.leaf_type,
        f"{leaf.address}-opp",
        leaf.state,
        HEALTHY if leaf.is_healthy else BAD,
        OPPORTUNISTIC,
        leaf.address,
        is_node=False,
        is_opportunistic=True,
    )
