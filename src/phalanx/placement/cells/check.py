"""Assertions: what the cells say of themselves, worked out again from the leaves up."""

from __future__ import annotations

from collections import Counter

from phalanx.placement.cells.group import Group, GroupState
from phalanx.placement.cells.priority import FREE, OPPORTUNISTIC
from phalanx.placement.cells.trees.cell import PhysicalCell, VirtualCell
from phalanx.placement.cells.trees.estate import ChainState, Estate, Pool
from phalanx.placement.cells.trees.view import View, key_of


def check(estate: Estate) -> None:
    """Raises AssertionError for the first thing that is not true."""
    for state in estate.chains.values():
        _check_tree(state)
        _check_owed(estate, state)
        _check_doomed(state)
        assert not state.short_level(), f"{state.chain.name}: a virtual cluster could not have what it owns"
    for cluster in estate.clusters.values():
        for pool in [*cluster.pools.values(), *cluster.pinned.values()]:
            _check_pool(pool)
    for group in estate.groups.values():
        _check_group(group)


def _check_tree(state: ChainState) -> None:
    for top in state.tops:
        _check_cell(top, covered=False)
    for cells in state.buddies.lists:
        for position, cell in enumerate(cells):
            assert cell.position == position, f"{cell} is not where the free list says"
    for node in state.nodes:
        held = Counter(leaf.priority for leaf in node.leaves())
        assert node.opportunistic == held[OPPORTUNISTIC], f"{node}: opportunistic leaves"
        assert node.guaranteed == sum(held.values()) - held[FREE] - held[OPPORTUNISTIC], f"{node}: guaranteed leaves"
    _check_view(state.view)


def _check_cell(cell: PhysicalCell, covered: bool) -> None:
    """Every leaf lies in exactly one free cell or one bound owned cell (`covered` below one)."""
    is_root = cell.virtual is not None and cell.virtual.parent is None
    is_listed = cell.position >= 0
    assert is_root + is_listed + covered + cell.is_split == 1, f"{cell} is given out twice, or not at all"
    if cell.virtual is not None:
        _check_binding(cell, cell.virtual)
    if cell.level == 1:
        _check_leaf(cell)
    assert cell.idle_children == sum(child.position >= 0 for child in cell.children), f"{cell}: free children"
    for child in cell.children:
        _check_cell(child, covered or is_root or is_listed)
    if not cell.is_in_node:
        assert cell.bad_nodes == sum(child.bad_nodes for child in cell.children), f"{cell}: broken nodes"


def _check_binding(cell: PhysicalCell, virtual: VirtualCell) -> None:
    assert virtual.physical is cell, f"{cell} is bound to {virtual}, which is bound to {virtual.physical}"
    if virtual.parent is not None:
        assert virtual.parent.physical is cell.parent, f"{virtual} is bound outside of what it lies in"
        assert virtual.bound_children or virtual.priority != FREE or cell.bad_nodes, f"{virtual} is bound for nothing"


def _check_leaf(leaf: PhysicalCell) -> None:
    holder = leaf.reserving or leaf.using
    assert leaf.priority == (holder.priority if holder is not None else FREE), f"{leaf}: priority {leaf.priority}"
    if leaf.virtual is None or leaf.virtual.parent is not None:
        assert (leaf.virtual is not None) == (leaf.priority > OPPORTUNISTIC), f"{leaf}: bound is not held, or otherwise"


def _check_owed(estate: Estate, state: ChainState) -> None:
    for level in range(1, state.chain.top + 1):
        owed = {}
        for name, cluster in estate.clusters.items():
            pool = cluster.pools.get(state.chain.name)
            owed[name] = sum(root.physical is None for root in pool.roots[level]) if pool is not None else 0
            told = state.owed[name][level] if name in state.owed else 0
            assert told == owed[name], f"{name} is owed {owed[name]} of level {level}, not {told}"
        assert state.owed_all[level] == sum(owed.values()), f"level {level}: all that is owed"


def _check_doomed(state: ChainState) -> None:
    for roots in state.doomed.values():
        for root in roots:
            assert root.physical is not None, f"{root} is doomed and not bound"
            assert not root.physical.is_healthy, f"{root} is doomed and healthy"
            assert not root.used, f"{root} is doomed and used"


def _check_pool(pool: Pool) -> None:
    for roots in pool.roots:
        for root in roots:
            used = [leaf for leaf in root.leaves() if leaf.priority != FREE]
            assert root.used == len(used), f"{root}: {root.used} used, not {len(used)}"
            assert root.physical is not None or not used, f"{root} is used and not bound"
    for home in pool.view.nodes:
        by_priority = Counter(leaf.priority for leaf in home.leaves() if leaf.priority != FREE)
        assert {at: count for at, count in home.used_at.items() if count} == dict(by_priority), f"{home}: priorities"
    _check_view(pool.view)


def _check_view(view: View[PhysicalCell] | View[VirtualCell]) -> None:
    buckets = view.ranks()
    nodes: tuple[PhysicalCell | VirtualCell, ...] = tuple(view.nodes)
    for slot, node in enumerate(nodes):
        assert buckets[key_of(node)] >> slot & 1, f"{node} stands in the wrong bucket"
    assert sum(bits.bit_count() for bits in buckets.values()) == len(view.nodes), "a node stands in two buckets"


def _check_group(group: Group) -> None:
    for leaf, virtual in group.pairs():
        holder = leaf.reserving if group.state is GroupState.PREEMPTING else leaf.using
        assert holder is group, f"{leaf} is not held by {group.name}"
        if leaf.reserving is None or leaf.reserving is group:
            # A broken leaf that is owned on its own is shown to its owner, whatever else is on it.
            is_doomed = virtual is None and leaf.virtual is not None and leaf.virtual.parent is None
            assert leaf.virtual is virtual or is_doomed, f"{leaf} stands for {leaf.virtual}, not for {virtual}"
            assert virtual is None or virtual.owner == group.request.virtual_cluster, f"{leaf} is another cluster's"
