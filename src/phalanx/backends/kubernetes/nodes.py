"""The nodes of Kubernetes: which there are, how they are, and what pods of others hold of them."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import msgspec

from phalanx.backends.kubernetes.pod import SERVER
from phalanx.backends.local.folder import read_paper, write_durably
from phalanx.backends.slurm.nodes import catalogued
from phalanx.cluster.cluster import DEFAULT_POLICY, Cluster, Health
from phalanx.kube.api.client import Client
from phalanx.kube.api.reflector import Page
from phalanx.kube.nodes import cluster_of, gpu_resource, health_of
from phalanx.kube.objects.meta import Wire
from phalanx.kube.objects.node import KubeNode, NodeStatus
from phalanx.kube.objects.pod import Pod
from phalanx.kube.pods.demand import demand_of
from phalanx.protocol.event import Event, ForeignUse, NodeHealthChanged

PATH = "/api/v1/nodes"
NOT_THERE = "Kubernetes has no node of that name"


class Address(Wire, frozen=True):
    """An address of a node."""

    type: str = ""
    address: str = ""


class ReportedStatus(NodeStatus, frozen=True):
    """What a node has, how it is, and where it is reached."""

    addresses: list[Address] | None = None


class ReportedNode(KubeNode, frozen=True):
    """A node with its addresses."""

    status: ReportedStatus = ReportedStatus()


def ask_cluster(client: Client) -> Cluster:
    """The cluster of all nodes there are now."""
    page = client.get(PATH, Page)
    found = cluster_of(msgspec.json.decode(item, type=KubeNode) for item in page.items or ())
    nodes = []
    for node in found.nodes:
        name, memory_gb = catalogued(node.gpu_type) if node.gpus else ("", 0.0)
        nodes.append(replace(node, gpu_type=name, gpu_memory_gb=memory_gb, storage_gb=()))
    return replace(found, nodes=tuple(nodes), policy=DEFAULT_POLICY)


class Nodes:
    """Compares what Kubernetes says with what was told last. Healths are kept beyond a restart: a node that phalanx
    itself was told to drain is not made healthy by it. One that is not ready for `lost_after_s` has failed.
    """

    def __init__(self, names: Collection[str], folder: Path, server: str, lost_after_s: float) -> None:
        self._names = names
        self._path = str(folder / "kubernetes-nodes.json")
        self._server = server
        self._lost_after_s = lost_after_s
        self._told: dict[str, list[str]] = read_paper(self._path) or {}
        self._nodes: dict[str, ReportedNode] | None = None
        self._silent_s: dict[str, float] = {}
        self._others: dict[str, Pod] = {}
        self._foreign: dict[str, ForeignUse] = {}

    def take_nodes(self, nodes: Iterable[ReportedNode]) -> None:
        """All nodes that there are."""
        self._nodes = {node.metadata.name: node for node in nodes}

    def take_node(self, node: ReportedNode, gone: bool) -> None:
        """A node that is new, has changed, or is gone."""
        if self._nodes is not None and (not gone or node.metadata.name in self._nodes):
            self._nodes[node.metadata.name] = node
            if gone:
                del self._nodes[node.metadata.name]

    def take_pods(self, pods: Iterable[Pod]) -> None:
        """All pods that there are."""
        self._others = {}
        for pod in pods:
            self.take_pod(pod, False)

    def take_pod(self, pod: Pod, gone: bool) -> None:
        """A pod that is new, has changed, or is gone."""
        is_ours = (pod.metadata.labels or {}).get(SERVER) == self._server
        if gone or is_ours or pod.is_over or not pod.spec.node_name:
            self._others.pop(pod.metadata.key, None)
        else:
            self._others[pod.metadata.key] = pod

    def resources(self) -> Mapping[str, str]:
        """What the GPUs of nodes are to their kubelets, by node; empty where no plugin gives them out."""
        return {name: gpu_resource(node) for name, node in (self._nodes or {}).items()}

    def addresses(self) -> Mapping[str, str]:
        """Where nodes are reached."""
        found: dict[str, str] = {}
        for name, node in (self._nodes or {}).items():
            for each in node.status.addresses or ():
                if each.type == "InternalIP":
                    found.setdefault(name, each.address)
        return found

    def is_ready(self, name: str) -> bool:
        """Whether a node's kubelet answers."""
        node = (self._nodes or {}).get(name)
        return node is not None and health_of(node)[0] is not Health.SUSPECT

    def news(self) -> list[Event]:
        """What has changed since this was asked last."""
        if self._nodes is None:
            return []
        return [*self._healths(self._nodes), *self._uses()]

    def _healths(self, nodes: Mapping[str, ReportedNode]) -> Iterator[Event]:
        healthy, changed = [Health.HEALTHY.value, ""], False
        for name in self._names:
            health, reason = self._health(name, nodes.get(name))
            if health.value == self._told.get(name, healthy)[0]:
                continue
            self._told[name], changed = [health.value, reason], True
            yield NodeHealthChanged(name, health, reason)
        if changed:
            write_durably(self._path, self._told)

    def _health(self, name: str, node: ReportedNode | None) -> tuple[Health, str]:
        if node is None:
            return Health.FAILED, NOT_THERE
        health, reason = health_of(node)
        if health is not Health.SUSPECT:
            self._silent_s.pop(name, None)
            return health, f"Kubernetes: {reason}" if reason else ""
        silent_s = time.monotonic() - self._silent_s.setdefault(name, time.monotonic())
        if silent_s >= self._lost_after_s:
            return Health.FAILED, f"Kubernetes: {reason} for {self._lost_after_s:g} s"
        return health, f"Kubernetes: {reason}"

    def _uses(self) -> Iterator[Event]:
        """What pods of others hold, told as it changes."""
        used: dict[str, list[int]] = {name: [0, 0, 0] for name in self._names}
        for pod in self._others.values():
            if pod.spec.node_name in used:
                for at, amount in enumerate(_demand(pod)):
                    used[pod.spec.node_name][at] += amount
        for name, (gpus, cpus_milli, memory_mb) in used.items():
            use = ForeignUse(name, gpus=gpus, cpus_milli=cpus_milli, memory_mb=memory_mb)
            if use != self._foreign.get(name, ForeignUse(name)):
                self._foreign[name] = use
                yield use


def _demand(pod: Pod) -> tuple[int, int, int]:
    try:
        demand = demand_of(pod)
    except ValueError:
        return (0, 0, 0)
    return demand.gpus, demand.cpus_milli, demand.memory_mb
