"""Capacity: what nodes are, how they are, and what foreign pods use of them, told to the engine as it changes."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import replace

from phalanx.cluster.cluster import NODE, Cluster, Health, Node
from phalanx.kube.gangs.arrangement import Arrangement
from phalanx.kube.gangs.bundle import GpuTypes
from phalanx.kube.mirror import Mirror, Uses
from phalanx.kube.nodes import cluster_of, gpu_resource, gpu_type, health_of
from phalanx.kube.queues import queue_path, queues_of
from phalanx.kube.tiers import labelled, labels_by_node, tier_labels
from phalanx.protocol.event import ClusterChanged, Event, ForeignUse, NodeHealthChanged


def no_smaller(node: Node, old: Node, held: Mapping[str, int]) -> Node:
    """A node with at least what it had of GPUs, CPUs and memory, and what is held of other resources."""
    has = {**dict.fromkeys(held, 0), **dict(node.storage_gb)}
    return replace(
        node,
        gpus=max(node.gpus, old.gpus),
        gpu_type=old.gpu_type or node.gpu_type,
        cpus_milli=max(node.cpus_milli, old.cpus_milli),
        memory_mb=max(node.memory_mb, old.memory_mb),
        storage_gb=tuple((name, max(amount, held.get(name, 0))) for name, amount in has.items()),
    )


class Capacity:
    """What the engine was told of nodes. `owned` are the pods that it knows by their jobs; `conflicts` what queues say
    that cannot hold in this cluster.
    """

    def __init__(
        self,
        mirror: Mirror,
        topology: tuple[str, ...],
        owned: Container[str],
        arrangements: Callable[[], Iterable[Arrangement]],
        held: Callable[[], Mapping[str, Uses]],
        levels: Callable[[], Iterable[str]],
    ) -> None:
        self._mirror = mirror
        self._arrangements = arrangements
        self._held = held
        self._levels = levels
        self._short: dict[str, Uses] = {}
        self._topology = topology
        self._owned = owned
        self._health: dict[str, tuple[Health, str]] = {}
        self._uses: dict[str, Uses] = {}
        self._told: dict[str, Uses] = {}
        self.gpu_types: GpuTypes = {}
        self._named: dict[str, None] = {}
        self.conflicts: dict[str, str] = {}
        self.cluster = Cluster(())

    def define(self) -> Cluster:
        """The cluster as it is now."""
        mirror = self._mirror
        mirror.nodes_changed = False
        self.know_types()
        others = {node: dict(uses.others) for node, uses in self._uses.items() if uses.others}
        hyper_nodes = mirror.hyper_nodes.values()
        asked = [level for level in self._levels() if level != NODE]
        tiers = tier_labels(hyper_nodes, asked)
        topology = tuple(dict.fromkeys((*self._topology, *tiers, *asked)))
        by_node = labels_by_node(hyper_nodes, mirror.nodes, tiers)
        nodes = (labelled(node, by_node.get(name)) for name, node in mirror.nodes.items())
        cluster = cluster_of(nodes, mirror.affinities(), topology, others, mirror.ports(), self._arrangements(), asked)
        self.cluster = self._no_smaller(cluster)
        # Jobs may outlive the group that named their queue.
        self._named.update(
            dict.fromkeys(queue_path(group.spec.queue, mirror.queues) for group in mirror.groups.values())
        )
        self._named.pop("", None)
        queues, self.conflicts = queues_of(mirror.queues, self._named, self.cluster.total)
        self.cluster = replace(self.cluster, queues=queues)
        return self.cluster

    def _no_smaller(self, cluster: Cluster) -> Cluster:
        """A cluster in which nodes with pods of ours have no less than before: a device plugin that starts again, or a
        kubelet with other reserves, is no reason to stop what runs. What is missing counts as used.
        """
        before, held = {node.name: node for node in self.cluster.nodes}, self._held()
        self._short.clear()
        nodes = []
        for node in cluster.nodes:
            old, uses = before.get(node.name), held.get(node.name)
            if old is not None and uses is not None:
                kept = no_smaller(node, old, dict(uses.others))
                short = Uses(kept.gpus - node.gpus, kept.cpus_milli - node.cpus_milli, kept.memory_mb - node.memory_mb)
                if short != Uses():
                    self._short[node.name] = short
                node = kept
            nodes.append(node)
        return replace(cluster, nodes=tuple(nodes))

    def events(self) -> Iterator[Event]:
        """What has changed since."""
        touched = self._count()
        if self._mirror.nodes_changed:
            before = self.cluster
            if self.define() != before:
                yield ClusterChanged(self.cluster)
                self._forget_gone()
        yield from self._health_events(touched)
        yield from self._use_events(touched)

    def know_types(self) -> None:
        """Takes note of the GPUs that there are."""
        found: dict[str, dict[str, None]] = {}
        for node in self._mirror.nodes.values():
            resource = gpu_resource(node)
            if resource:
                found.setdefault(resource, {})[gpu_type(node)] = None
        self.gpu_types = {resource: tuple(sorted(types)) for resource, types in sorted(found.items())}

    def _count(self) -> tuple[str, ...]:
        """Counts anew what foreign pods use of the nodes on which that may have changed, and says which these are."""
        mirror = self._mirror
        touched = tuple(mirror.nodes_used)
        for node in touched:
            if node in self._short:
                mirror.nodes_changed = True
            uses = mirror.uses(node, self._owned)
            if uses.others != self._uses.get(node, Uses()).others:
                # Resources that are known by name are taken from the node itself.
                mirror.nodes_changed = True
            self._uses[node] = uses
        mirror.nodes_used.clear()
        return touched

    def _forget_gone(self) -> None:
        there = {node.name for node in self.cluster.nodes}
        for told in (self._health, self._told, self._uses):
            for name in [name for name in told if name not in there]:
                del told[name]

    def _health_events(self, touched: Iterable[str]) -> Iterator[NodeHealthChanged]:
        nodes = self._mirror.nodes
        for name in touched:
            if name not in nodes:
                continue
            health = health_of(nodes[name])
            if self._health.get(name, (Health.HEALTHY, "")) != health:
                self._health[name] = health
                yield NodeHealthChanged(name, *health)

    def _use_events(self, touched: Iterable[str]) -> Iterator[ForeignUse]:
        for name in touched:
            uses = self._uses.get(name, Uses())
            short = self._short.get(name, Uses())
            said = Uses(uses.gpus + short.gpus, uses.cpus_milli + short.cpus_milli, uses.memory_mb + short.memory_mb)
            if name in self._mirror.nodes and said != self._told.get(name, Uses()):
                self._told[name] = said
                yield ForeignUse(name, gpus=said.gpus, cpus_milli=said.cpus_milli, memory_mb=said.memory_mb)
