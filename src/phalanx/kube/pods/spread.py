"""Spread: how many pods each domain has, where pods must lie evenly over domains."""

from __future__ import annotations

from collections.abc import Iterable

from phalanx.kube.objects.node import KubeNode
from phalanx.kube.objects.pod import Pod, SpreadConstraint
from phalanx.kube.pods.selection import admits, tolerates
from phalanx.kube.pods.terms import spreads_with


class Spread:
    """One constraint of a pod, with the pods that count by the value of its label."""

    def __init__(
        self, pod: Pod, constraint: SpreadConstraint, keys: tuple[str, ...], nodes: Iterable[KubeNode]
    ) -> None:
        self.key = constraint.topology_key
        self._pod = pod
        self._constraint = constraint
        self._counts = {
            (node.metadata.labels or {})[self.key]: 0 for node in nodes if _counts(pod, constraint, keys, node)
        }
        self._least: int | None = None
        self._keys = keys
        self._own = int(spreads_with(constraint, pod, pod))

    def note(self, other: Pod, node: KubeNode, count: int = 1) -> bool:
        """Takes note of a pod on a node, or with -1 that it is there no more; whether it counts."""
        counts = _counts(self._pod, self._constraint, self._keys, node)
        if not counts or not spreads_with(self._constraint, self._pod, other):
            return False
        value = (node.metadata.labels or {})[self.key]
        self._counts[value] = self._counts.get(value, 0) + count
        self._least = None
        return True

    def allows(self, node: KubeNode) -> bool:
        """Whether the pod may go to a node."""
        value = (node.metadata.labels or {}).get(self.key)
        if value is None:
            return False
        return self._counts.get(value, 0) + self._own - self._fewest() <= self._constraint.max_skew

    def count(self, node: KubeNode) -> int:
        """How many pods that count are in the domain of a node."""
        return self._counts.get((node.metadata.labels or {}).get(self.key, ""), 0)

    def crowds(self) -> dict[str, int]:
        """How many pods that count each domain has beyond the one with the fewest, as parts of a hundred."""
        least, most = min(self._counts.values(), default=0), max(self._counts.values(), default=0)
        return {
            value: 100 * (count - least) // (most - least) for value, count in self._counts.items() if count > least
        }

    def _fewest(self) -> int:
        if self._least is None:
            few = len(self._counts) < self._constraint.min_domains
            self._least = 0 if few else min(self._counts.values(), default=0)
        return self._least


def _counts(pod: Pod, constraint: SpreadConstraint, keys: tuple[str, ...], node: KubeNode) -> bool:
    """Whether the domain of a node counts for a pod: nodes to which it may not go do not make it wait."""
    return (
        all(key in (node.metadata.labels or {}) for key in keys)
        and (constraint.node_affinity_policy == "Ignore" or admits(pod, node))
        and (constraint.node_taints_policy != "Honor" or tolerates(pod, node))
    )
