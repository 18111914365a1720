"""Taking over a running group under a new configuration: it keeps its hardware, and its guarantee where that fits."""

from __future__ import annotations

from phalanx.placement.cells.group import Group, GroupState
from phalanx.placement.cells.hold import bind_root, seize
from phalanx.placement.cells.preempt import preempt_lazily, users_of
from phalanx.placement.cells.trees.cell import PhysicalCell, VirtualCell
from phalanx.placement.cells.trees.estate import Estate, Pool

RECONFIGURATION = "reconfiguration"
"""What has preempted a group lazily when no other group did."""


def restore(estate: Estate, old: Group) -> None:
    """Gives a group of another configuration the leaves it runs on, as far as this one has them.

    It loses its guarantee, and runs on, if its virtual cluster does not own such cells any more, if groups of its
    cluster that matter as much have them, or if other groups would lose theirs. A group that had lost it may regain it.
    """
    estate.undo.set(estate, "serial", estate.serial + 1)
    group = Group(old.request, old.chain, [seat.unplaced() for seat in old.seats], GroupState.ALLOCATED, estate.serial)
    _find_hardware(estate, group)
    mark = estate.undo.mark()
    if group.is_guaranteed and not _restore_guaranteed(estate, group):
        estate.undo.undo_to(mark)
        group.lazily_preempted_by = old.lazily_preempted_by or RECONFIGURATION
    if not group.is_guaranteed:
        for seat in group.seats:
            seat.virtual = None
        seize(estate, group.pairs(), group.priority)
    for leaf in group.leaves():
        estate.undo.set(leaf, "using", group)
    estate.undo.put(estate.groups, group.name, group)


def _find_hardware(estate: Estate, group: Group) -> None:
    """The leaves it runs on, in the chain it was in or, if they were moved, in another."""
    for seat in group.seats:
        seat.leaves = [_leaf(estate, group.chain, seat.node, index) for index in seat.indices]
    group.chain = next((leaf.chain.name for leaf in group.leaves()), group.chain)


def _leaf(estate: Estate, chain: str, node: str, index: int) -> PhysicalCell | None:
    for name in dict.fromkeys([chain, *estate.chains]):
        leaf = estate.leaves.get((name, node, index))
        if leaf is not None and leaf.using is None:
            return leaf
    return None


def _restore_guaranteed(estate: Estate, group: Group) -> bool:
    """Whether the group has virtual leaves in its cluster, and every other cluster can still have what is owed.

    A seat that the group got while it had no guarantee was in no owned cell: there is none to look for.
    """
    for seat in group.seats:
        if len(seat.owned_types) < len(seat.leaves):
            return False
        seat.virtual = []
        for leaf, owned_type in zip(seat.leaves, seat.owned_types, strict=True):
            virtual = None
            if leaf is not None:
                virtual = _virtual_leaf(estate, group, leaf, owned_type)
                if virtual is None:
                    return False
                seize(estate, [(leaf, virtual)], group.priority)
            seat.virtual.append(virtual)
    return all(not state.short_level() for state in estate.chains.values())


def _virtual_leaf(estate: Estate, group: Group, leaf: PhysicalCell, owned_type: str) -> VirtualCell | None:
    """The virtual leaf that a leaf can stand for, in an owned cell of the type it stood in before."""
    pool = _pool(estate, group, leaf)
    cell = leaf.lineage[leaf.chain.level_of(owned_type)]
    if pool is None or cell is None:
        return None
    virtual = cell.virtual or _bind_root(estate, group, pool, cell)
    if virtual is None or virtual not in pool.roots[cell.level]:
        return None
    for level in range(cell.level - 1, 0, -1):
        inside = leaf.lineage[level]
        known = inside.virtual if inside is not None else None
        virtual = known or next(child for child in virtual.children if child.physical is None)
    return virtual


def _pool(estate: Estate, group: Group, leaf: PhysicalCell) -> Pool | None:
    cluster = estate.clusters.get(group.request.virtual_cluster)
    if cluster is None:
        return None
    if group.request.pinned_id:
        return cluster.pinned.get(group.request.pinned_id)
    return cluster.pools.get(leaf.chain.name)


def _bind_root(estate: Estate, group: Group, pool: Pool, cell: PhysicalCell) -> VirtualCell | None:
    """Binds an owned cell to free hardware: one that is not used, or the one whose groups matter least."""
    if not cell.is_idle:
        return None
    root = pool.free_root(cell.level) or _clear_root(estate, group, pool, cell.level)
    if root is not None:
        bind_root(estate, cell, root)
    return root


def _clear_root(estate: Estate, group: Group, pool: Pool, level: int) -> VirtualCell | None:
    """Takes the guarantee from all in the owned cell whose highest priority is lowest, if the group's is higher."""
    used = [root for root in pool.roots[level] if root.used and not root.is_pinned]
    if not used:
        return None
    root = min(used, key=_highest_priority)
    if _highest_priority(root) >= group.priority:
        return None
    for user in users_of(leaf.physical for leaf in root.leaves() if leaf.physical is not None):
        if user.is_guaranteed:
            preempt_lazily(estate, user, group.name)
    return root if root.physical is None else None


def _highest_priority(root: VirtualCell) -> int:
    return max(leaf.priority for leaf in root.leaves())
