"""The buddy system of one chain: free cells by level, split when a smaller one is needed, merged when all are back."""

from __future__ import annotations

from phalanx.cluster.cells import LEAF_LEVEL, Chain
from phalanx.placement.cells.trees.cell import NOT_LISTED, PhysicalCell
from phalanx.placement.cells.trees.undo import Undo


class Buddies:
    """Free cells of a chain. A free cell is listed once, at the highest level at which all of it is free."""

    __slots__ = ("_undo", "chain", "lists")

    def __init__(self, chain: Chain, tops: list[PhysicalCell], undo: Undo) -> None:
        self.chain = chain
        self._undo = undo
        self.lists: tuple[list[PhysicalCell], ...] = tuple([] for _ in range(chain.top + 1))
        for top in tops:
            self._append(top)

    def take(self, cell: PhysicalCell) -> None:
        """Takes a cell out, splitting what it is a part of."""
        while cell.parent is not None and not cell.parent.is_split:
            parent = cell.parent
            self._undo.set(parent, "is_split", True)
            for child in parent.children:
                self._list(child)
            self._unlist(cell)
            cell = parent
        self._unlist(cell)

    def give(self, cell: PhysicalCell) -> None:
        """Takes a cell back, merging it with its buddies as far as they are free."""
        while cell.parent is not None and cell.parent.idle_children == len(cell.parent.children) - 1:
            parent = cell.parent
            for buddy in parent.children:
                if buddy is not cell:
                    self._unlist(buddy)
            self._undo.set(parent, "is_split", False)
            cell = parent
        self._list(cell)

    def listed(self) -> list[int]:
        """Free cells by level."""
        return [len(cells) for cells in self.lists]

    def left(self, level: int) -> int:
        """Cells of a level that are free or can be had by splitting."""
        count = carried = 0
        for at in range(self.chain.top, level - 1, -1):
            count = carried + len(self.lists[at])
            carried = count * self.chain.fanout[at]
        return count

    def _list(self, cell: PhysicalCell) -> None:
        self._append(cell)
        self._undo.did(self._pop, cell)

    def _append(self, cell: PhysicalCell) -> None:
        cells = self.lists[cell.level]
        cell.position = len(cells)
        cells.append(cell)
        if cell.parent is not None:
            cell.parent.idle_children += 1

    def _pop(self, cell: PhysicalCell, *_: object) -> None:
        """Takes back `_append`: the cell stands last."""
        self.lists[cell.level].pop()
        cell.position = NOT_LISTED
        if cell.parent is not None:
            cell.parent.idle_children -= 1

    def _unlist(self, cell: PhysicalCell) -> None:
        """The last cell of the list takes the place, as in HiveD, whose choices follow from this order."""
        cells = self.lists[cell.level]
        position = cell.position
        last = cells.pop()
        if last is not cell:
            cells[position] = last
            last.position = position
        cell.position = NOT_LISTED
        if cell.parent is not None:
            cell.parent.idle_children -= 1
        self._undo.did(self._relist, cell, position)

    def _relist(self, cell: PhysicalCell, position: int, _: object) -> None:
        """Takes back `_unlist`."""
        cells = self.lists[cell.level]
        if position == len(cells):
            cells.append(cell)
        else:
            moved = cells[position]
            moved.position = len(cells)
            cells.append(moved)
            cells[position] = cell
        cell.position = position
        if cell.parent is not None:
            cell.parent.idle_children += 1


def surplus(chain: Chain, listed: list[int], owed: list[int]) -> list[int]:
    """Cells by level that are left when every cluster has taken what is owed to it at that level and above.

    A cluster that is owed a level takes listed cells of it, or splits what is left above: the guarantee holds if and
    only if nothing here is negative (HiveD, §3.3).
    """
    left = [0] * (chain.top + 1)
    carried = 0
    for level in range(chain.top, LEAF_LEVEL - 1, -1):
        left[level] = carried + listed[level] - owed[level]
        carried = left[level] * chain.fanout[level]
    return left
