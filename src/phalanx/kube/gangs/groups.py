"""Groups of pods that start together, in the dialects that say so: which group a pod is of, and how many it needs."""

from __future__ import annotations

from typing import NamedTuple

from phalanx.kube.objects.group import PodGroup
from phalanx.kube.objects.pod import Pod

NATIVE = "scheduling.k8s.io"
PLUGINS = "scheduling.x-k8s.io"
VOLCANO = "scheduling.volcano.sh"

PLUGINS_LABELS = ("scheduling.x-k8s.io/pod-group", "pod-group.scheduling.sigs.k8s.io")
VOLCANO_ANNOTATIONS = ("scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name")


class GroupRef(NamedTuple):
    """The PodGroup of a pod: the API group of its dialect, its namespace and its name."""

    dialect: str
    namespace: str
    name: str

    @property
    def key(self) -> str:
        """The namespace and the name."""
        return f"{self.namespace}/{self.name}"

    def __str__(self) -> str:
        return f"PodGroup {self.key} ({self.dialect})"


Groups = dict[GroupRef, PodGroup]

Family = GroupRef | str
"""Pods that are looked at together: those of one group, or one pod alone, by its key."""


def group_of(pod: Pod) -> GroupRef | None:
    """The group that a pod says it is of; Kubernetes' own field goes before labels and annotations."""
    metadata = pod.metadata
    native = pod.spec.scheduling_group
    if native is not None and native.pod_group_name:
        return GroupRef(NATIVE, metadata.namespace, native.pod_group_name)
    for dialect, names, values in (
        (PLUGINS, PLUGINS_LABELS, metadata.labels or {}),
        (VOLCANO, VOLCANO_ANNOTATIONS, metadata.annotations or {}),
    ):
        for name in names:
            if values.get(name):
                return GroupRef(dialect, metadata.namespace, values[name])
    return None


def family_of(pod: Pod) -> Family:
    """The group of a pod, or the pod alone."""
    return group_of(pod) or pod.metadata.key


def topology_of(group: PodGroup) -> str:
    """The label whose value all pods of a group must find alike on their nodes; empty if they may lie anywhere."""
    constraints = group.spec.scheduling_constraints
    found = constraints.topology if constraints is not None else None
    return found[0].key if found else ""
