"""Kubernetes objects, as far as scheduling reads them. Fields that are not named here are skipped while parsing."""

from __future__ import annotations

from typing import Any

import msgspec

Labels = dict[str, str]
Resources = dict[str, str | int | float]


class Wire(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    """An object of the API. Its `managedFields` and everything else that is not named are dropped on receipt."""


class Owner(Wire, frozen=True):
    """A reference to the object that a pod belongs to."""

    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False


class Metadata(Wire, frozen=True):
    """Names, labels and the version of an object."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    creation_timestamp: str = ""
    deletion_timestamp: str | None = None
    labels: Labels | None = None
    annotations: Labels | None = None
    owner_references: list[Owner] | None = None

    @property
    def key(self) -> str:
        """The namespace and the name, or the name alone."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class ResourceRequirements(Wire, frozen=True):
    """What a container requests; limits stand in where requests say nothing."""

    requests: Resources | None = None
    limits: Resources | None = None


class ContainerPort(Wire, frozen=True):
    """A port of a container, which with `host_port` is a port of its node."""

    host_port: int = 0


class Container(Wire, frozen=True):
    """A container. An init container that is always restarted is a sidecar."""

    name: str = ""
    resources: ResourceRequirements = ResourceRequirements()
    ports: list[ContainerPort] | None = None
    restart_policy: str = ""


class Selector(Wire, frozen=True):
    """One requirement on a label or a field: `key` `operator` `values`."""

    key: str = ""
    operator: str = ""
    values: list[str] | None = None


class NodeSelectorTerm(Wire, frozen=True):
    """Requirements that a node meets together."""

    match_expressions: list[Selector] | None = None
    match_fields: list[Selector] | None = None


class NodeSelector(Wire, frozen=True):
    """Terms of which a node meets at least one."""

    node_selector_terms: list[NodeSelectorTerm] = []


class NodeAffinity(Wire, frozen=True):
    """On which nodes a pod must run. Preferences are not read."""

    required: NodeSelector | None = msgspec.field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")


class PodAffinity(Wire, frozen=True):
    """Beside which pods a pod must, or must not, run."""

    required: list[Any] | None = msgspec.field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")


class Affinity(Wire, frozen=True):
    """Where a pod must run."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class PodToleration(Wire, frozen=True):
    """A taint that does not keep a pod away."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""


class SpreadConstraint(Wire, frozen=True):
    """How evenly pods must lie over domains."""

    when_unsatisfiable: str = ""


class Named(Wire, frozen=True):
    """Anything of which only the name matters."""

    name: str = ""


class Volume(Wire, frozen=True):
    """A volume. A claim may bind it to some nodes."""

    name: str = ""
    persistent_volume_claim: dict[str, Any] | None = None
    ephemeral: dict[str, Any] | None = None


class SchedulingGroup(Wire, frozen=True):
    """The PodGroup of Kubernetes itself that a pod belongs to."""

    pod_group_name: str = ""


class PodSpec(Wire, frozen=True):
    """What a pod asks for."""

    scheduler_name: str = ""
    node_name: str = ""
    containers: list[Container] = []
    init_containers: list[Container] | None = None
    overhead: Resources | None = None
    resources: ResourceRequirements | None = None
    node_selector: Labels | None = None
    affinity: Affinity | None = None
    tolerations: list[PodToleration] | None = None
    priority: int = 0
    preemption_policy: str = ""
    scheduling_gates: list[Named] | None = None
    scheduling_group: SchedulingGroup | None = None
    topology_spread_constraints: list[SpreadConstraint] | None = None
    termination_grace_period_seconds: int = 30
    volumes: list[Volume] | None = None
    resource_claims: list[Named] | None = None


class Condition(Wire, frozen=True):
    """One condition of an object."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


class PodStatus(Wire, frozen=True):
    """How far a pod has come."""

    phase: str = ""
    conditions: list[Condition] | None = None


class Pod(Wire, frozen=True):
    """A pod."""

    metadata: Metadata = Metadata()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def is_over(self) -> bool:
        """Whether it has ended, so that it uses nothing of its node any more."""
        return self.status.phase in ("Succeeded", "Failed")

    @property
    def bound_at(self) -> str:
        """When it was bound, as the server wrote it down; for want of that, when it was created."""
        for condition in self.status.conditions or ():
            if condition.type == "PodScheduled" and condition.status == "True" and condition.last_transition_time:
                return condition.last_transition_time
        return self.metadata.creation_timestamp

    @property
    def is_leaving(self) -> bool:
        """Whether it was asked to end."""
        return self.metadata.deletion_timestamp is not None


class NodeTaint(Wire, frozen=True):
    """What keeps pods off a node."""

    key: str = ""
    value: str = ""
    effect: str = ""


class NodeSpec(Wire, frozen=True):
    """What its operator says of a node."""

    unschedulable: bool = False
    taints: list[NodeTaint] | None = None


class NodeStatus(Wire, frozen=True):
    """What a node has, and how it is."""

    allocatable: Resources | None = None
    conditions: list[Condition] | None = None


class KubeNode(Wire, frozen=True):
    """A node."""

    metadata: Metadata = Metadata()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


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


class PodGroup(Wire, frozen=True):
    """A group of pods that start together."""

    metadata: Metadata = Metadata()
    spec: PodGroupSpec = PodGroupSpec()

    @property
    def least(self) -> int:
        """How many pods start together; 0 where each may start by itself."""
        policy = self.spec.scheduling_policy
        if policy is not None:
            return policy.gang.min_count if policy.gang is not None else 0
        return self.spec.min_member


class Bookmark(Wire, frozen=True):
    """The version up to which a watch has told everything, or a status with its code."""

    metadata: Metadata = Metadata()
    code: int = 0
    reason: str = ""
    message: str = ""


class ListMetadata(Wire, frozen=True):
    """The version of a list, and where its next page begins."""

    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")
