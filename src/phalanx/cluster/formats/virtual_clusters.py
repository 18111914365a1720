"""The virtual clusters of a cluster file: which owns how many cells of which level.

Cells follow from the nodes and the domains they lie in. A chain of cells goes up to the outermost level that a cluster
owns or has pinned; a domain whose parts are not all alike is no cell, and its parts stand alone.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from phalanx.cluster.cells import CellSite, CellType, PhysicalSpec, VirtualClusterSpec, VirtualSpec, chain_of
from phalanx.cluster.cluster import NODE, Cluster, Node
from phalanx.cluster.formats.gpu_type import read_gpu_type
from phalanx.cluster.formats.limits import GPUS_MAX, NODES_MAX, QUEUES_MAX
from phalanx.document import Field
from phalanx.document.field import is_name

GPU = "gpu"
"""The level of a single device."""

VIRTUAL_CLUSTER_KEYS = ("cells", "pinned", "borrow_limit")
OWNED_KEYS = ("level", "count", "gpu_type", "gpus", "within")


@dataclass(frozen=True, slots=True)
class Owned:
    """So many cells of a level; the rest tells them apart from other cells of the level."""

    place: Field
    level: str
    count: int
    gpu_type: str
    gpus: int | None
    within: str


def read_virtual_clusters(field: Field, cluster: Cluster) -> CellSite:
    """Reads `virtual_clusters` of a cluster whose nodes are known."""
    levels = (*cluster.levels, GPU)
    gpu_types = {node.gpu_type: None for node in cluster.nodes}
    owned: dict[str, list[Owned]] = {}
    pinned: dict[str, tuple[str, ...]] = {}
    borrow_max: dict[str, int | None] = {}
    for name, entry in field.entries(QUEUES_MAX):
        if not all(map(is_name, name.split("/"))):
            raise entry.error("expected a name of letters, digits, '.', '-', '_' for a virtual cluster")
        fields = entry.mapping(VIRTUAL_CLUSTER_KEYS)
        cells = fields.get("cells", lambda cells: cells.items(0, GPUS_MAX), ())
        owned[name] = [_read_owned(item, levels, gpu_types) for item in cells]
        pinned[name] = fields.get("pinned", lambda names: _read_pinned(names, cluster), ())
        borrow_max[name] = fields.get("borrow_limit", lambda limit: limit.integer(0, GPUS_MAX), None)
    asked = [each.level for all_owned in owned.values() for each in all_owned]
    asked += [each.within for all_owned in owned.values() for each in all_owned if each.within]
    asked += [_level_of(name, cluster) for names in pinned.values() for name in names]
    above = [*cluster.levels_above, NODE]
    top = next((level for level in above if level in asked), NODE)
    forest = _Forest(cluster, top, dict.fromkeys(name for names in pinned.values() for name in names))
    return CellSite(
        forest.types,
        tuple(forest.tops),
        tuple(
            VirtualClusterSpec(
                name, tuple(forest.spec_of(each) for each in owned[name]), pinned[name], borrow_max[name]
            )
            for name in owned
        ),
    )


def _read_owned(field: Field, levels: tuple[str, ...], gpu_types: Collection[str]) -> Owned:
    fields = field.mapping(OWNED_KEYS)
    return Owned(
        field,
        fields.need("level", lambda level: level.choice(levels)),
        fields.get("count", lambda count: count.integer(0, NODES_MAX), 1),
        fields.get("gpu_type", lambda name: read_gpu_type(name, gpu_types), ""),
        fields.get("gpus", lambda gpus: gpus.integer(1, GPUS_MAX), None),
        fields.get("within", lambda level: level.choice(levels), ""),
    )


def _read_pinned(field: Field, cluster: Cluster) -> tuple[str, ...]:
    names: list[str] = []
    for item in field.items(1, NODES_MAX):
        name = item.title()
        if not _level_of(name, cluster):
            raise item.error(f"expected the name of a node or a domain, and there is no '{name}'")
        names.append(name)
    return tuple(names)


def _level_of(name: str, cluster: Cluster) -> str:
    """The level of the node or domain of a name; empty if there is none."""
    for node in cluster.nodes:
        if node.name == name:
            return NODE
        if name in node.path:
            return cluster.levels_above[node.path.index(name)]
    return ""


class _Forest:
    """The hardware in cells: types by their make, and a tree for every cell that lies in no other."""

    def __init__(self, cluster: Cluster, top: str, pinned: dict[str, None]) -> None:
        self.types: dict[str, CellType] = {}
        self.tops: list[PhysicalSpec] = []
        self._level: dict[str, str] = {}
        self._names: dict[tuple[str, str, int], str] = {}
        self._pinned = pinned
        self._above = cluster.levels_above
        depth = cluster.levels_above.index(top) if top != NODE else len(self._above)
        nodes = [(node, self._node(node)) for node in cluster.nodes if node.gpus]
        self.tops.extend(self._grow(nodes, depth))

    def _grow(self, nodes: list[tuple[Node, PhysicalSpec]], depth: int) -> list[PhysicalSpec]:
        """The cells of some nodes, whose domains from a level inwards are cells where their parts are alike."""
        if depth == len(self._above):
            return [spec for _, spec in nodes]
        domains: dict[str, list[tuple[Node, PhysicalSpec]]] = {}
        for node, spec in nodes:
            domains.setdefault(node.path[depth], []).append((node, spec))
        found: list[PhysicalSpec] = []
        for name, inside in domains.items():
            parts = self._grow(inside, depth + 1)
            kinds = list(dict.fromkeys(part.type for part in parts))
            if name and len(kinds) == 1:
                kind = self._type(self._above[depth], kinds[0], len(parts))
                found.append(PhysicalSpec(kind, name, name if name in self._pinned else "", tuple(parts)))
            else:
                found.extend(parts)
        return found

    def _node(self, node: Node) -> PhysicalSpec:
        """The cell of a node. Levels inside it that do not divide its devices evenly are no cells."""
        kind = node.gpu_type or GPU
        parts, size = [PhysicalSpec(kind, str(device)) for device in range(node.gpus)], 1
        self._level[kind] = GPU
        for level, count in reversed(node.split):
            each = node.gpus // count
            if count > 1 and each > size and node.gpus % count == 0 and each % size == 0:
                parts = self._group(level, parts, each // size)
                size = each
        kind = self._type(NODE, parts[0].type, len(parts))
        return PhysicalSpec(kind, node.name, node.name if node.name in self._pinned else "", tuple(parts))

    def _group(self, level: str, parts: list[PhysicalSpec], count: int) -> list[PhysicalSpec]:
        kind = self._type(level, parts[0].type, count)
        groups = [tuple(parts[at : at + count]) for at in range(0, len(parts), count)]
        return [PhysicalSpec(kind, str(number), children=group) for number, group in enumerate(groups)]

    def _type(self, level: str, child: str, count: int) -> str:
        """The type of a cell of a level made so; the first of a kind and level has the plain name."""
        known = self._names.get((level, child, count))
        if known is not None:
            return known
        leaf = child
        while leaf in self.types:
            leaf = self.types[leaf].child
        name, number = f"{leaf}-{level}", 1
        while name in self.types:
            number += 1
            name = f"{leaf}-{level}-{number}"
        self._names[level, child, count] = name
        self.types[name] = CellType(name, child, count, is_node=level == NODE)
        self._level[name] = level
        return name

    def spec_of(self, owned: Owned) -> VirtualSpec:
        """The one chain and type that a cluster owns cells of."""
        found: list[tuple[str, str, int]] = []
        for top in dict.fromkeys(spec.type for spec in self.tops):
            chain = chain_of(self.types, top)
            for level in range(1, chain.top + 1):
                kind = chain.types[level]
                fits = (
                    self._level[kind] == owned.level
                    and owned.gpu_type in ("", chain.leaf_type)
                    and owned.gpus in (None, chain.leaves[level])
                    and owned.within in ("", *(self._level[each] for each in chain.types[level:]))
                )
                if fits:
                    found.append((top, kind, chain.leaves[level]))
        if len(found) != 1:
            raise owned.place.error(self._complaint(owned, found))
        return VirtualSpec(found[0][0], found[0][1], owned.count)

    def _complaint(self, owned: Owned, found: list[tuple[str, str, int]]) -> str:
        asked = " ".join(filter(None, (owned.level, owned.gpu_type, f"of {owned.gpus} GPUs" if owned.gpus else "")))
        if not found:
            there = ", ".join(f"{name} ({level})" for name, level in self._level.items())
            return f"no cell is a {asked}; there are {there}"
        these = ", ".join(f"{kind} of {gpus} GPUs in {top}" for top, kind, gpus in found)
        return f"several kinds of cells are a {asked}: {these}; say which by 'gpu_type', 'gpus' or 'within'"
