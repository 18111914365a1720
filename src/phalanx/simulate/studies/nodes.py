"""Clusters of other sizes: the same cluster with more or fewer nodes of one kind, for `--vary nodes` and capacity."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice

from phalanx.cluster.cluster import Cluster, Node
from phalanx.cluster.formats.limits import NODES_MAX
from phalanx.errors import PhalanxError

Kind = tuple[int, str, float, int, int]


class NodesError(PhalanxError):
    """A number of nodes that a cluster cannot have."""


def with_nodes(cluster: Cluster, count: int, like: str = "") -> Cluster:
    """The cluster with so many nodes in all, by adding or leaving out nodes of the kind of `like`.

    Without `like` that is the kind that there are most of. Nodes that are left out are the last of their kind. Nodes
    that are added fill domains of the same sizes as those that there are; a domain that holds all nodes holds them too.
    """
    if not 1 <= count <= NODES_MAX:
        raise NodesError(f"{count:,} nodes: expected from 1 to {NODES_MAX:,}")
    if cluster.cells is not None:
        raise NodesError("the number of nodes of a cluster with virtual clusters is fixed: they own its hardware")
    model = node_like(cluster, like)
    own = [node for node in cluster.nodes if kind_of(node) == kind_of(model)]
    wanted = count - (len(cluster.nodes) - len(own))
    if wanted < 0:
        rest = len(cluster.nodes) - len(own)
        raise NodesError(f"{count:,} nodes: the cluster has {rest:,} of other kinds than {model.name}, which stay")
    kept = frozenset(node.name for node in own[:wanted])
    stay = tuple(node for node in cluster.nodes if kind_of(node) != kind_of(model) or node.name in kept)
    added = islice(_more(cluster, model, own), max(wanted - len(own), 0))
    nodes = (*stay, *added)
    names = frozenset(node.name for node in nodes)
    windows = (replace(each, nodes=tuple(filter(names.__contains__, each.nodes))) for each in cluster.maintenance)
    return replace(cluster, nodes=nodes, maintenance=tuple(each for each in windows if each.nodes))


def node_like(cluster: Cluster, name: str = "") -> Node:
    """The node of a name; without one, the first of the kind that there are most of."""
    if not cluster.nodes:
        raise NodesError(f"the cluster {cluster.name!r} has no node that others could be like")
    if name:
        found = next((node for node in cluster.nodes if node.name == name), None)
        if found is None:
            raise NodesError(f"there is no node {name!r} in the cluster {cluster.name!r}")
        return found
    with_gpus = [node for node in cluster.nodes if node.gpus] or list(cluster.nodes)
    (most, _), *_ = Counter(map(kind_of, with_gpus)).most_common(1)
    return next(node for node in with_gpus if kind_of(node) == most)


def kind_of(node: Node) -> Kind:
    """What makes nodes alike: their hardware."""
    return (node.gpus, node.gpu_type, node.gpu_memory_gb, node.cpus_milli, node.memory_mb)


def _more(cluster: Cluster, model: Node, own: Sequence[Node]) -> Iterator[Node]:
    """Nodes like the model without end, in domains of their own where the cluster has several of a level."""
    taken = frozenset(node.name for node in cluster.nodes)
    sizes = [_domain_size(own, level) for level in range(len(model.path))]
    number = index = 0
    while True:
        number += 1
        name = f"{model.name}-more{number}"
        if name in taken:
            continue
        path = tuple(
            model.path[level] if size is None else f"{cluster.levels[level]}-more{index // size + 1}"
            for level, size in enumerate(sizes)
        )
        index += 1
        yield replace(model, name=name, path=path)


def _domain_size(own: Sequence[Node], level: int) -> int | None:
    """How many nodes the largest domain of a level holds; None where one domain holds all."""
    counts = Counter(node.path[: level + 1] for node in own)
    return None if len(counts) == 1 else max(counts.values())
