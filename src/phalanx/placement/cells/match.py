"""Finding hardware for virtual cells: a match that keeps the shape inside every owned cell."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from phalanx.cluster.cells import LEAF_LEVEL, Chain
from phalanx.placement.cells.hold import bind_root
from phalanx.placement.cells.priority import GUARANTEED_MIN
from phalanx.placement.cells.request import Suggestion
from phalanx.placement.cells.trees.buddy import surplus
from phalanx.placement.cells.trees.cell import PhysicalCell, VirtualCell
from phalanx.placement.cells.trees.estate import Estate

Match = dict[str, PhysicalCell]
"""The hardware of virtual leaves, by their addresses."""


class Choice:
    """Which cells may be used, and which of them first."""

    __slots__ = ("_is_crowded", "_suggestion")

    def __init__(self, suggestion: Suggestion, is_crowded: bool) -> None:
        self._suggestion = suggestion
        self._is_crowded = is_crowded

    def ordered(self, cells: Sequence[PhysicalCell]) -> Iterable[PhysicalCell]:
        """Cells that can be used, those with the least opportunistic work first: it would have to go."""
        usable = (cell for cell in cells if cell.virtual is None and self._is_usable(cell))
        return sorted(usable, key=lambda cell: cell.opportunistic) if self._is_crowded else usable

    def _is_usable(self, cell: PhysicalCell) -> bool:
        """Whether something in a cell may be used: of several nodes, one that is suggested is enough."""
        if cell.is_in_node:
            return cell.is_healthy and self._suggestion.has(cell.node_name)
        return self._suggestion.are_all or any(self._is_usable(child) for child in cell.children)


class Branch:
    """A virtual cell that has no hardware yet, with those of its children that need some."""

    __slots__ = ("cell", "children")

    def __init__(self, cell: VirtualCell) -> None:
        self.cell = cell
        self.children: list[Branch] = []


def match(estate: Estate, leaves: Sequence[VirtualCell], suggestion: Suggestion) -> Match | None:
    """Hardware for virtual leaves, or None. Owned cells that get some are bound at once; the caller may undo that."""
    choice = Choice(suggestion, estate.chains[leaves[0].chain.name].view.in_use_below(GUARANTEED_MIN) > 0)
    found: Match = {leaf.address: leaf.physical for leaf in leaves if leaf.physical is not None}
    roots, beside = _branches([leaf for leaf in leaves if leaf.physical is None])
    for root in roots:
        cell = _allocate(estate, root, choice)
        if cell is None:
            return None
        beside.setdefault(root.cell.address, (cell, []))[1].extend(root.children)
        if root.cell.level == LEAF_LEVEL:
            found[root.cell.address] = cell
    for cell, branches in beside.values():
        inside = _host_all(branches, cell.children, choice) if branches else {}
        if inside is None:
            return None
        found.update(inside)
    return found


def _branches(
    leaves: Iterable[VirtualCell],
) -> tuple[list[Branch], dict[str, tuple[PhysicalCell, list[Branch]]]]:
    """What must be bound for some leaves: owned cells, and branches of cells that are bound already."""
    known: dict[str, Branch] = {}
    roots: list[Branch] = []
    beside: dict[str, tuple[PhysicalCell, list[Branch]]] = {}
    for leaf in leaves:
        branch = known[leaf.address] = Branch(leaf)
        while True:
            parent = branch.cell.parent
            if parent is None:
                roots.append(branch)
                break
            if parent.physical is not None:
                beside.setdefault(parent.address, (parent.physical, []))[1].append(branch)
                break
            if parent.address in known:
                known[parent.address].children.append(branch)
                break
            above = known[parent.address] = Branch(parent)
            above.children.append(branch)
            branch = above
    return roots, beside


def _allocate(estate: Estate, branch: Branch, choice: Choice) -> PhysicalCell | None:
    """Buddy allocation: a free cell of the lowest level that has one, split down to what is owned.

    A higher level is split instead only where the lower ones are broken or not suggested, and where that leaves
    every cluster what is owed to it.
    """
    root = branch.cell
    state = estate.chains[root.chain.name]
    lowest = True
    for level in range(root.level, root.chain.top + 1):
        listed = state.buddies.lists[level]
        if not listed:
            continue
        if lowest or _may_split(state.chain, state.buddies.listed(), state.owed_all, level, root.level):
            for cell in choice.ordered(listed):
                found = _descend(cell, branch, choice)
                if found is not None:
                    bind_root(estate, found, root)
                    return found
        lowest = False
    return None


def _may_split(chain: Chain, listed: list[int], owed: list[int], level: int, wanted: int) -> bool:
    """Whether every cluster can still have what is owed once a cell of a level is split for a smaller one."""
    listed, owed = listed[:], owed[:]
    listed[level] -= 1
    for below in range(wanted, level):
        listed[below] += chain.fanout[below + 1] - 1
    owed[wanted] -= 1
    return min(surplus(chain, listed, owed)[LEAF_LEVEL:]) >= 0


def _descend(cell: PhysicalCell, branch: Branch, choice: Choice) -> PhysicalCell | None:
    """The first cell of the branch's level in a free cell that can host the branch."""
    if cell.level == branch.cell.level:
        return cell if _host(branch, cell, choice) is not None else None
    for child in choice.ordered(cell.children):
        found = _descend(child, branch, choice)
        if found is not None:
            return found
    return None


def _host(branch: Branch, cell: PhysicalCell, choice: Choice) -> Match | None:
    """How a cell would host a branch."""
    if cell.level == LEAF_LEVEL:
        return {branch.cell.address: cell}
    return _host_all(branch.children, cell.children, choice) if branch.children else {}


def _host_all(branches: Sequence[Branch], cells: Sequence[PhysicalCell], choice: Choice) -> Match | None:
    """Hosts each branch in another of the cells.

    What a cell can host does not depend on other cells, so this is a bipartite matching: each branch takes the first
    cell that will do, and moves on to its next if a later one has no other.
    """
    candidates = list(choice.ordered(cells))
    if len(candidates) < len(branches):
        return None
    hosted: dict[int, int] = {}
    answers: dict[tuple[int, int], Match | None] = {}

    def answer(branch: int, cell: int) -> Match | None:
        key = branch, cell
        if key not in answers:
            answers[key] = _host(branches[branch], candidates[cell], choice)
        return answers[key]

    def place(branch: int, tried: dict[int, None]) -> bool:
        for cell in range(len(candidates)):
            if cell not in tried and cell not in hosted and answer(branch, cell) is not None:
                hosted[cell] = branch
                return True
        for cell in range(len(candidates)):
            if cell not in tried and answer(branch, cell) is not None:
                tried[cell] = None
                if place(hosted[cell], tried):
                    hosted[cell] = branch
                    return True
        return False

    if not all(place(branch, {}) for branch in range(len(branches))):
        return None
    found: Match = {}
    for cell, branch in sorted(hosted.items()):
        found.update(answer(branch, cell) or {})
    return found
