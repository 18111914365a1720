"""What the cells look like to people: groups and cells in HiveD's words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from phalanx.cluster.cells import LEAF_LEVEL, CellError
from phalanx.placement.cells.group import Group
from phalanx.placement.cells.priority import FREE, OPPORTUNISTIC
from phalanx.placement.cells.trees.cell import PhysicalCell, VirtualCell
from phalanx.placement.cells.trees.estate import Estate, Pool

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
    is_doomed: bool = False
    children: tuple[CellStatus, ...] = ()

    @property
    def is_healthy(self) -> bool:
        """Whether all hardware it is bound to works."""
        return self.healthiness == HEALTHY


@dataclass(frozen=True, slots=True)
class Shapes:
    """What of a pool is free, in shapes: `fits` says how many pods of each size could start now without preemption.

    `fragmentation` is the share of the free leaves that pods of a whole node cannot use.
    """

    chain: str
    leaves: int
    free_leaves: int
    fits: dict[int, int]
    fragmentation: float


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    """A virtual cluster: its cells, and the free shapes in its pools. Going through it goes through the cells."""

    name: str
    cells: tuple[CellStatus, ...]
    shapes: tuple[Shapes, ...]

    def __iter__(self) -> Iterator[CellStatus]:
        return iter(self.cells)

    def __len__(self) -> int:
        return len(self.cells)

    def __getitem__(self, number: int) -> CellStatus:
        return self.cells[number]

    @property
    def owned(self) -> tuple[CellStatus, ...]:
        """The cells it owns."""
        return tuple(cell for cell in self.cells if not cell.is_opportunistic)

    @property
    def bad_cells(self) -> tuple[CellStatus, ...]:
        """Owned cells with hardware that does not work."""
        return tuple(cell for cell in self.owned if not cell.is_healthy)

    @property
    def doomed_bad_cells(self) -> tuple[CellStatus, ...]:
        """Owned cells that nothing uses and that could only be had broken now."""
        return tuple(cell for cell in self.bad_cells if cell.is_doomed)


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


def cluster_status(estate: Estate, name: str) -> ClusterStatus:
    """The cells that a virtual cluster owns, then the leaves that its opportunistic groups use."""
    if name not in estate.clusters:
        known = ", ".join(estate.clusters) or "none"
        raise CellError(f"there is no virtual cluster '{name}' (there are: {known})")
    doomed = {
        root.address: None for state in estate.chains.values() for roots in state.doomed.values() for root in roots
    }
    owned = [
        replace(_virtual_status(root, is_bad=False), is_doomed=root.address in doomed)
        for root in estate.clusters[name].roots()
    ]
    borrowed = [
        _borrowed_status(leaf)
        for group in sorted(estate.groups.values(), key=lambda group: group.serial)
        if group.request.virtual_cluster == name and not group.is_guaranteed
        for leaf in group.leaves()
        if leaf.reserving is None
    ]
    cluster = estate.clusters[name]
    shapes = tuple(_shapes(pool) for pool in [*cluster.pools.values(), *cluster.pinned.values()])
    return ClusterStatus(name, (*owned, *borrowed), shapes)


def _shapes(pool: Pool) -> Shapes:
    """Every home takes as many pods of a size as fit its room, whatever the other homes hold."""
    room = {size: count for size, count in pool.view.room().items() if size}
    free = sum(size * count for size, count in room.items())
    sizes = dict.fromkeys(pool.chain.leaves[level] for level in range(1, pool.chain.node_level + 1))
    fits = {size: sum(count * (home // size) for home, count in room.items()) for size in sizes}
    largest = pool.largest_home
    return Shapes(
        pool.chain.name,
        pool.leaf_count,
        free,
        fits,
        1 - sum(count * (home // largest) * largest for home, count in room.items()) / free if free else 0.0,
    )


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
