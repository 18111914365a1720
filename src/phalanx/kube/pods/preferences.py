"""Which domains a pod prefers for the sake of the pods that are there, as kube-scheduler weighs them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import msgspec

from phalanx.kube.objects.node import KubeNode
from phalanx.kube.objects.pod import Pod
from phalanx.kube.pods.spread import Spread
from phalanx.kube.pods.terms import Namespaces, means, preferred_spreads, preferred_terms

MOST = 100
"""The weight of the domain that pods there like or dislike most, and of the one with most pods of a spread."""

LOOKS_MAX = 200_000
"""Pods that are compared with others for one decision: a bound on work. What is left has no preferences for now."""

Domain = tuple[str, str]
"""A label of nodes and its value."""


class PodPreferences:
    """The pods on nodes, as far as others like or dislike to be beside them."""

    def __init__(self, nodes: Mapping[str, KubeNode], namespaces: Namespaces) -> None:
        self._nodes = nodes
        self._namespaces = namespaces
        self._placed: list[tuple[Pod, KubeNode]] = []
        self._with_preferences: list[tuple[Pod, KubeNode]] = []
        self._scores: dict[bytes, _Scores] = {}
        self._looks_left = LOOKS_MAX

    def add(self, pod: Pod, node: KubeNode) -> None:
        """Has a pod be on a node from now on."""
        self._placed.append((pod, node))
        if preferred_terms(pod):
            self._with_preferences.append((pod, node))
        self._looks_left -= len(self._scores)
        for scores in self._scores.values():
            scores.note(pod, node)

    @property
    def is_exhausted(self) -> bool:
        """Whether no more pods are compared."""
        return self._looks_left <= 0

    def weights(self, pod: Pod) -> dict[Domain, int]:
        """The weights of domains for a pod."""
        return self._scores_of(pod).weights()

    def keys(self, pod: Pod) -> tuple[str, ...]:
        """The labels whose domains a pod tells apart for itself."""
        named = (
            *(term.topology_key for term, _ in preferred_terms(pod)),
            *(each.topology_key for each in preferred_spreads(pod)),
        )
        return tuple(dict.fromkeys(named))

    def _scores_of(self, pod: Pod) -> _Scores:
        key = said_by(pod)
        scores = self._scores.get(key)
        if scores is None:
            scores = self._scores[key] = _Scores(pod, self._nodes.values(), self._namespaces)
            others = self._placed if has_preferences(pod) else self._with_preferences
            self._looks_left -= len(others)
            for other, node in others:
                scores.note(other, node)
        return scores


class _Scores:
    """What a pod, and any that says the same, likes of other pods."""

    def __init__(self, pod: Pod, nodes: Iterable[KubeNode], namespaces: Namespaces) -> None:
        self._pod = pod
        self._namespaces = namespaces
        self._terms = preferred_terms(pod)
        constraints = preferred_spreads(pod)
        keys = tuple(each.topology_key for each in constraints)
        self._spreads = tuple(Spread(pod, each, keys, nodes) for each in constraints)
        self._beside: Counter[Domain] = Counter()

    def note(self, other: Pod, node: KubeNode) -> None:
        """Takes note of another pod on a node: what this one likes of it, and it of this one."""
        labels = node.metadata.labels or {}
        for term, weight in self._terms:
            if term.topology_key in labels and means(term, self._pod, other, self._namespaces):
                self._beside[term.topology_key, labels[term.topology_key]] += weight
        for term, weight in preferred_terms(other):
            if term.topology_key in labels and means(term, other, self._pod, self._namespaces):
                self._beside[term.topology_key, labels[term.topology_key]] += weight
        for spread in self._spreads:
            spread.note(other, node)

    def weights(self) -> dict[Domain, int]:
        """The weights of domains: of none more than a hundred for the pods there, and for each spread."""
        most = max(MOST, *map(abs, self._beside.values())) if self._beside else MOST
        found = Counter({domain: _part(weight, most) for domain, weight in self._beside.items() if weight})
        for spread in self._spreads:
            for value, crowd in spread.crowds().items():
                found[spread.key, value] -= crowd
        return {domain: weight for domain, weight in found.items() if weight}


def has_preferences(pod: Pod) -> bool:
    """Whether a pod likes to be near other pods, apart from them, or spread with them."""
    return bool(preferred_terms(pod) or preferred_spreads(pod))


def _part(weight: int, most: int) -> int:
    """A weight where `most` is a hundred; never nothing."""
    part = max(MOST * abs(weight) // most, 1)
    return part if weight > 0 else -part


def said_by(pod: Pod) -> bytes:
    """Equal for pods that prefer, and are preferred, alike."""
    spec = pod.spec
    says = (spec.affinity, spec.topology_spread_constraints, spec.node_selector, spec.tolerations)
    return msgspec.json.encode((pod.metadata.namespace, pod.metadata.labels, *says), order="deterministic")
