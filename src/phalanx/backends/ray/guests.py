"""Nodes that have joined Ray and are not in the cluster yet: it takes them in where it is the cluster that Ray has."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection
from dataclasses import replace
from queue import Empty, SimpleQueue

from phalanx.backends.ray.nodes import CLUSTER, NoCluster, cluster_of_ray
from phalanx.cluster.cluster import Cluster, Node
from phalanx.protocol.event import ClusterChanged

log = logging.getLogger(__name__)


class Guests:
    """Asks Ray what new nodes have. A cluster that a file describes is left as it is."""

    def __init__(self, cluster: Callable[[], Cluster], address: str, wake: Callable[[], None]) -> None:
        self._cluster = cluster
        self._address = address
        self._wake = wake
        self._found: SimpleQueue[tuple[Node, ...]] = SimpleQueue()
        self._asking: threading.Thread | None = None

    def look(self, there: Collection[str]) -> None:
        """Asks, where one of these nodes is not in the cluster."""
        cluster = self._cluster()
        is_asking = self._asking is not None and self._asking.is_alive()
        if cluster.name != CLUSTER or is_asking or set(there) <= _names(cluster):
            return
        self._asking = threading.Thread(target=self._ask, name="nodes of ray", daemon=True)
        self._asking.start()

    def changes(self) -> list[ClusterChanged]:
        """The cluster of now with what was found. Called by what folds it in, so that no other change comes between."""
        found: list[Node] = []
        while True:
            try:
                found += self._found.get_nowait()
            except Empty:
                break
        cluster = self._cluster()
        fresh = {node.name: node for node in found if _can_join(cluster, node)}
        return [ClusterChanged(replace(cluster, nodes=(*cluster.nodes, *fresh.values())))] if fresh else []

    def _ask(self) -> None:
        try:
            self._found.put(cluster_of_ray(self._address).nodes)
        except NoCluster as error:
            log.warning("nodes that joined Ray are not taken in: %s", error)
        else:
            self._wake()


def _names(cluster: Cluster) -> set[str]:
    return {node.name for node in cluster.nodes}


def _can_join(cluster: Cluster, node: Node) -> bool:
    """Whether a node is new, and lies in as many levels as those there are."""
    return node.name not in _names(cluster) and len(node.path) == len(cluster.nodes[0].path)
