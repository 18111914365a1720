"""Neighbours: whether a pod may go to a node beside the pods that are there, as kube-scheduler has it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import msgspec

from phalanx.kube.objects.node import KubeNode
from phalanx.kube.objects.pod import Pod, PodAffinityTerm
from phalanx.kube.pods.spread import Spread
from phalanx.kube.pods.terms import Namespaces, apart_terms, means, near_terms, spreads
from phalanx.kube.pods.volumes import Volumes

NEAR, APART, SPARED, SPREAD = (
    "its pod affinity",
    "its pod anti-affinity",
    "the pod anti-affinity of pods there",
    "its topology spread",
)
"""What keeps a pod off a node."""


NO_VOLUMES = Volumes()


class Neighbours:
    """The pods on nodes, as far as others mind them, and the volumes that they have."""

    def __init__(self, nodes: Mapping[str, KubeNode], namespaces: Namespaces, volumes: Volumes = NO_VOLUMES) -> None:
        self._nodes = nodes
        self._namespaces = namespaces
        self._volumes = volumes
        self._placed: list[tuple[Pod, KubeNode]] = []
        self._shy: list[tuple[Pod, KubeNode]] = []
        self._rules: dict[bytes, _Rules] = {}
        self._written: dict[tuple[str, str], bytes] = {}

    def add(self, pod: Pod, node: KubeNode) -> None:
        """Has a pod be on a node from now on."""
        self._placed.append((pod, node))
        if apart_terms(pod):
            self._shy.append((pod, node))
        for rules in self._rules.values():
            rules.note(pod, node)

    def refusal(self, pod: Pod, node: KubeNode) -> str:
        """What keeps a pod off a node; empty if nothing does."""
        return self._rules_of(pod).refusal(node) or self._volumes.refusal(pod, node)

    def is_first(self, pod: Pod) -> bool:
        """Whether there is no pod yet that a pod must be near."""
        return self._rules_of(pod).is_first

    def crowd(self, pod: Pod, node: KubeNode) -> tuple[int, ...]:
        """How many pods there are already in each of the domains over which a pod is spread."""
        return tuple(each.count(node) for each in self._rules_of(pod).spreads)

    def _rules_of(self, pod: Pod) -> _Rules:
        version = pod.metadata.uid, pod.metadata.resource_version
        key = self._written.get(version)
        if key is None:
            key = self._written[version] = _written(pod)
        rules = self._rules.get(key)
        if rules is None:
            rules = self._rules[key] = _Rules(pod, self._nodes.values(), self._namespaces)
            for other, node in self._placed if minds(pod) else self._shy:
                rules.note(other, node)
        return rules


class _Rules:
    """What a pod, and any that says the same, minds of other pods."""

    def __init__(self, pod: Pod, nodes: Iterable[KubeNode], namespaces: Namespaces) -> None:
        self._pod = pod
        self._namespaces = namespaces
        self._near, self._apart = near_terms(pod), apart_terms(pod)
        constraints = spreads(pod)
        keys = tuple(each.topology_key for each in constraints)
        self.spreads = tuple(Spread(pod, each, keys, nodes) for each in constraints)
        self._may_be_first = all(means(term, pod, pod, namespaces) for term in self._near)
        self._beside: Counter[tuple[str, str]] = Counter()
        self._avoided: Counter[tuple[str, str]] = Counter()
        self._spared: Counter[tuple[str, str]] = Counter()

    def note(self, other: Pod, node: KubeNode) -> None:
        """Takes note of another pod on a node."""
        if self._near and all(means(term, self._pod, other, self._namespaces) for term in self._near):
            self._beside.update(_domains(self._near, node))
        for term in self._apart:
            if means(term, self._pod, other, self._namespaces):
                self._avoided.update(_domains((term,), node))
        for term in apart_terms(other):
            if means(term, other, self._pod, self._namespaces):
                self._spared.update(_domains((term,), node))
        for spread in self.spreads:
            spread.note(other, node)

    @property
    def is_first(self) -> bool:
        """Whether none of the pods is there that it must be near, of which it is one itself."""
        return self._may_be_first and not self._beside

    def refusal(self, node: KubeNode) -> str:
        """What keeps the pod off a node."""
        labels = (node.metadata.labels or {}).items()
        if self._near and not self._is_near(node):
            return NEAR
        if self._avoided and any(pair in self._avoided for pair in labels):
            return APART
        if self._spared and any(pair in self._spared for pair in labels):
            return SPARED
        return "" if all(spread.allows(node) for spread in self.spreads) else SPREAD

    def _is_near(self, node: KubeNode) -> bool:
        pairs = _domains(self._near, node)
        if len(pairs) < len(self._near):
            return False
        if not self._beside:
            # The first of some pods that want to be near one another may go anywhere.
            return self._may_be_first
        return all(pair in self._beside for pair in pairs)


def minds(pod: Pod) -> bool:
    """Whether it matters to a pod where other pods are."""
    return bool(near_terms(pod) or apart_terms(pod) or spreads(pod))


def _domains(terms: Iterable[PodAffinityTerm], node: KubeNode) -> list[tuple[str, str]]:
    labels = node.metadata.labels or {}
    return [(term.topology_key, labels[term.topology_key]) for term in terms if term.topology_key in labels]


def _written(pod: Pod) -> bytes:
    """Equal for pods that mind, and are minded, alike."""
    spec = pod.spec
    says = (spec.affinity, spec.topology_spread_constraints, spec.node_selector, spec.tolerations)
    return msgspec.json.encode((pod.metadata.namespace, pod.metadata.labels, *says), order="deterministic")
