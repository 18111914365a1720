"""Taking leaves and giving them back: binding, counting, and what the buddy system learns of it."""

from __future__ import annotations

from collections.abc import Iterable

from phalanx.placement.cells.priority import FREE, OPPORTUNISTIC
from phalanx.placement.cells.trees.cell import PhysicalCell, VirtualCell
from phalanx.placement.cells.trees.estate import ChainState, Estate
from phalanx.placement.cells.trees.view import key_of

Pair = tuple[PhysicalCell, VirtualCell | None]
"""A leaf, and the virtual leaf it stands for; opportunistic work has none."""


def seize(estate: Estate, pairs: Iterable[Pair], priority: int) -> None:
    """Gives free leaves to a group, at a priority."""
    for leaf, virtual in pairs:
        if virtual is None:
            _count_physical(estate, leaf, OPPORTUNISTIC)
        else:
            bind(estate, leaf, virtual)
            _count_virtual(estate, virtual, priority)
            _count_physical(estate, leaf, priority)


def count(estate: Estate, leaf: PhysicalCell, priority: int) -> None:
    """Counts a leaf that is bound already as held at a priority."""
    if leaf.virtual is not None and priority > OPPORTUNISTIC:
        _count_virtual(estate, leaf.virtual, priority)
    _count_physical(estate, leaf, priority)


def vacate(estate: Estate, leaves: Iterable[PhysicalCell]) -> None:
    """Takes leaves from the groups that hold them."""
    for leaf in leaves:
        # A leaf that is owned on its own may be bound while opportunistic work has it.
        virtual = leaf.virtual if leaf.priority > OPPORTUNISTIC else None
        _uncount_physical(estate, leaf)
        if virtual is not None:
            _uncount_virtual(estate, virtual)
            _unbind_upwards(estate, leaf)
            if not virtual.root.used and not virtual.root.is_pinned:
                unbind_root(estate, virtual.root)


def bind(estate: Estate, cell: PhysicalCell, virtual: VirtualCell) -> None:
    """Binds a virtual cell to a physical one, and what they lie in, up to what is bound already."""
    undo = estate.undo
    while virtual.physical is None:
        undo.set(virtual, "physical", cell)
        undo.set(cell, "virtual", virtual)
        if virtual.parent is None or cell.parent is None:
            _take_root(estate, cell, virtual)
            return
        undo.set(virtual.parent, "bound_children", virtual.parent.bound_children + 1)
        virtual, cell = virtual.parent, cell.parent
    assert virtual.physical is cell, f"{virtual} is bound to {virtual.physical}, not to {cell}"
    _undoom(estate, virtual.root)


def bind_root(estate: Estate, cell: PhysicalCell, root: VirtualCell) -> None:
    """Binds an owned cell to hardware; nothing in it is used yet."""
    estate.undo.set(root, "physical", cell)
    estate.undo.set(cell, "virtual", root)
    _take_root(estate, cell, root)


def unbind_root(estate: Estate, root: VirtualCell) -> None:
    """Gives the hardware of an owned cell back."""
    cell = root.physical
    assert cell is not None
    _undoom(estate, root)
    _unbind_below(estate, root)
    _unlink(estate, root, cell)
    state = touch(estate, cell)
    state.owe(estate.undo, root.owner, root.level, 1)
    state.buddies.give(cell)


def show_bad(estate: Estate, cell: PhysicalCell) -> None:
    """Binds the broken cells in a bound one as far down as nodes, so that its owner sees them and places elsewhere."""
    if cell.level <= cell.chain.node_level or cell.virtual is None:
        return
    for child in cell.children:
        if child.bad_nodes:
            if child.virtual is None:
                _link(estate, _first_unbound(cell.virtual), child)
            show_bad(estate, child)


def hide_healthy(estate: Estate, cell: PhysicalCell) -> None:
    """Unbinds a cell that was bound only to be shown as broken, if it works now."""
    virtual = cell.virtual
    if cell.bad_nodes or virtual is None or virtual.parent is None or virtual.bound_children:
        return
    _unlink(estate, virtual, cell)


def touch(estate: Estate, cell: PhysicalCell) -> ChainState:
    """The chain of a cell, to be settled and checked when the step ends."""
    state = estate.chains[cell.chain.name]
    estate.touched[state.chain.name] = state
    return state


def _take_root(estate: Estate, cell: PhysicalCell, root: VirtualCell) -> None:
    state = touch(estate, cell)
    state.owe(estate.undo, root.owner, root.level, -1)
    state.buddies.take(cell)
    # What is broken in it is shown at the end of the step: the group that the cell was bound for comes first.
    estate.unshown[cell.address] = cell


def _undoom(estate: Estate, root: VirtualCell) -> None:
    """An owned cell that is used, or given back, is no longer one that can only be had broken."""
    key = root.owner, root.level
    doomed = estate.chains[root.chain.name].doomed
    if root in doomed.get(key, ()):
        estate.undo.put(doomed, key, [other for other in doomed[key] if other is not root])


def _unbind_upwards(estate: Estate, cell: PhysicalCell) -> None:
    """Unbinds a leaf and what it lies in while nothing else in it is bound. Broken nodes stay bound, and roots."""
    here: PhysicalCell | None = cell
    while here is not None and here.virtual is not None and here.virtual.parent is not None:
        virtual = here.virtual
        if virtual.bound_children or (here.level >= here.chain.node_level and here.bad_nodes):
            return
        _unlink(estate, virtual, here)
        here = here.parent


def _unbind_below(estate: Estate, virtual: VirtualCell) -> None:
    if virtual.bound_children:
        for child in virtual.children:
            if child.physical is not None:
                _unbind_below(estate, child)
                _unlink(estate, child, child.physical)


def _link(estate: Estate, virtual: VirtualCell, cell: PhysicalCell) -> None:
    estate.undo.set(virtual, "physical", cell)
    estate.undo.set(cell, "virtual", virtual)
    if virtual.parent is not None:
        estate.undo.set(virtual.parent, "bound_children", virtual.parent.bound_children + 1)


def _unlink(estate: Estate, virtual: VirtualCell, cell: PhysicalCell) -> None:
    estate.undo.set(virtual, "physical", None)
    estate.undo.set(cell, "virtual", None)
    if virtual.parent is not None:
        estate.undo.set(virtual.parent, "bound_children", virtual.parent.bound_children - 1)


def _first_unbound(virtual: VirtualCell) -> VirtualCell:
    return next(child for child in virtual.children if child.physical is None)


def _count_virtual(estate: Estate, leaf: VirtualCell, priority: int) -> None:
    estate.undo.set(leaf, "priority", priority)
    _add_virtual(estate, leaf, priority, 1)


def _uncount_virtual(estate: Estate, leaf: VirtualCell) -> None:
    _add_virtual(estate, leaf, leaf.priority, -1)
    estate.undo.set(leaf, "priority", FREE)


def _add_virtual(estate: Estate, leaf: VirtualCell, priority: int, more: int) -> None:
    undo, home = estate.undo, leaf.home
    old = key_of(home)
    undo.set(home, "used", home.used + more)
    undo.put(home.used_at, priority, home.used_at.get(priority, 0) + more)
    if leaf.root is not home:
        undo.set(leaf.root, "used", leaf.root.used + more)
    view = home.view
    assert view is not None
    view.move(home.slot, old, key_of(home))
    view.count(priority, more)


def _count_physical(estate: Estate, leaf: PhysicalCell, priority: int) -> None:
    estate.undo.set(leaf, "priority", priority)
    _add_physical(estate, leaf, priority, 1)


def _uncount_physical(estate: Estate, leaf: PhysicalCell) -> None:
    _add_physical(estate, leaf, leaf.priority, -1)
    estate.undo.set(leaf, "priority", FREE)


def _add_physical(estate: Estate, leaf: PhysicalCell, priority: int, more: int) -> None:
    undo, node = estate.undo, leaf.node
    old = key_of(node)
    if priority == OPPORTUNISTIC:
        cell: PhysicalCell | None = leaf
        while cell is not None:
            undo.set(cell, "opportunistic", cell.opportunistic + more)
            cell = cell.parent
    else:
        undo.set(node, "guaranteed", node.guaranteed + more)
    view = node.view
    assert view is not None
    view.move(node.slot, old, key_of(node))
    view.count(priority, more)
