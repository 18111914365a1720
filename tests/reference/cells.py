"""An oracle for cells that knows nothing of buddies, bindings or counters: leaves are numbers, cells are ranges.

It answers by trying everything, so it is for small sites only.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from phalanx.compat.hived import HivedScheduler
from phalanx.placement.cells.status import CellStatus


@dataclass(frozen=True)
class Range:
    """A cell as the leaves it spans."""

    start: int
    size: int

    @property
    def leaves(self) -> range:
        return range(self.start, self.start + self.size)


class Oracle:
    """The physical cells of a site of one chain, by type and by address, as ranges of leaves."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.types = config["physicalCluster"]["cellTypes"]
        self.by_type: dict[str, list[Range]] = {}
        self.by_address: dict[str, Range] = {}
        self.leaves = 0
        for number, cell in enumerate(config["physicalCluster"]["physicalCells"]):
            self._add(cell, cell["cellType"], "", number)

    def size(self, kind: str) -> int:
        spec = self.types.get(kind)
        return spec["childCellNumber"] * self.size(spec["childCellType"]) if spec else 1

    def _add(self, cell: dict[str, Any], kind: str, prefix: str, number: int) -> None:
        address = prefix + str(cell.get("cellAddress", number))
        spec = self.types.get(kind)
        span = Range(self.leaves, self.size(kind))
        self.by_type.setdefault(kind, []).append(span)
        self.by_address[address] = span
        if spec is None:
            self.leaves += 1
            return
        count = spec["childCellNumber"]
        first = 0 if spec.get("isNodeLevel") or not prefix else number * count
        children = cell.get("cellChildren") or [{}] * count
        for i, child in enumerate(children):
            self._add(child, spec["childCellType"], f"{address}/", first + i)

    def promises_hold(self, scheduler: HivedScheduler) -> bool:
        """Whether all owned cells that are not in use could be taken at once, whoever takes them first."""
        taken: dict[int, None] = {}
        wanted: list[str] = []
        for name in scheduler.virtual_clusters():
            for cell in scheduler.virtual_cluster(name):
                if cell.is_opportunistic:
                    continue
                if cell.physical:
                    span = self.by_address[cell.physical]
                    assert not any(leaf in taken for leaf in span.leaves), "two owned cells have the same hardware"
                    taken.update(dict.fromkeys(span.leaves))
                else:
                    wanted.append(cell.type)
        return self._fits(sorted(wanted, key=self.size, reverse=True), frozenset(taken))

    def _fits(self, wanted: list[str], taken: frozenset[int]) -> bool:
        if not wanted:
            return True
        for span in self.by_type[wanted[0]]:
            if taken.isdisjoint(span.leaves) and self._fits(wanted[1:], taken | set(span.leaves)):
                return True
        return False


def fits_privately(cells: Iterable[CellStatus], sizes: list[int], priority: int) -> bool:
    """Whether pods fit what a cluster owns, seen as its private machines, over all who have a lower priority."""
    homes = [home for cell in cells if not cell.is_opportunistic for home in _homes(cell)]
    room = [sum(leaf.priority < priority for leaf in _leaves(home)) for home in homes]
    return _packs(sorted(sizes, reverse=True), room)


def _homes(cell: CellStatus) -> list[CellStatus]:
    """Machines in an owned cell; a cell smaller than a machine is one."""
    if cell.is_node or not any(_has_node(child) for child in cell.children):
        return [cell]
    return [home for child in cell.children for home in _homes(child)]


def _has_node(cell: CellStatus) -> bool:
    return cell.is_node or any(_has_node(child) for child in cell.children)


def _leaves(cell: CellStatus) -> list[CellStatus]:
    return [leaf for child in cell.children for leaf in _leaves(child)] if cell.children else [cell]


def _packs(sizes: list[int], room: list[int]) -> bool:
    if not sizes:
        return True
    for at, rest in enumerate(room):
        if rest >= sizes[0] and _packs(sizes[1:], [*room[:at], rest - sizes[0], *room[at + 1 :]]):
            return True
    return False
