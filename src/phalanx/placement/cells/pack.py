"""Choosing nodes and leaves for a gang: fewest free leaves first, and leaves close to one another inside the node.

The same rules place a gang in its virtual cluster and opportunistic work on the hardware; only the view differs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from phalanx.placement.cells.outcome import Obstacle
from phalanx.placement.cells.priority import FREE, OPPORTUNISTIC
from phalanx.placement.cells.request import Suggestion
from phalanx.placement.cells.trees.cell import PhysicalCell, VirtualCell
from phalanx.placement.cells.trees.view import View

Cell = TypeVar("Cell", PhysicalCell, VirtualCell)

TRIES_MAX = 2000
"""Tries in which pods of different sizes must find their nodes."""

Chosen = list[list[Cell]]
"""The leaves of each pod, in the order of the pods."""


class Unfit(Exception):  # noqa: N818
    """A gang that finds no place; the text says what is in the way."""

    def __init__(self, reason: str, obstacle: Obstacle) -> None:
        super().__init__(reason)
        self.obstacle = obstacle


def pack_virtual(view: View[VirtualCell], sizes: Sequence[int], suggestion: Suggestion) -> Chosen[VirtualCell]:
    """Places pods (ascending by size) on what of a virtual cluster is free."""
    usable = _Usable(suggestion)
    nodes = _nodes_for(view.with_room(sizes[0]), sizes, _virtual_room, usable)
    return _leaves_for(nodes, sizes, OPPORTUNISTIC)


def pack_virtual_over(
    view: View[VirtualCell], sizes: Sequence[int], suggestion: Suggestion, priority: int
) -> Chosen[VirtualCell]:
    """Places pods as if all groups of a lower priority were gone."""

    def room(node: VirtualCell) -> int:
        return node.leaf_count - sum(count for at, count in node.used_at.items() if at >= priority)

    nodes = _nodes_for(view.with_room(0), sizes, room, _Usable(suggestion))
    return _leaves_for(nodes, sizes, priority)


def pack_physical(view: View[PhysicalCell], sizes: Sequence[int], suggestion: Suggestion) -> Chosen[PhysicalCell]:
    """Places the pods of opportunistic work on free hardware."""
    nodes = _nodes_for(view.with_room(sizes[0]), sizes, _physical_room, _Usable(suggestion))
    return _leaves_for(nodes, sizes, OPPORTUNISTIC)


def _virtual_room(node: VirtualCell) -> int:
    return node.leaf_count - node.used


def _physical_room(node: PhysicalCell) -> int:
    return node.chain.leaves[node.level] - node.opportunistic - node.guaranteed


class _Usable:
    """Whether a node may be used; remembers one that may not, for the reason."""

    def __init__(self, suggestion: Suggestion) -> None:
        self.suggestion = suggestion
        self.bad = ""
        self.unsuggested = ""

    def allows(self, node: PhysicalCell | VirtualCell) -> bool:
        hardware = node.physical if isinstance(node, VirtualCell) else node
        if hardware is None:
            return True
        if not hardware.is_healthy:
            self.bad = self.bad or hardware.address
            return False
        if not self.suggestion.has(hardware.node_name):
            self.unsuggested = self.unsuggested or hardware.address
            return False
        return True

    def refusal(self) -> Unfit:
        if self.bad:
            return Unfit(f"there is room only with node {self.bad}, which is bad", Obstacle.BROKEN)
        if self.unsuggested:
            return Unfit(
                f"there is room only with node {self.unsuggested}, which was not suggested", Obstacle.UNSUGGESTED
            )
        return Unfit("there are too few free leaves", Obstacle.CAPACITY)


def _nodes_for(nodes: Iterable[Cell], sizes: Sequence[int], room: Callable[[Cell], int], usable: _Usable) -> list[Cell]:
    """A node for each pod: the smallest pods first, each node filled before the next is looked at.

    Where that strands a large pod, nodes are searched for the large ones first.
    """
    seen: list[Cell] = []
    chosen: list[Cell] = []
    fitting = (node for node in nodes if room(node) >= sizes[0] and usable.allows(node))
    left = 0
    for size in sizes:
        while left < size:
            node = next(fitting, None)
            if node is None:
                return _largest_first(seen, sizes, room, usable)
            seen.append(node)
            left = room(node)
        chosen.append(seen[-1])
        left -= size
    return chosen


def _largest_first(
    nodes: Sequence[Cell], sizes: Sequence[int], room: Callable[[Cell], int], usable: _Usable
) -> list[Cell]:
    left = [room(node) for node in nodes]
    chosen = _search(left, sizes[::-1])
    if chosen is None:
        raise usable.refusal()
    return [nodes[at] for at in reversed(chosen)]


def _search(left: list[int], sizes: Sequence[int]) -> list[int] | None:
    """Nodes for pods, the largest first: the first that fits, and then every other choice, within a budget of tries."""
    if sum(left) < sum(sizes):
        return None
    chosen: list[int] = []
    budget = TRIES_MAX

    def place(pod: int) -> bool:
        nonlocal budget
        if pod == len(sizes):
            return True
        tried: dict[int, None] = {}
        for at, rest in enumerate(left):
            # Of nodes with the same room one is as good as another.
            if rest < sizes[pod] or rest in tried or budget <= 0:
                continue
            tried[rest] = None
            budget -= 1
            left[at] -= sizes[pod]
            chosen.append(at)
            if place(pod + 1):
                return True
            chosen.pop()
            left[at] += sizes[pod]
        return False

    return chosen if place(0) else None


def _leaves_for(nodes: Sequence[Cell], sizes: Sequence[int], priority: int) -> Chosen[Cell]:
    available: dict[int, list[Cell]] = {}
    chosen: Chosen[Cell] = []
    for node, size in zip(nodes, sizes, strict=True):
        if node.slot not in available:
            available[node.slot] = _available(node, priority)
        leaves = closest(available[node.slot], size, node.level)
        chosen.append(leaves)
        taken = {leaf.address for leaf in leaves}
        available[node.slot] = [leaf for leaf in available[node.slot] if leaf.address not in taken]
    return chosen


def _available(node: Cell, priority: int) -> list[Cell]:
    """Free leaves of a node, then those whose holder would yield."""
    leaves = node.leaves()
    free = [leaf for leaf in leaves if leaf.priority == FREE]
    return free + [leaf for leaf in leaves if FREE < leaf.priority < priority]


def closest(available: Sequence[Cell], size: int, top: int) -> list[Cell]:
    """The first leaves, in the order given, whose common cell is as small as it can be."""
    counts = available[0].chain.leaves
    for level in range(next(level for level in range(1, top + 1) if counts[level] >= size), top + 1):
        families: dict[str, list[Cell]] = {}
        for leaf in available:
            cell = leaf.lineage[level]
            assert cell is not None
            family = families.setdefault(cell.address, [])
            if len(family) < size:
                family.append(leaf)
        complete = [family for family in families.values() if len(family) == size]
        if complete:
            order = {leaf.address: at for at, leaf in enumerate(available)}
            return min(complete, key=lambda family: [order[leaf.address] for leaf in family])
    raise AssertionError(f"{len(available)} leaves are available, and not {size} of one node")
