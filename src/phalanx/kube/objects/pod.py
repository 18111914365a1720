"""Pods."""

from __future__ import annotations

from typing import Any

import msgspec

from phalanx.kube.objects.meta import Condition, Labels, Named, Resources, Stored, Wire


class ResourceRequirements(Wire, frozen=True):
    """What a container requests; limits stand in where requests say nothing."""

    requests: Resources | None = None
    limits: Resources | None = None


class ContainerPort(Wire, frozen=True):
    """A port of a container, which with `host_port` is a port of its node."""

    host_port: int = 0
    protocol: str = "TCP"


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

    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()


class PreferredNodes(Wire, frozen=True):
    """Nodes that a pod prefers, by so much."""

    weight: int = 0
    preference: NodeSelectorTerm = NodeSelectorTerm()


class NodeAffinity(Wire, frozen=True):
    """On which nodes a pod must run, and on which it should."""

    required: NodeSelector | None = msgspec.field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")
    preferred: list[PreferredNodes] | None = msgspec.field(
        default=None, name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class LabelSelector(Wire, frozen=True):
    """Labels that objects must have. One that says nothing selects all."""

    match_labels: Labels | None = None
    match_expressions: list[Selector] | None = None


class PodAffinityTerm(Wire, frozen=True):
    """Pods that share a domain, of nodes with one value of `topology_key`, with a pod, or must not."""

    label_selector: LabelSelector | None = None
    topology_key: str = ""
    namespaces: list[str] | None = None
    namespace_selector: LabelSelector | None = None
    match_label_keys: list[str] | None = None
    mismatch_label_keys: list[str] | None = None


class PreferredPods(Wire, frozen=True):
    """Pods that a pod prefers to be near, or apart from, by so much."""

    weight: int = 0
    pod_affinity_term: PodAffinityTerm = PodAffinityTerm()


class PodAffinity(Wire, frozen=True):
    """Beside which pods a pod must, or must not, run, and beside which it should or should not."""

    required: list[PodAffinityTerm] | None = msgspec.field(
        default=None, name="requiredDuringSchedulingIgnoredDuringExecution"
    )
    preferred: list[PreferredPods] | None = msgspec.field(
        default=None, name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class Affinity(Wire, frozen=True):
    """Where a pod must run, and where it should."""

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
    """How evenly the pods that are selected lie over the domains of `topology_key`."""

    max_skew: int = 1
    topology_key: str = ""
    when_unsatisfiable: str = ""
    label_selector: LabelSelector | None = None
    min_domains: int = 1
    node_affinity_policy: str = "Honor"
    node_taints_policy: str = "Ignore"
    match_label_keys: list[str] | None = None


class ClaimReference(Wire, frozen=True):
    """The claim that a volume of a pod is."""

    claim_name: str = ""


class Volume(Wire, frozen=True):
    """A volume. A claim may bind it to some nodes."""

    name: str = ""
    persistent_volume_claim: ClaimReference | None = None
    ephemeral: dict[str, Any] | None = None


class SchedulingGroup(Wire, frozen=True):
    """The PodGroup of Kubernetes itself that a pod belongs to."""

    pod_group_name: str = ""


class PodSpec(Wire, frozen=True):
    """What a pod asks for."""

    scheduler_name: str = ""
    node_name: str = ""
    host_network: bool = False
    containers: tuple[Container, ...] = ()
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


class PodStatus(Wire, frozen=True):
    """How far a pod has come."""

    phase: str = ""
    pod_ip: str = msgspec.field(default="", name="podIP")
    conditions: list[Condition] | None = None


class Pod(Stored, frozen=True):
    """A pod."""

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
