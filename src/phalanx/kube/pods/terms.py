"""Terms: which other pods a pod means where it asks to be near them or apart from them."""

from __future__ import annotations

from collections.abc import Mapping

from phalanx.kube.objects.meta import Labels
from phalanx.kube.objects.pod import Pod, PodAffinityTerm, SpreadConstraint
from phalanx.kube.pods.labels import selects

Namespaces = Mapping[str, Labels]
"""The labels of each namespace."""


def near_terms(pod: Pod) -> tuple[PodAffinityTerm, ...]:
    """The pods that a pod must be near."""
    affinity = pod.spec.affinity
    found = affinity.pod_affinity if affinity is not None else None
    return tuple(found.required or ()) if found is not None else ()


def apart_terms(pod: Pod) -> tuple[PodAffinityTerm, ...]:
    """The pods that a pod must be apart from."""
    affinity = pod.spec.affinity
    found = affinity.pod_anti_affinity if affinity is not None else None
    return tuple(found.required or ()) if found is not None else ()


def spreads(pod: Pod) -> tuple[SpreadConstraint, ...]:
    """The domains over which a pod must be spread."""
    found = pod.spec.topology_spread_constraints or ()
    return tuple(each for each in found if each.when_unsatisfiable == "DoNotSchedule")


def preferred_terms(pod: Pod) -> tuple[tuple[PodAffinityTerm, int], ...]:
    """The pods that a pod likes to be near, by so much; by less than nothing, apart from."""
    affinity = pod.spec.affinity
    if affinity is None:
        return ()
    near = affinity.pod_affinity.preferred if affinity.pod_affinity is not None else None
    apart = affinity.pod_anti_affinity.preferred if affinity.pod_anti_affinity is not None else None
    return (
        *((each.pod_affinity_term, each.weight) for each in near or ()),
        *((each.pod_affinity_term, -each.weight) for each in apart or ()),
    )


def preferred_spreads(pod: Pod) -> tuple[SpreadConstraint, ...]:
    """The domains over which a pod should be spread."""
    found = pod.spec.topology_spread_constraints or ()
    return tuple(each for each in found if each.when_unsatisfiable == "ScheduleAnyway")


def means(term: PodAffinityTerm, pod: Pod, other: Pod, namespaces: Namespaces) -> bool:
    """Whether a term of a pod means another pod."""
    return (
        _in_namespaces(term, pod, other.metadata.namespace, namespaces)
        and selects(term.label_selector, other.metadata.labels or {})
        and _has_alike(term.match_label_keys, pod, other)
        and _has_otherwise(term.mismatch_label_keys, pod, other)
    )


def spreads_with(constraint: SpreadConstraint, pod: Pod, other: Pod) -> bool:
    """Whether another pod counts where a pod is spread over domains."""
    return (
        other.metadata.namespace == pod.metadata.namespace
        and not other.is_leaving
        and selects(constraint.label_selector, other.metadata.labels or {})
        and _has_alike(constraint.match_label_keys, pod, other)
    )


def _in_namespaces(term: PodAffinityTerm, pod: Pod, namespace: str, namespaces: Namespaces) -> bool:
    if not term.namespaces and term.namespace_selector is None:
        return namespace == pod.metadata.namespace
    return namespace in (term.namespaces or ()) or selects(term.namespace_selector, namespaces.get(namespace, {}))


def _has_alike(keys: list[str] | None, pod: Pod, other: Pod) -> bool:
    own, others = pod.metadata.labels or {}, other.metadata.labels or {}
    return all(others.get(key) == own[key] for key in keys or () if key in own)


def _has_otherwise(keys: list[str] | None, pod: Pod, other: Pod) -> bool:
    own, others = pod.metadata.labels or {}, other.metadata.labels or {}
    return all(others.get(key) != own[key] for key in keys or () if key in own)
