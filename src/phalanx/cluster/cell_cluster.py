"""A site of cells as a cluster of the engine, and the way back from its nodes and devices to leaves."""

from __future__ import annotations

from dataclasses import dataclass, replace

from phalanx.cluster.catalogue import UnknownAccelerator, accelerator
from phalanx.cluster.cells import CellSite, Chain, PhysicalSpec, Sku
from phalanx.cluster.cluster import NODE, Cluster, Node

ABOVE = ("rack", "pod", "region", "zone")
"""Levels over nodes, from the node up; chains of different heights share them."""

INSIDE = ("socket", "switch", "pair", "half-pair")
"""Levels in nodes, from the node down."""


MEMORY_GB_UNKNOWN = 16.0
"""Memory of a leaf whose type is in no catalogue: a site of cells does not say."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """A leaf as HiveD names it: the chain, the node and the index on it."""

    chain: str
    node: str
    index: int


@dataclass(frozen=True, slots=True)
class CellCluster:
    """The cluster, and for each of its nodes the leaves in the order of its devices."""

    cluster: Cluster
    leaves: dict[str, tuple[Leaf, ...]]

    def device_of(self, leaf: Leaf) -> tuple[str, int]:
        """The node of the cluster and the device on it that a leaf is."""
        for name, leaves in self.leaves.items():
            if leaf in leaves:
                return name, leaves.index(leaf)
        raise KeyError(leaf)


def cluster_of(site: CellSite) -> CellCluster:
    """The cluster of a site. A node with leaves of two kinds is two nodes, the second named with its kind."""
    chains = site.chains()
    height = max(chain.top - chain.node_level for chain in chains.values())
    depth = max(chain.node_level - 2 for chain in chains.values())
    nodes: list[Node] = []
    leaves: dict[str, tuple[Leaf, ...]] = {}
    for number, spec in enumerate(site.physical):
        for node, found in _nodes(spec, chains[spec.type], (f"{spec.type}-{spec.address or number}",), height, site):
            name = node.name if node.name not in leaves else f"{node.name}.{node.gpu_type}"
            leaves[name] = found
            nodes.append(replace(node, name=name))
    levels = (*reversed(_names(ABOVE, height)), NODE, *_names(INSIDE, depth))
    return CellCluster(Cluster(tuple(nodes), levels, cells=site), leaves)


def _nodes(
    spec: PhysicalSpec, chain: Chain, path: tuple[str, ...], height: int, site: CellSite
) -> list[tuple[Node, tuple[Leaf, ...]]]:
    level = chain.level_of(spec.type)
    if level > chain.node_level:
        return [
            found
            for child in spec.children
            for found in _nodes(child, chain, (*path, f"{path[-1]}-{child.address}"), height, site)
        ]
    # The last of the path is the node itself; a chain lower than other chains has no domains at the outer levels.
    domains = path[:-1]
    full = (("",) * (height - len(domains)) + domains) if domains else ("",) * height
    found = tuple(Leaf(chain.name, spec.address, int(leaf.address)) for leaf in spec.walk() if not leaf.children)
    sku = site.skus.get(chain.leaf_type, Sku(chain.leaf_type))
    count = len(found)
    split = tuple(
        (name, count // chain.leaves[chain.node_level - 1 - i])
        for i, name in enumerate(_names(INSIDE, max(chain.node_level - 2, 0)))
    )
    node = Node(
        spec.address,
        full,
        count,
        chain.leaf_type,
        _memory_gb(chain.leaf_type),
        count * sku.cpus_milli,
        count * sku.memory_mb,
        split=split,
    )
    return [(node, found)]


def _memory_gb(leaf_type: str) -> float:
    try:
        return accelerator(leaf_type).memory_gb.value
    except UnknownAccelerator:
        return MEMORY_GB_UNKNOWN


def _names(known: tuple[str, ...], count: int) -> tuple[str, ...]:
    """Names of so many levels; beyond the known ones they are numbered."""
    return tuple(known[i] if i < len(known) else f"{known[0]}{i}" for i in range(count))
