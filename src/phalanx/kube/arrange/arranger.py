"""The arranger: where a gang may go beside what is placed, and how its own pods lie beside one another."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, replace

import msgspec

from phalanx.cluster.cluster import NODE
from phalanx.kube.arrange.seats import Seats
from phalanx.kube.gangs.arrangement import ANYHOW, Arrangement, digest
from phalanx.kube.objects.node import KubeNode
from phalanx.kube.objects.pod import Pod
from phalanx.kube.pods.neighbours import Neighbours, minds
from phalanx.kube.pods.terms import Namespaces, apart_terms, means, near_terms, spreads, spreads_with

HOSTNAME = "kubernetes.io/hostname"
PLENTY = 1 << 20
"""As much of a resource as all pods of a domain can take."""


@dataclass(frozen=True, slots=True)
class Ground:
    """What there is to lie on: nodes, the labels of namespaces, the labels that are levels of our tree, how many GPUs
    each node has, and has free, one of something for every node, and kinds of which several pods wait.
    """

    nodes: Mapping[str, KubeNode]
    namespaces: Namespaces
    levels: tuple[str, ...]
    gpus: Callable[[], Mapping[str, int]]
    free: Callable[[], Mapping[str, int]]
    one_each: Mapping[str, int]
    crowds: Container[bytes]


def arrange(bundle_id: str, pods: tuple[Pod, ...], ground: Ground, neighbours: Neighbours) -> Arrangement:
    """An arrangement of a gang beside the pods that are placed."""
    inner = _Inner(pods, ground.namespaces)
    if inner.spread or inner.apart - {HOSTNAME} or (inner.apart and inner.near):
        return _seated(bundle_id, pods, ground, neighbours, inner)
    open_ = neighbours.open_to(pods)
    if not open_.nodes:
        return Arrangement(refused=_ruled_out(open_.refusals, len(ground.nodes)))
    found = ANYHOW
    if open_.refusals:
        found = Arrangement(open_.nodes, tuple(sorted(open_.refusals)), name=open_.name)
    if inner.apart or (len(pods) == 1 and kind_of(pods[0], ground.namespaces) in ground.crowds):
        return _one_a_node(pods, found, ground)
    if inner.near and len(pods) > 1 and neighbours.is_first(pods[0]):
        return _together(found, inner.near, ground)
    return found


class _Inner:
    """The labels by which pods of a gang mind one another: near, apart or spread."""

    def __init__(self, pods: tuple[Pod, ...], namespaces: Namespaces) -> None:
        self.near: set[str] = set()
        self.apart: set[str] = set()
        self.spread: set[str] = set()
        if len(pods) < 2 or not any(map(minds, pods)):
            return
        alike = {
            msgspec.json.encode((pod.metadata.labels, pod.spec.affinity, pod.spec.topology_spread_constraints)): pod
            for pod in pods
        }
        for pod in alike.values():
            for other in alike.values():
                self.near |= {each.topology_key for each in near_terms(pod) if means(each, pod, other, namespaces)}
                self.apart |= {each.topology_key for each in apart_terms(pod) if means(each, pod, other, namespaces)}
                self.spread |= {each.topology_key for each in spreads(pod) if spreads_with(each, pod, other)}


def kind_of(pod: Pod, namespaces: Namespaces) -> bytes:
    """Equal for pods of which a node takes one, whichever; empty for a pod beside which another of its kind may be."""
    is_one = any(term.topology_key == HOSTNAME and means(term, pod, pod, namespaces) for term in apart_terms(pod))
    return _kind(pod) if is_one else b""


def _one_a_node(pods: tuple[Pod, ...], found: Arrangement, ground: Ground) -> Arrangement:
    """Every pod takes what each node has one of. Gangs that are apart from one another take the same."""
    name = f"place beside none of its kind ({digest(min(map(_kind, pods)))})"
    takes = {pod.metadata.key: name for pod in pods if apart_terms(pod)}
    return replace(found, takes=takes, offers={name: ground.one_each})


def _kind(pod: Pod) -> bytes:
    """Equal for pods that are apart from the same others."""
    terms, labels = apart_terms(pod), pod.metadata.labels or {}
    keys = [key for term in terms for key in (*(term.match_label_keys or ()), *(term.mismatch_label_keys or ()))]
    return msgspec.json.encode((pod.metadata.namespace, terms, [labels.get(key) for key in keys]))


def _together(found: Arrangement, keys: set[str], ground: Ground) -> Arrangement:
    """All pods lie in one domain, of a label that is a level of our tree."""
    if HOSTNAME in keys:
        return replace(found, level=NODE)
    unknown = sorted(keys - set(ground.levels))
    if unknown:
        return Arrangement(
            refused=f"its pod affinity is by {unknown[0]}, which is no level of the topology: name it with --topology"
        )
    return replace(found, level=max(keys, key=ground.levels.index))


def _seated(
    bundle_id: str, pods: tuple[Pod, ...], ground: Ground, neighbours: Neighbours, inner: _Inner
) -> Arrangement:
    """Pods are seated one after the other, as kube-scheduler would: on free devices, or else on any."""
    for room in (ground.free, ground.gpus):
        seats = Seats(ground.nodes, room(), neighbours)
        with neighbours.tentatively():
            is_seated = seats.take(pods)
        if is_seated:
            break
    else:
        return Arrangement(refused=_ruled_out(seats.refusals, len(ground.nodes)))
    keys = inner.near | inner.apart | inner.spread
    if keys == inner.spread and len(keys) == 1 and HOSTNAME not in keys:
        (key,) = keys
        return _by_domain(key, seats, ground)
    name = f"place of {bundle_id}"
    offers = Counter(seats.of.values())
    return Arrangement(
        tuple(sorted(offers)),
        takes=dict.fromkeys(seats.of, name),
        offers={name: dict(sorted(offers.items()))},
        name=digest(bundle_id.encode()),
    )


def _by_domain(key: str, seats: Seats, ground: Ground) -> Arrangement:
    """Only the domain of each pod is settled: the engine chooses among its nodes."""
    domains: dict[str, dict[str, int]] = {}
    for name, node in ground.nodes.items():
        value = (node.metadata.labels or {}).get(key)
        if value is not None:
            domains.setdefault(f"{key}={value}", {})[name] = PLENTY
    takes = {pod: f"{key}={(ground.nodes[node].metadata.labels or {})[key]}" for pod, node in seats.of.items()}
    offers = {name: domains[name] for name in sorted(set(takes.values()))}
    return Arrangement(None, (), takes, offers)


def _ruled_out(refusals: Mapping[str, int], nodes: int) -> str:
    if not nodes:
        return "there are no nodes"
    parts = ", ".join(f"{count} ruled out by {what}" for what, count in sorted(refusals.items()))
    return f"of {nodes} node{'s' if nodes > 1 else ''}: {parts}"
