"""Cells as plain data and back: what a snapshot keeps, and what a fork starts from.

All that follows from the rest (counts, buckets, what is owed) is worked out anew; what does not is written down: the
order of the free lists, the bindings, which group holds what, and which nodes are broken.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from phalanx.cluster.cells import CellSite
from phalanx.placement.cells.cells import Cells
from phalanx.placement.cells.group import Group, GroupState, Seat
from phalanx.placement.cells.hold import count
from phalanx.placement.cells.request import Request
from phalanx.placement.cells.trees.cell import NOT_LISTED, PhysicalCell, VirtualCell
from phalanx.placement.cells.trees.estate import ChainState, Estate


@dataclass(frozen=True, slots=True)
class SeatMemory:
    """A seat; `chains` has an empty name for a leaf that is gone, `virtual` is None without guarantee."""

    node: str
    indices: tuple[int, ...]
    owned_types: tuple[str, ...]
    chains: tuple[str, ...]
    virtual: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class GroupMemory:
    """A group and its seats."""

    request: Request
    chain: str
    seats: tuple[SeatMemory, ...]
    state: str
    serial: int
    lazily_preempted_by: str


@dataclass(frozen=True, slots=True)
class ChainMemory:
    """A chain: addresses of free cells by level, bindings as pairs, broken nodes, doomed cells by owner and level."""

    free: tuple[tuple[str, ...], ...]
    bound: tuple[tuple[str, str], ...]
    bad: tuple[str, ...]
    doomed: tuple[tuple[str, int, tuple[str, ...]], ...]


@dataclass(frozen=True, slots=True)
class CellsMemory:
    """All that is known of the cells of a site."""

    site: CellSite
    chains: dict[str, ChainMemory]
    groups: tuple[GroupMemory, ...]
    serial: int


def remember(cells: Cells) -> CellsMemory:
    """The cells as plain data."""
    estate = cells.estate
    chains = {name: _chain(state) for name, state in estate.chains.items()}
    return CellsMemory(estate.site, chains, tuple(_group(group) for group in cells.groups()), estate.serial)


def _chain(state: ChainState) -> ChainMemory:
    bound = [(cell.virtual.address, cell.address) for cell in _all(state) if cell.virtual is not None]
    doomed = [
        (owner, level, tuple(root.address for root in roots)) for (owner, level), roots in state.doomed.items() if roots
    ]
    free = tuple(tuple(cell.address for cell in cells) for cells in state.buddies.lists)
    return ChainMemory(free, tuple(bound), tuple(sorted(state.bad)), tuple(doomed))


def _group(group: Group) -> GroupMemory:
    seats = tuple(
        SeatMemory(
            seat.node,
            tuple(seat.indices),
            tuple(seat.owned_types),
            tuple(leaf.chain.name if leaf is not None else "" for leaf in seat.leaves),
            None if seat.virtual is None else tuple(leaf.address if leaf is not None else "" for leaf in seat.virtual),
        )
        for seat in group.seats
    )
    return GroupMemory(group.request, group.chain, seats, group.state.value, group.serial, group.lazily_preempted_by)


def recall(memory: CellsMemory) -> Cells:
    """Cells that go on exactly as those that were remembered."""
    cells = Cells(memory.site)
    estate = cells.estate
    with estate.undo.step():
        physical = {name: {cell.address: cell for cell in _all(state)} for name, state in estate.chains.items()}
        virtual = {cell.address: cell for cell in _all_virtual(estate)}
        for name, chain in memory.chains.items():
            _recall_chain(estate, estate.chains[name], chain, physical[name], virtual)
        for group in memory.groups:
            _recall_group(estate, group, virtual)
        for leaf in estate.leaves.values():
            holder = leaf.reserving or leaf.using
            if holder is not None:
                count(estate, leaf, holder.priority)
        estate.serial = memory.serial
    return cells


def _recall_chain(
    estate: Estate,
    state: ChainState,
    memory: ChainMemory,
    physical: dict[str, PhysicalCell],
    virtual: dict[str, VirtualCell],
) -> None:
    for address in memory.bad:
        node = physical[address]
        state.bad[address] = node
        for cell in node.lineage[node.level :]:
            if cell is not None:
                cell.bad_nodes += 1
    for virtual_address, address in memory.bound:
        _recall_binding(estate, state, physical[address], virtual[virtual_address])
    _recall_free(state, memory, physical)
    for owner, level, roots in memory.doomed:
        state.doomed[owner, level] = [virtual[root] for root in roots]


def _recall_binding(estate: Estate, state: ChainState, cell: PhysicalCell, virtual: VirtualCell) -> None:
    if virtual.physical is cell:
        return
    virtual.physical, cell.virtual = cell, virtual
    if virtual.parent is not None:
        virtual.parent.bound_children += 1
    else:
        state.owe(estate.undo, virtual.owner, virtual.level, -1)


def _recall_free(state: ChainState, memory: ChainMemory, physical: dict[str, PhysicalCell]) -> None:
    """The free lists, and from them which cells are split: those above a listed or owned one."""
    for cell in physical.values():
        cell.is_split, cell.idle_children, cell.position = False, 0, NOT_LISTED
    for cells, addresses in zip(state.buddies.lists, memory.free, strict=True):
        cells[:] = [physical[address] for address in addresses]
        for position, cell in enumerate(cells):
            cell.position = position
            if cell.parent is not None:
                cell.parent.idle_children += 1
    whole = [cell for cell in physical.values() if cell.position != NOT_LISTED or _is_root(cell)]
    for cell in whole:
        above = cell.parent
        while above is not None and not above.is_split:
            above.is_split = True
            above = above.parent


def _is_root(cell: PhysicalCell) -> bool:
    return cell.virtual is not None and cell.virtual.parent is None


def _recall_group(estate: Estate, memory: GroupMemory, virtual: dict[str, VirtualCell]) -> None:
    seats: list[Seat] = []
    for each in memory.seats:
        seat = Seat(each.node, list(each.indices), list(each.owned_types))
        places = zip(each.chains, each.indices, strict=True)
        seat.leaves = [estate.leaves[chain, each.node, index] if chain else None for chain, index in places]
        if each.virtual is not None:
            seat.virtual = [virtual[address] if address else None for address in each.virtual]
        seats.append(seat)
    group = Group(memory.request, memory.chain, seats, GroupState(memory.state), memory.serial)
    group.lazily_preempted_by = memory.lazily_preempted_by
    estate.groups[group.name] = group
    name = "reserving" if group.state is GroupState.PREEMPTING else "using"
    for leaf in group.leaves():
        setattr(leaf, name, group)


def _all(state: ChainState) -> Iterator[PhysicalCell]:
    pending = list(reversed(state.tops))
    while pending:
        cell = pending.pop()
        yield cell
        pending.extend(reversed(cell.children))


def _all_virtual(estate: Estate) -> Iterator[VirtualCell]:
    pending = [root for cluster in estate.clusters.values() for root in cluster.roots()]
    while pending:
        cell = pending.pop()
        yield cell
        pending.extend(cell.children)
