"""What follows from a change: cells that can only be had broken are shown to their owners, and the guarantee holds."""

from __future__ import annotations

from collections.abc import Iterator

from phalanx.cluster.cells import LEAF_LEVEL
from phalanx.placement.cells.hold import bind_root, show_bad, touch, unbind_root
from phalanx.placement.cells.trees.cell import PhysicalCell
from phalanx.placement.cells.trees.estate import ChainState, Estate, arithmetic


class SafetyError(AssertionError):
    """A virtual cluster could not have what it owns. This is a defect of the program, never of its input."""


def settle(estate: Estate) -> None:
    """Ends a step: every chain it touched is put in order and checked."""
    _show_bad(estate)
    for state in list(estate.touched.values()):
        _settle_doomed(estate, state)
        _show_bad(estate)
        short = state.short_level()
        if short:
            raise SafetyError(f"virtual clusters own more than can be had: {arithmetic(state, short)}")
    estate.touched.clear()


def _show_bad(estate: Estate) -> None:
    for cell in estate.unshown.values():
        show_bad(estate, cell)
    estate.unshown.clear()


def _settle_doomed(estate: Estate, state: ChainState) -> None:
    """Binds owned cells to broken ones where fewer healthy cells are left than one cluster alone may ask for.

    From the top down: binding a broken cell takes what is healthy in it from the levels below.
    """
    if not state.bad and not any(state.doomed.values()):
        return
    for root in [root for roots in state.doomed.values() for root in roots]:
        if root.physical is not None and root.physical.is_healthy:
            unbind_root(estate, root)
    for level in range(state.chain.top, LEAF_LEVEL - 1, -1):
        if _may_be_doomed(state, level):
            _settle_level(estate, state, level)


def _may_be_doomed(state: ChainState, level: int) -> bool:
    """A quick look: whether one cluster is owed more than would be healthy if all broken cells were idle."""
    most = max((owed[level] for owed in state.owed.values()), default=0)
    leaves = state.chain.leaves
    broken = len(state.bad) * max(leaves[state.chain.node_level] // leaves[level], 1)
    return most > state.buddies.left(level) - broken or any(
        roots and roots[0].level == level for roots in state.doomed.values()
    )


def _settle_level(estate: Estate, state: ChainState, level: int) -> None:
    healthy = healthy_left(state, level)
    for owner, owed in state.owed.items():
        while state.doomed.get((owner, level)) and owed[level] < healthy:
            unbind_root(estate, state.doomed[owner, level][-1])
            healthy = healthy_left(state, level)
        while owed[level] > healthy and _doom(estate, state, owner, level):
            healthy = healthy_left(state, level)


def healthy_left(state: ChainState, level: int) -> int:
    """Cells of a level that are healthy and can be had."""
    return state.buddies.left(level) - sum(1 for _ in _idle_bad(state, level))


def _doom(estate: Estate, state: ChainState, owner: str, level: int) -> bool:
    """Binds an owned cell to a broken one that no other cluster needs in one piece; False if there is none."""
    root = estate.clusters[owner].pools[state.chain.name].free_root(level)
    if root is None:
        return False
    for cell in sorted(_idle_bad(state, level), key=_level_listed):
        mark = estate.undo.mark()
        bind_root(estate, cell, root)
        if not state.short_level():
            key = owner, level
            estate.undo.put(state.doomed, key, [*state.doomed.get(key, ()), root])
            return True
        estate.undo.undo_to(mark)
        touch(estate, cell)
    return False


def _level_listed(cell: PhysicalCell) -> int:
    """The level at which the buddy system lists a free cell or what it lies in: the lower, the less is split."""
    here: PhysicalCell | None = cell
    while here is not None and here.position < 0:
        here = here.parent
    return here.level if here is not None else 0


def _idle_bad(state: ChainState, level: int) -> Iterator[PhysicalCell]:
    """Broken cells of a level that are free or parts of free ones."""
    broken = [state.bad[address] for address in sorted(state.bad)]
    if level <= state.chain.node_level:
        for node in broken:
            yield from (cell for cell in _cells_at(node, level) if cell.is_idle)
        return
    seen: dict[str, None] = {}
    for node in broken:
        cell = node.lineage[level]
        if cell is not None and cell.address not in seen:
            seen[cell.address] = None
            if cell.is_idle:
                yield cell


def _cells_at(cell: PhysicalCell, level: int) -> list[PhysicalCell]:
    if cell.level == level:
        return [cell]
    return [found for child in cell.children for found in _cells_at(child, level)]
