"""CompositePodGroups: groups of groups, of Kubernetes itself."""

from __future__ import annotations

from phalanx.kube.objects.group import SchedulingConstraints
from phalanx.kube.objects.meta import Stored, Wire


class CompositeGangPolicy(Wire, frozen=True):
    """How many of the groups start together."""

    min_group_count: int = 1


class CompositePolicy(Wire, frozen=True):
    """Whether the groups start together at all."""

    gang: CompositeGangPolicy | None = None


class CompositeSpec(Wire, frozen=True):
    """What a group of groups asks for."""

    scheduling_policy: CompositePolicy = CompositePolicy()
    scheduling_constraints: SchedulingConstraints | None = None
    parent_composite_pod_group_name: str = ""
    priority_class_name: str = ""
    priority: int | None = None


class CompositePodGroup(Stored, frozen=True):
    """A group of groups."""

    spec: CompositeSpec = CompositeSpec()

    @property
    def topology(self) -> str:
        """The label whose value all pods of it must find alike on their nodes; empty if they may lie anywhere."""
        constraints = self.spec.scheduling_constraints
        return constraints.topology[0].key if constraints is not None and constraints.topology else ""
