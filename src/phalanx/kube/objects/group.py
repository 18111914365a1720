"""PodGroups, of all dialects."""

from __future__ import annotations

from phalanx.kube.objects.meta import Stored, Wire


class GangPolicy(Wire, frozen=True):
    """How many pods start together."""

    min_count: int = 1


class SchedulingPolicy(Wire, frozen=True):
    """Whether the pods of a group start together at all."""

    gang: GangPolicy | None = None


class TopologyConstraint(Wire, frozen=True):
    """The label of the nodes whose value all pods of a group share."""

    key: str = ""


class SchedulingConstraints(Wire, frozen=True):
    """Where the pods of a group must lie."""

    topology: list[TopologyConstraint] | None = None


class PodGroupSpec(Wire, frozen=True):
    """Of all dialects: `min_member` is said by scheduler-plugins and Volcano, the rest by Kubernetes itself."""

    min_member: int = 0
    queue: str = ""
    scheduling_policy: SchedulingPolicy | None = None
    scheduling_constraints: SchedulingConstraints | None = None


class PodGroup(Stored, frozen=True):
    """A group of pods that start together."""

    spec: PodGroupSpec = PodGroupSpec()

    @property
    def least(self) -> int:
        """How many pods start together; 0 where each may start by itself."""
        policy = self.spec.scheduling_policy
        if policy is not None:
            return policy.gang.min_count if policy.gang is not None else 0
        return self.spec.min_member
