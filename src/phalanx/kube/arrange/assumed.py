"""Where pending pods are expected to go, so that those that come after them are told apart from them.

Pods that are decided on together would otherwise all prefer the same domain.
"""

from __future__ import annotations

from collections.abc import Mapping

from phalanx.cluster.cluster import Health
from phalanx.kube.gangs.bundle import Bundle
from phalanx.kube.nodes import health_of
from phalanx.kube.objects.node import KubeNode
from phalanx.kube.objects.pod import Pod
from phalanx.kube.pods.demand import demand_of
from phalanx.kube.pods.preferences import Domain, PodPreferences, has_preferences, said_by
from phalanx.kube.pods.selection import admits, affinity_label, limits_of, meets, preferred_affinities, tolerates
from phalanx.workload.job import NodePreference

DOMAINS_MAX = 64
"""Domains that a job is told apart by: its assumed ones, and those that weigh most."""

Candidates = tuple[tuple[str, int], ...]
"""Nodes that take a pod, and how much it prefers each for the sake of its labels."""


class AssumedPlaces:
    """Nodes with the GPUs that are free of them, and the pods that are there or are expected there."""

    def __init__(self, nodes: Mapping[str, KubeNode], free: Mapping[str, int], preferences: PodPreferences) -> None:
        self._nodes = {name: node for name, node in nodes.items() if health_of(node)[0] is Health.HEALTHY}
        self._free = dict(free)
        self._preferences = preferences
        self._candidates: dict[object, Candidates] = {}

    def preferences(self, bundle: Bundle) -> tuple[NodePreference, ...]:
        """What a bundle prefers for the sake of other pods. From now on it is expected there."""
        weights: dict[Domain, int] = {}
        for pod in _unlike(bundle.pods):
            for domain, weight in self._preferences.weights(pod).items():
                weights[domain] = weights.get(domain, 0) + weight
        found = self._assumed(bundle, weights)
        rest = sorted((each for each in weights if each not in found), key=lambda each: (-abs(weights[each]), each))
        kept = (*found, *rest[: max(DOMAINS_MAX - len(found), 0)])
        # What speaks for one of several domains that are as good decides between them.
        told = ((domain, weights.get(domain, 0) + (domain in found)) for domain in kept)
        return tuple(NodePreference(*domain, weight) for domain, weight in told if weight)

    def _assumed(self, bundle: Bundle, weights: Mapping[Domain, int]) -> tuple[Domain, ...]:
        """The domains in which a bundle that minds them is expected."""
        pod = bundle.pods[0]
        node = self._best(pod, weights) if has_preferences(pod) else None
        if node is None:
            return ()
        for each in bundle.pods:
            self._preferences.add(each, node)
            self._free[node.metadata.name] -= demand_of(each).gpus
        labels = node.metadata.labels or {}
        return tuple((key, labels[key]) for key in self._preferences.keys(pod) if key in labels)

    def _best(self, pod: Pod, weights: Mapping[Domain, int]) -> KubeNode | None:
        """The node that a pod likes best of those with room for it; of these the fullest."""
        gpus, keys = demand_of(pod).gpus, tuple(dict.fromkeys(key for key, _ in weights))
        best: tuple[int, int, str] | None = None
        for name, weight in self._candidates_of(pod):
            left = self._free.get(name, 0) - gpus
            if left < 0:
                continue
            labels = self._nodes[name].metadata.labels or {}
            score = weight + sum(weights.get((key, labels.get(key, "")), 0) for key in keys)
            if best is None or (-score, left, name) < best:
                best = (-score, left, name)
        return self._nodes[best[2]] if best is not None else None

    def _candidates_of(self, pod: Pod) -> Candidates:
        preferred = preferred_affinities(pod)
        key = (limits_of(pod), *((affinity_label(affinity), weight) for affinity, weight in preferred))
        found = self._candidates.get(key)
        if found is None:
            found = self._candidates[key] = tuple(
                (name, sum(weight for affinity, weight in preferred if meets(affinity, node)))
                for name, node in self._nodes.items()
                if admits(pod, node) and tolerates(pod, node)
            )
        return found


def _unlike(pods: tuple[Pod, ...]) -> tuple[Pod, ...]:
    """One of all pods that say the same."""
    return tuple({said_by(pod): pod for pod in pods}.values())
