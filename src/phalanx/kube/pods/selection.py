"""Which nodes a pod may go to: its node selector, its required node affinity and the taints that it tolerates."""

from __future__ import annotations

from hashlib import blake2b

import msgspec

from phalanx.kube.objects.node import KubeNode, NodeTaint
from phalanx.kube.objects.pod import NodeSelector, NodeSelectorTerm, Pod, PodToleration
from phalanx.kube.pods.labels import meets as meets_one
from phalanx.workload.toleration import Toleration

AFFINITY_LABEL = "phalanx/affinity-"
"""A node that meets a required affinity has the label of it in our cluster: the engine compares labels alone."""


YES = "yes"

NO_VALUE = "-"
"""Stands for the empty value of a taint, which a toleration without a value would not tell from any other."""


PREFERRED_MAX = 16
"""Preferred node affinities of a pod that are looked at, the heaviest."""


def affinity_of(pod: Pod) -> NodeSelector | None:
    """The required node affinity of a pod."""
    affinity = pod.spec.affinity
    return affinity.node_affinity.required if affinity is not None and affinity.node_affinity is not None else None


def preferred_affinities(pod: Pod) -> tuple[tuple[NodeSelector, int], ...]:
    """The nodes that a pod prefers, the heaviest of its preferences first."""
    affinity = pod.spec.affinity
    node_affinity = affinity.node_affinity if affinity is not None else None
    found = node_affinity.preferred if node_affinity is not None else None
    heaviest = sorted(found or (), key=lambda each: -each.weight)[:PREFERRED_MAX]
    return tuple((NodeSelector((each.preference,)), each.weight) for each in heaviest)


def admits(pod: Pod, node: KubeNode) -> bool:
    """Whether a node has the labels that a pod selects and requires."""
    labels, affinity = node.metadata.labels or {}, affinity_of(pod)
    selected = all(labels.get(key) == value for key, value in (pod.spec.node_selector or {}).items())
    return selected and (affinity is None or meets(affinity, node))


def tolerates(pod: Pod, node: KubeNode) -> bool:
    """Whether a pod tolerates the taints of a node that keep pods away."""
    return all(
        any(_tolerates(each, taint) for each in pod.spec.tolerations or ())
        for taint in node.spec.taints or ()
        if taint.effect in ("NoSchedule", "NoExecute")
    )


def shuns(pod: Pod, node: KubeNode) -> bool:
    """Whether a pod goes to a node only if no other will do, for a taint that it does not tolerate."""
    return any(
        taint.effect == "PreferNoSchedule" and not any(_tolerates(each, taint) for each in pod.spec.tolerations or ())
        for taint in node.spec.taints or ()
    )


def _tolerates(toleration: PodToleration, taint: NodeTaint) -> bool:
    if toleration.effect not in ("", taint.effect) or toleration.key not in ("", taint.key):
        return False
    return toleration.operator == "Exists" or toleration.value == taint.value


def limits_of(pod: Pod) -> tuple[tuple[tuple[str, str], ...], tuple[Toleration, ...]]:
    """What says to which nodes a pod may go: labels they must have, and taints they may have."""
    selector = tuple(sorted((pod.spec.node_selector or {}).items()))
    affinity = affinity_of(pod)
    if affinity is not None:
        selector = (*selector, (affinity_label(affinity), YES))
    return selector, tuple(map(_toleration, pod.spec.tolerations or ()))


def _toleration(toleration: PodToleration) -> Toleration:
    if toleration.operator == "Exists":
        return Toleration(toleration.key, "", toleration.effect)
    return Toleration(toleration.key, toleration.value or NO_VALUE, toleration.effect)


def affinity_label(affinity: NodeSelector) -> str:
    """The label of the nodes that meet an affinity: equal ones have one label."""
    written = msgspec.json.encode(affinity, order="deterministic")
    return AFFINITY_LABEL + blake2b(written, digest_size=6).hexdigest()


def meets(affinity: NodeSelector, node: KubeNode) -> bool:
    """Whether a node meets one of the terms. A term that says nothing is met by no node."""
    return any(_meets_term(term, node) for term in affinity.node_selector_terms)


def _meets_term(term: NodeSelectorTerm, node: KubeNode) -> bool:
    expressions, fields = term.match_expressions or [], term.match_fields or []
    if not expressions and not fields:
        return False
    return all(meets_one(each, node.metadata.labels or {}) for each in expressions) and all(
        meets_one(each, {"metadata.name": node.metadata.name}) for each in fields
    )
