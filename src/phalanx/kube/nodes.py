"""Nodes of Kubernetes as nodes of ours: what they have, what keeps jobs off them, and in which domains they lie."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from decimal import Decimal

from phalanx.cluster.cluster import NODE, Cluster, Health, Node, Taint
from phalanx.kube.api.quantity import BYTES_PER_MB, down, quantity
from phalanx.kube.gangs.arrangement import Arrangement, eligible_label
from phalanx.kube.objects.node import KubeNode
from phalanx.kube.objects.pod import NodeSelector
from phalanx.kube.pods.demand import GPU_RESOURCES, PODS, UNCOUNTED, is_bytes
from phalanx.kube.pods.selection import NO_VALUE, YES, affinity_label, meets

TIERS_MAX = 8
"""Tiers of switches that are looked for: Topograph has a label for each there is, 0 next to the node."""

TOPOLOGY_LABELS = (
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
    *(f"fabric.topograph.run/tier-{tier}" for tier in reversed(range(TIERS_MAX))),
    "network.topology.nvidia.com/datacenter",
    "network.topology.nvidia.com/core",
    "network.topology.nvidia.com/spine",
    "network.topology.nvidia.com/leaf",
    "network.topology.nvidia.com/block",
    "network.topology.nvidia.com/accelerator",
    "accelerator.topograph.run/domain",
    "accelerator.topograph.run/sub-domain",
    "nvidia.com/gpu.clique",
)
"""Labels that name the domain of a node, outermost first. Those of `network.topology.nvidia.com` are of Topograph
before 1.0.
"""

PRODUCT_LABELS = ("nvidia.com/gpu.product", "amd.com/gpu.product-name")

HEALTH_TAINTS = (
    "node.kubernetes.io/unschedulable",
    "node.kubernetes.io/not-ready",
    "node.kubernetes.io/unreachable",
)
"""Taints that say what the health of a node says."""

PROBLEMS = ("KernelDeadlock", "ReadonlyFilesystem", "CorruptDockerOverlay2", "XfsShutdown")
"""Conditions of node-problem-detector with which pods that start would fail. Those that it calls frequent restarts are
left to people.
"""

Unit = tuple[tuple[str, int], ...]


def cluster_of(
    nodes: Iterable[KubeNode],
    affinities: Iterable[NodeSelector] = (),
    topology: tuple[str, ...] = TOPOLOGY_LABELS,
    used: Mapping[str, Mapping[str, int]] | None = None,
    ports: Iterable[str] = (),
    arrangements: Iterable[Arrangement] = (),
    asked: Collection[str] = (),
) -> Cluster:
    """The cluster of some nodes. `affinities` are those that pods require; `used` is what pods of other schedulers use
    of resources that are known by name alone, by node; `ports` are those of nodes that pods ask for; `arrangements`
    are those of gangs; `asked` are labels that stay levels of the tree even where no node has them, since jobs ask for
    them.
    """
    found = sorted(nodes, key=lambda node: node.metadata.name)
    levels = tuple(
        key for key in topology if key in asked or any(key in (node.metadata.labels or {}) for node in found)
    )
    known = {affinity_label(each): each for each in affinities}
    taken, each_port = used or {}, tuple((port, 1) for port in ports)
    eligible, offered = _arranged(arrangements)
    return Cluster(
        tuple(
            _node(
                node,
                levels,
                known,
                taken.get(node.metadata.name, {}),
                (*each_port, *sorted(offered.get(node.metadata.name, {}).items())),
                eligible.get(node.metadata.name, ()),
            )
            for node in found
        ),
        levels=(*levels, NODE),
        name="kubernetes",
    )


def _node(
    node: KubeNode,
    levels: tuple[str, ...],
    affinities: Mapping[str, NodeSelector],
    used: Mapping[str, int],
    offers: Unit,
    eligible: Iterable[str],
) -> Node:
    name, labels = node.metadata.name, node.metadata.labels or {}
    has = allocatable(node)
    resource = gpu_resource(node)
    met = ((label, YES) for label, affinity in affinities.items() if meets(affinity, node))
    may_go = ((label, YES) for label in eligible)
    return Node(
        name,
        # A node without a label is a domain by itself: nothing is known to be near it.
        tuple(labels.get(level) or f"{NODE} {name}" for level in levels),
        gpus=down(has.get(resource, Decimal(0))),
        gpu_type=gpu_type(node),
        cpus_milli=down(1000 * has.get("cpu", Decimal(0))),
        memory_mb=down(has.get("memory", Decimal(0)) / BYTES_PER_MB),
        storage_gb=tuple((key, max(amount - used.get(key, 0), 0)) for key, amount in (*_others(has), *offers)),
        labels=(*sorted(labels.items()), *sorted(met), *sorted(may_go)),
        taints=tuple(
            Taint(taint.key, taint.value or NO_VALUE, taint.effect)
            for taint in node.spec.taints or ()
            if taint.key not in HEALTH_TAINTS
        ),
    )


def _arranged(arrangements: Iterable[Arrangement]) -> tuple[dict[str, list[str]], dict[str, dict[str, int]]]:
    """The labels and the resources that nodes have for the sake of arrangements."""
    eligible: dict[str, list[str]] = {}
    offered: dict[str, dict[str, int]] = {}
    labels: dict[str, None] = {}
    seen: dict[tuple[str, int], None] = {}
    for arrangement in arrangements:
        label = eligible_label(arrangement)
        if arrangement.eligible is not None and label not in labels:
            labels[label] = None
            for name in arrangement.eligible:
                eligible.setdefault(name, []).append(label)
        for resource, amounts in arrangement.offers.items():
            # Thousands of pods may offer the very same.
            if (resource, id(amounts)) in seen:
                continue
            seen[resource, id(amounts)] = None
            for name, amount in amounts.items():
                offers = offered.setdefault(name, {})
                offers[resource] = max(offers.get(resource, 0), amount)
    return eligible, offered


def allocatable(node: KubeNode) -> dict[str, Decimal]:
    """What pods may have of a node. A quantity that is none counts as nothing."""
    found = {}
    for name, written in (node.status.allocatable or {}).items():
        try:
            found[name] = max(quantity(written), Decimal(0))
        except ValueError:
            found[name] = Decimal(0)
    return found


def gpu_resource(node: KubeNode) -> str:
    """The resource that the GPUs of a node are; empty for a node without any."""
    has = allocatable(node)
    return next((name for name in GPU_RESOURCES if has.get(name)), "")


def gpu_type(node: KubeNode) -> str:
    """The product that the GPUs of a node are, or else their resource."""
    labels = node.metadata.labels or {}
    return next((labels[key] for key in PRODUCT_LABELS if key in labels), "") or gpu_resource(node)


def _others(has: Mapping[str, Decimal]) -> Iterator[tuple[str, int]]:
    yield PODS, down(has.get(PODS, Decimal(0)))
    yield from (
        (name, down(amount / BYTES_PER_MB) if is_bytes(name) else down(amount))
        for name, amount in sorted(has.items())
        if name not in UNCOUNTED
    )


def health_of(node: KubeNode) -> tuple[Health, str]:
    """Whether a node takes new pods, and why not."""
    if node.spec.unschedulable:
        return Health.DRAINING, "cordoned"
    for condition in node.status.conditions or ():
        if condition.type == "Ready" and condition.status != "True":
            return Health.SUSPECT, condition.reason or "not ready"
    tainted = {taint.key for taint in node.spec.taints or ()}
    for key in HEALTH_TAINTS[1:]:
        if key in tainted:
            return Health.SUSPECT, key.rpartition("/")[2]
    for condition in node.status.conditions or ():
        if condition.type in PROBLEMS and condition.status == "True":
            # Its kubelet answers, so what runs there is not given up.
            return Health.DRAINING, f"{condition.type}: {condition.reason}" if condition.reason else condition.type
    return Health.HEALTHY, ""
