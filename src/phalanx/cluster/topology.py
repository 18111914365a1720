"""The topology tree, compiled: nodes in tree order, so that every domain is a range of node numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from phalanx.cluster.bits import span
from phalanx.cluster.cluster import CLUSTER, NODE, Cluster, Link, Node
from phalanx.cluster.layout import Layout

DEFAULT_LINK = Link(gb_s=12.5, latency_us=10.0)
"""100 Gbit/s Ethernet, for a level whose bandwidth the cluster file leaves out and no inner level gives."""


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
        "bit",
        "cluster",
        "domain_of",
        "domains",
        "everything",
        "layouts",
        "levels",
        "nodes",
        "number",
    )

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.levels = cluster.levels_above
        paths = {node.name: _path(node, len(self.levels)) for node in cluster.nodes}
        self.nodes: tuple[Node, ...] = tuple(sorted(cluster.nodes, key=_tree_order(cluster, paths)))
        self.number = {node.name: i for i, node in enumerate(self.nodes)}
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

    def link(self, level: str) -> Link:
        """The link that joins the children of a domain: as given, else that of the nearest level outside or inside."""
        levels = (CLUSTER, *self.cluster.levels)
        at = levels.index(level)
        for name in (*reversed(levels[: at + 1]), *levels[at + 1 :]):
            if name in self.cluster.links:
                return self.cluster.links[name]
        return DEFAULT_LINK

    def position(self, node: int, device: int) -> tuple[int, ...]:
        """Where a device lies: the number of its domain at every level, outermost first, then its own."""
        inside = []
        for level in self.cluster.levels_inside:
            groups = self.layouts[node].levels.get(level, ())
            inside.append(next((i for i, group in enumerate(groups) if group >> device & 1), 0))
        return (*(self.domain_of[level][node] for level in self.levels), node, *inside, device)


def _path(node: Node, depth: int) -> tuple[str, ...]:
    """A node that names no domain at some level has one of its own there."""
    path = (*node.path, *([""] * (depth - len(node.path))))
    return tuple(name or f"{NODE}:{node.name}" for name in path)


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
