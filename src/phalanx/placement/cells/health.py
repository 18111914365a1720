"""Nodes that break and come back."""

from __future__ import annotations

from phalanx.placement.cells.hold import hide_healthy, show_bad, touch
from phalanx.placement.cells.trees.cell import PhysicalCell
from phalanx.placement.cells.trees.estate import Estate


def set_bad(estate: Estate, node: PhysicalCell) -> None:
    """A node has broken: it and all it lies in are shown as broken to the clusters they are bound to."""
    state = touch(estate, node)
    estate.undo.put(state.bad, node.address, node)
    for cell in _upwards(node):
        estate.undo.set(cell, "bad_nodes", cell.bad_nodes + 1)
    for cell in reversed(_upwards(node)):
        show_bad(estate, cell)


def set_healthy(estate: Estate, node: PhysicalCell) -> None:
    """A node works again."""
    state = touch(estate, node)
    estate.undo.drop(state.bad, node.address)
    for cell in _upwards(node):
        estate.undo.set(cell, "bad_nodes", cell.bad_nodes - 1)
    for cell in _upwards(node):
        hide_healthy(estate, cell)


def _upwards(node: PhysicalCell) -> list[PhysicalCell]:
    """The node and all it lies in."""
    cells: list[PhysicalCell] = []
    cell: PhysicalCell | None = node
    while cell is not None:
        cells.append(cell)
        cell = cell.parent
    return cells
