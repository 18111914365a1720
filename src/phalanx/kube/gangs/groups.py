"""Groups of pods that start together, in the dialects that say so: which group a pod is of, and how many it needs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from phalanx.kube.gangs import hived, kueue
from phalanx.kube.objects.group import NetworkTopology, PodGroup, PodGroupSpec
from phalanx.kube.objects.pod import Pod

NATIVE = "scheduling.k8s.io"
COMPOSITE = "composite groups of scheduling.k8s.io"
PLUGINS = "scheduling.x-k8s.io"
VOLCANO = "scheduling.volcano.sh"
JOB = "batch"
JOB_SET = "jobset.x-k8s.io"
LEADER_WORKER_SET = "leaderworkerset.x-k8s.io"
RAY = "ray.io"
KAI = "scheduling.run.ai"
KUEUE = "kueue.x-k8s.io"
HIVED = "hivedscheduler.microsoft.com"
KUBEFLOW = "kubeflow.org"
OWN = "phalanx.dev"
KUBEFLOW_KINDS = ("PyTorchJob", "TFJob", "MPIJob", "XGBoostJob", "PaddleJob", "JAXJob")
OWNERS = {
    JOB: "Job",
    JOB_SET: "JobSet",
    LEADER_WORKER_SET: "group of LeaderWorkerSet",
    RAY: "RayCluster",
    OWN: "pods of",
    KUEUE: "pod group of Kueue",
    HIVED: "affinity group of HiveD",
    COMPOSITE: "CompositePodGroup",
    **{f"{KUBEFLOW} {kind}": kind for kind in KUBEFLOW_KINDS},
}
"""How groups are called that are no PodGroups."""

SAID_BY_PODS = (OWN, LEADER_WORKER_SET, KUEUE, HIVED)
"""Dialects in which pods say themselves how many start together."""

PLUGINS_LABELS = ("scheduling.x-k8s.io/pod-group", "pod-group.scheduling.sigs.k8s.io")
KAI_ANNOTATIONS = ("pod-group-name",)
VOLCANO_ANNOTATIONS = ("scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name")


TIER_LABEL = "volcano.sh/tier-"
"""The label of ours of the nodes that belong to one HyperNode of a tier."""

GANG_ANNOTATION = "phalanx.dev/gang"
"""Has the pods of one owner start together: `true` for all that a Job has at a time, or a number of pods."""

SHOWN_MAX = 60
"""Characters of a value that are repeated where it is refused."""

DIGITS_MAX = 9
"""Digits of a number of pods."""

JOB_SET_LABEL = "jobset.sigs.k8s.io/jobset-name"
LEADER_WORKER_SET_LABEL = "leaderworkerset.sigs.k8s.io/name"
GROUP_INDEX_LABEL = "leaderworkerset.sigs.k8s.io/group-index"
RAY_LABEL = "ray.io/cluster"
KUBEFLOW_LABEL = "training.kubeflow.org/job-name"
LAUNCHER_LABELS = ("training.kubeflow.org/replica-type", "training.kubeflow.org/job-role")
"""The labels that say `launcher` on that pod of an MPIJob."""

SIZE_ANNOTATION = "leaderworkerset.sigs.k8s.io/size"


SIZES = {LEADER_WORKER_SET: SIZE_ANNOTATION, KUEUE: kueue.SIZE_ANNOTATION}
"""Annotations of pods that say how many start together, by dialects that have no object for it."""


class GroupRef(NamedTuple):
    """The group of a pod: the API group of what says so, its namespace and its name."""

    dialect: str
    namespace: str
    name: str

    @property
    def key(self) -> str:
        """The namespace and the name."""
        return f"{self.namespace}/{self.name}"

    def __str__(self) -> str:
        owner = OWNERS.get(self.dialect)
        return f"{owner} {self.key}" if owner is not None else f"PodGroup {self.key} ({self.dialect})"


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
        (KAI, KAI_ANNOTATIONS, metadata.annotations or {}),
    ):
        for name in names:
            if values.get(name):
                return GroupRef(dialect, metadata.namespace, values[name])
    return _group_by_owner(pod)


def _group_by_owner(pod: Pod) -> GroupRef | None:
    metadata = pod.metadata
    labels, annotations = metadata.labels or {}, metadata.annotations or {}
    if annotations.get(GANG_ANNOTATION, "false") != "false":
        owner = next((each for each in metadata.owner_references or () if each.controller), None)
        by_job = annotations[GANG_ANNOTATION] == "true" and owner is not None and owner.kind == "Job"
        name = owner.name if owner is not None else metadata.name
        return GroupRef(JOB if by_job else OWN, metadata.namespace, name)
    if hived.asks(pod):
        return GroupRef(HIVED, metadata.namespace, hived.name_of(pod))
    if labels.get(kueue.NAME_LABEL):
        return GroupRef(KUEUE, metadata.namespace, labels[kueue.NAME_LABEL])
    if JOB_SET_LABEL in labels:
        return GroupRef(JOB_SET, metadata.namespace, labels[JOB_SET_LABEL])
    if LEADER_WORKER_SET_LABEL in labels and GROUP_INDEX_LABEL in labels:
        name = f"{labels[LEADER_WORKER_SET_LABEL]}-{labels[GROUP_INDEX_LABEL]}"
        return GroupRef(LEADER_WORKER_SET, metadata.namespace, name)
    if RAY_LABEL in labels:
        return GroupRef(RAY, metadata.namespace, labels[RAY_LABEL])
    return _kubeflow_job_of(pod) if KUBEFLOW_LABEL in labels else None


def _kubeflow_job_of(pod: Pod) -> GroupRef | None:
    """The job whose operator made a pod. A launcher is none of its gang: some operators make it once workers run."""
    labels = pod.metadata.labels or {}
    if any(labels.get(name, "").lower() == "launcher" for name in LAUNCHER_LABELS):
        return None
    owner = next((each for each in pod.metadata.owner_references or () if each.controller), None)
    if owner is None or owner.kind not in KUBEFLOW_KINDS:
        return None
    return GroupRef(f"{KUBEFLOW} {owner.kind}", pod.metadata.namespace, owner.name)


def said_by(pod: Pod, dialect: str) -> PodGroup | None:
    """The group of a pod that only its pods tell of; None if what it says cannot be read or done."""
    if dialect == HIVED:
        spec = hived.spec_of(pod)
        return PodGroup(spec=spec) if spec is not None else None
    annotations = pod.metadata.annotations or {}
    said = annotations.get(SIZES.get(dialect, GANG_ANNOTATION), "")
    is_number = said.isdecimal() and said.isascii() and len(said) <= DIGITS_MAX
    if not is_number or (dialect == KUEUE and kueue.refusal_of(annotations)):
        return None
    spec = kueue.spec_of(annotations, int(said)) if dialect == KUEUE else PodGroupSpec(min_member=int(said))
    return PodGroup(spec=spec)


def are_at_odds(family: GroupRef, pods: Sequence[Pod]) -> bool:
    """Whether pods of a group that only its pods tell of say different things of it."""
    if family.dialect not in (KUEUE, HIVED):
        return False
    first = said_by(pods[0], family.dialect) if pods else None
    return any(said_by(pod, family.dialect) != first for pod in pods[1:])


def missing(family: GroupRef, pod: Pod) -> str:
    """What a pod waits for whose group is not known."""
    if family.dialect in (KUEUE, HIVED) and said_by(pod, family.dialect) is not None:
        return f"another pod of {family} says what cannot be read, or done"
    if family.dialect == HIVED:
        return hived.refusal_of(pod)
    if family.dialect == KUEUE and (line := kueue.refusal_of(pod.metadata.annotations or {})):
        return f"{family}: {line}"
    if family.dialect == OWN:
        said = (pod.metadata.annotations or {}).get(GANG_ANNOTATION)
        return f"annotation {GANG_ANNOTATION}: expected true on pods of a Job, or a number of pods; got {shown(said)}"
    if family.dialect in SIZES:
        said = (pod.metadata.annotations or {}).get(SIZES[family.dialect])
        return f"annotation {SIZES[family.dialect]}: expected a number of pods; got {shown(said)}"
    return f"{family} is not there yet"


def family_of(pod: Pod) -> Family:
    """The group of a pod, or the pod alone."""
    return group_of(pod) or pod.metadata.key


def shown(said: str | None) -> str:
    """What was written, so short that what is said of it can be read."""
    return repr(said if said is None or len(said) <= SHOWN_MAX else f"{said[:SHOWN_MAX]}…")


def topology_of(group: PodGroup) -> str:
    """The label whose value all pods of a group must find alike on their nodes; empty if they may lie anywhere."""
    tier = tier_of(group.spec.network_topology)
    constraints = group.spec.scheduling_constraints
    found = constraints.topology if constraints is not None else None
    of_kai = group.spec.topology_constraint
    return tier or (found[0].key if found else of_kai.required_topology_level if of_kai is not None else "")


def tier_of(topology: NetworkTopology | None) -> str:
    """The label of the HyperNodes in one of which pods must lie; empty if they may lie anywhere."""
    return f"{TIER_LABEL}{topology.highest_tier_allowed}" if topology is not None and topology.is_hard else ""
