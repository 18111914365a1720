"""PodGroups, of all dialects."""

from __future__ import annotations

from phalanx.kube.objects.meta import Named, Resources, Stored, Wire
from phalanx.kube.objects.pod import LabelSelector

POLICIES_MAX = 64
TASKS_MAX = 500
NON_PREEMPTIBLE = "non-preemptible"


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


class KaiTopology(Wire, frozen=True):
    """Of KAI: the label of nodes whose value all pods of a group share."""

    required_topology_level: str = ""


class NetworkTopology(Wire, frozen=True):
    """How near the pods of a group of Volcano must, or should, be."""

    mode: str = ""
    highest_tier_allowed: int = 1
    highest_tier_name: str = ""

    @property
    def is_hard(self) -> bool:
        """Whether the pods must be so near. Volcano takes a topology for hard that does not say."""
        return self.mode != "soft"


class SubGroupPolicy(Wire, frozen=True):
    """How pods of a group of Volcano that the selector selects are divided: those with the same values of some labels
    are one sub-group. `sub_group_size` of its pods start together, and `min_sub_groups` with the group.
    """

    name: str = ""
    network_topology: NetworkTopology | None = None
    sub_group_size: int = 1
    min_sub_groups: int = 0
    label_selector: LabelSelector | None = None
    match_label_keys: list[str] | None = None


class PodGroupSpec(Wire, frozen=True):
    """Of all dialects: `min_member` is said by scheduler-plugins, Volcano and KAI, tasks and network topology by
    Volcano, `topology_constraint`, `sub_groups` and `preemptibility` by KAI, the rest by Kubernetes itself.
    """

    min_member: int = 0
    min_task_member: dict[str, int] | None = None
    network_topology: NetworkTopology | None = None
    sub_group_policy: list[SubGroupPolicy] | None = None
    resource_claims: list[Named] | None = None
    parent_composite_pod_group_name: str = ""
    queue: str = ""
    priority_class_name: str = ""
    priority: int | None = None
    min_resources: Resources | None = None
    scheduling_policy: SchedulingPolicy | None = None
    scheduling_constraints: SchedulingConstraints | None = None
    topology_constraint: KaiTopology | None = None
    sub_groups: list[Named] | None = None
    preemptibility: str = ""
    gpu_product: str = ""
    """Not of PodGroups: HiveD's pods say which GPUs their group is to have."""

    @property
    def is_kept(self) -> bool:
        """Whether pods of it may not be evicted as long as they run."""
        return self.preemptibility == NON_PREEMPTIBLE


class PodGroup(Stored, frozen=True):
    """A group of pods that start together."""

    spec: PodGroupSpec = PodGroupSpec()

    @property
    def says(self) -> object:
        """Another where a gang that waits is to be formed anew."""
        return self.spec

    @property
    def least(self) -> int:
        """How many pods start together; 0 where each may start by itself."""
        policy = self.spec.scheduling_policy
        if policy is not None:
            return policy.gang.min_count if policy.gang is not None else 0
        of_sub_groups = sum(each.sub_group_size * each.min_sub_groups for each in self.spec.sub_group_policy or ())
        return max(self.spec.min_member, of_sub_groups)

    @property
    def unsupported(self) -> str:
        """A field that must hold and that phalanx does not look at; empty if there is none."""
        spec = self.spec
        of_sub_groups = [each.network_topology for each in spec.sub_group_policy or ()]
        fields = {
            "networkTopology.highestTierName": _names_tier(spec.network_topology),
            "subGroupPolicy.networkTopology.highestTierName": any(map(_names_tier, of_sub_groups)),
            "resourceClaims": bool(spec.resource_claims),
            "subGroups": bool(spec.sub_groups),
            # All of it is looked through for each pod of the group.
            f"subGroupPolicy beyond {POLICIES_MAX}": len(spec.sub_group_policy or ()) > POLICIES_MAX,
            f"minTaskMember beyond {TASKS_MAX}": len(spec.min_task_member or ()) > TASKS_MAX,
        }
        return next((name for name, is_asked in fields.items() if is_asked), "")


def _names_tier(topology: NetworkTopology | None) -> bool:
    return topology is not None and topology.is_hard and bool(topology.highest_tier_name)
