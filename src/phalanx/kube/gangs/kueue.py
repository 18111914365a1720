"""Kueue's pod groups: only their pods say how many start together, and where these lie."""

from __future__ import annotations

from phalanx.kube.objects.group import PodGroupSpec, SchedulingConstraints, TopologyConstraint
from phalanx.kube.objects.meta import Labels

NAME_LABEL = "kueue.x-k8s.io/pod-group-name"
SIZE_ANNOTATION = "kueue.x-k8s.io/pod-group-total-count"

FAST_ANNOTATION = "kueue.x-k8s.io/pod-group-fast-admission"
"""Its pods are made one after the other, as those of a StatefulSet: the first ones cannot wait for the last."""

TOPOLOGY_ANNOTATION = "kueue.x-k8s.io/podset-required-topology"

NOT_LOOKED_AT = (
    "kueue.x-k8s.io/podset-slice-required-topology",
    "kueue.x-k8s.io/podset-slice-size",
    "kueue.x-k8s.io/podset-group-name",
)
"""Annotations that require what is not looked at here."""


def spec_of(annotations: Labels, count: int) -> PodGroupSpec:
    """What a pod says of its group of so many pods."""
    level = annotations.get(TOPOLOGY_ANNOTATION, "")
    lies = SchedulingConstraints(topology=[TopologyConstraint(key=level)]) if level else None
    return PodGroupSpec(min_member=0 if FAST_ANNOTATION in annotations else count, scheduling_constraints=lies)


def refusal_of(annotations: Labels) -> str:
    """What a pod requires that is not looked at; empty if there is nothing."""
    name = next((name for name in NOT_LOOKED_AT if name in annotations), "")
    return f"phalanx does not look at the annotation {name} yet" if name else ""
