"""Capacity: what nodes are, how they are, and what foreign pods use of them, told to the engine as it changes."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator

from phalanx.cluster.cluster import Cluster, Health
from phalanx.kube.gangs.arrangement import Arrangement, eligible_label
from phalanx.kube.gangs.bundle import GpuTypes
from phalanx.kube.mirror import Mirror, Uses
from phalanx.kube.nodes import cluster_of, gpu_resource, gpu_type, health_of
from phalanx.protocol.event import ClusterChanged, Event, ForeignUse, NodeHealthChanged


class Capacity:
    """What the engine was told of nodes. `owned` are the pods that it knows by their jobs."""

    def __init__(
        self,
        mirror: Mirror,
        topology: tuple[str, ...],
        owned: Container[str],
        arrangements: Callable[[], Iterable[tuple[str, Arrangement]]],
    ) -> None:
        self._mirror = mirror
        self._arrangements = arrangements
        self._topology = topology
        self._owned = owned
        self._health: dict[str, tuple[Health, str]] = {}
        self._uses: dict[str, Uses] = {}
        self._told: dict[str, Uses] = {}
        self.gpu_types: GpuTypes = {}
        self.cluster = Cluster(())

    def define(self) -> Cluster:
        """The cluster as it is now."""
        mirror = self._mirror
        mirror.nodes_changed = False
        self.know_types()
        others = {node: dict(uses.others) for node, uses in self._uses.items() if uses.others}
        arranged = {eligible_label(job): each for job, each in self._arrangements()}
        self.cluster = cluster_of(
            mirror.nodes.values(), mirror.affinities(), self._topology, others, mirror.ports(), arranged
        )
        return self.cluster

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
            said = Uses(uses.gpus, uses.cpus_milli, uses.memory_mb)
            if name in self._mirror.nodes and said != self._told.get(name, Uses()):
                self._told[name] = said
                yield ForeignUse(name, gpus=said.gpus, cpus_milli=said.cpus_milli, memory_mb=said.memory_mb)
