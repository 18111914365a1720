"""The topology tree, compiled: nodes in tree order, so that every domain is a range of node numbers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import lru_cache

from phalanx.cluster.bits import span
from phalanx.cluster.catalogue import UnknownAccelerator, accelerator
from phalanx.cluster.cluster import CLUSTER, NODE, Cluster, Link, Node
from phalanx.cluster.layout import Layout

DEFAULT_LINK = Link(gb_s=12.5, latency_us=10.0)
"""100 Gbit/s Ethernet, where neither the cluster file nor the catalogue says anything."""


@dataclass(frozen=True, slots=True)
class Domain:
    """A region, pod, rack, … : the nodes numbered `first` up to but not including `last`."""

    index: int
    level: str
    name: str
    parent: int
    first: int
    last: int
    nodes: int


class Topology:
    """Numbers for a cluster's nodes and domains. Nodes are numbered in tree order; the numbers never leave the core."""

    __slots__ = (
        "_lanes",
        "bit",
        "cluster",
        "domain_of",
        "domains",
        "everything",
        "gpu_types",
        "layouts",
        "levels",
        "nodes",
        "number",
    )

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.levels = cluster.levels_above
        paths = {node.name: _path(node, self.levels) for node in cluster.nodes}
        self.nodes: tuple[Node, ...] = tuple(sorted(cluster.nodes, key=_tree_order(cluster, paths)))
        self.number = {node.name: i for i, node in enumerate(self.nodes)}
        self.gpu_types = tuple(dict.fromkeys(node.gpu_type for node in self.nodes if node.gpu_type))
        self._lanes: dict[str, int] = {}
        self.bit = [1 << i for i in range(len(self.nodes))]
        self.everything = span(0, len(self.nodes))
        self.domains: dict[str, list[Domain]] = {}
        self.domain_of: dict[str, list[int]] = {}
        for depth, level in enumerate(self.levels):
            self._compile_level(depth, level, paths)
        shapes: dict[tuple[int, tuple[tuple[str, int], ...]], Layout] = {}
        self.layouts = [
            shapes.setdefault((node.gpus, node.split), Layout(node.gpus, node.split)) for node in self.nodes
        ]

    def _compile_level(self, depth: int, level: str, paths: dict[str, tuple[str, ...]]) -> None:
        domains: list[Domain] = []
        of_node: list[int] = []
        above = self.domain_of[self.levels[depth - 1]] if depth else None
        start = 0
        for i, node in enumerate(self.nodes):
            path = paths[node.name][: depth + 1]
            after = paths[self.nodes[i + 1].name][: depth + 1] if i + 1 < len(self.nodes) else None
            of_node.append(len(domains))
            if after != path:
                parent = above[start] if above else -1
                nodes = span(start, i + 1)
                domains.append(Domain(len(domains), level, path[-1], parent, start, i + 1, nodes))
                start = i + 1
        self.domains[level] = domains
        self.domain_of[level] = of_node

    def knows(self, level: str) -> bool:
        """Whether the cluster has such a level."""
        return level == CLUSTER or level in self.cluster.levels

    def link(self, level: str, gpu_types: Collection[str] = ()) -> Link:
        """The link that joins the children of a domain: as given for it or else for the nearest level out or in.

        What is given for the network does not go for the inside of a node, nor the other way round, if the catalogue
        knows what GPUs of these types, or of all there are, have: the slowest of them counts.
        """
        levels = (CLUSTER, *self.cluster.levels)
        at, node = levels.index(level), levels.index(NODE)
        nearest = [name for name in (*reversed(levels[: at + 1]), *levels[at + 1 :]) if name in self.cluster.links]
        alike = [name for name in nearest if (levels.index(name) < node) == (at < node)]
        if alike:
            return self.cluster.links[alike[0]]
        figures = [_catalogued_gb_s(name) for name in gpu_types or self.gpu_types]
        speeds_gb_s = [figure[at >= node] for figure in figures if figure is not None]
        if speeds_gb_s:
            return Link(min(speeds_gb_s))
        return self.cluster.links[nearest[0]] if nearest else DEFAULT_LINK

    def lanes(self, level: str) -> int:
        """How many transfers at full speed a domain of a level sends out of it at once: as many as it has GPUs.

        A node that says how many network cards it has has as many lanes, and a domain has those of its nodes.
        """
        if level not in self._lanes:
            self._lanes[level] = max(self._count_lanes(level), default=1)
        return self._lanes[level]

    def _count_lanes(self, level: str) -> Iterator[int]:
        if level in self.cluster.levels_inside:
            for layout in self.layouts:
                groups = layout.levels.get(level, ())
                yield from (group.bit_count() for group in groups[:1] if group)
            return
        of_nodes = [max(node.nics or node.gpus, 1) for node in self.nodes]
        if level == NODE:
            yield from of_nodes
            return
        for domain in self.domains[level]:
            yield sum(of_nodes[domain.first : domain.last])

    def position(self, node: int, device: int) -> tuple[int, ...]:
        """Where a device lies: the number of its domain at every level, outermost first, then its own."""
        inside = []
        for level in self.cluster.levels_inside:
            groups = self.layouts[node].levels.get(level, ())
            inside.append(next((i for i, group in enumerate(groups) if group >> device & 1), 0))
        return (*(self.domain_of[level][node] for level in self.levels), node, *inside, device)


@lru_cache(maxsize=1024)
def _catalogued_gb_s(gpu_type: str) -> tuple[float, float] | None:
    """What one GPU of a type sends to other nodes and inside its own, where the catalogue has the type."""
    try:
        known = accelerator(gpu_type)
    except UnknownAccelerator:
        return None
    return known.scale_out_gb_s.value, known.in_node_gb_s.value


def _path(node: Node, levels: tuple[str, ...]) -> tuple[str, ...]:
    """A node that names no domain at some level has one there with all that lie in the domain it names next inside.

    Where it names none inside either, it has one of its own.
    """
    inside = f"{NODE}:{node.name}"
    path: list[str] = []
    for depth in reversed(range(len(levels))):
        name = node.path[depth] if depth < len(node.path) else ""
        path.append(name or inside)
        if name:
            inside = f"{levels[depth]}:{name}"
    return tuple(reversed(path))


def _tree_order(cluster: Cluster, paths: dict[str, tuple[str, ...]]) -> Callable[[Node], tuple[int, ...]]:
    """Sort key: domains in the order in which the file first names them, so that files decide and names do not."""
    first_seen: dict[tuple[str, ...], int] = {}
    for i, node in enumerate(cluster.nodes):
        path = paths[node.name]
        for depth in range(len(path)):
            first_seen.setdefault(path[: depth + 1], i)

    def key(node: Node) -> tuple[int, ...]:
        path = paths[node.name]
        return tuple(first_seen[path[: depth + 1]] for depth in range(len(path)))

    return key
