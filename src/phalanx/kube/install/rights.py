"""Rights: what `phalanx kube` asks of an API server, and nothing else."""

from __future__ import annotations

from typing import Any, NamedTuple

READ = ("list", "watch")
"""Each kind is listed and watched as a whole; single objects are read of few kinds."""


class Right(NamedTuple):
    """What may be done with some resources of an API group, and what for."""

    api: str
    resources: tuple[str, ...]
    verbs: tuple[str, ...]
    why: str

    @property
    def rule(self) -> dict[str, Any]:
        """The rule of a role."""
        return {"apiGroups": [self.api], "resources": list(self.resources), "verbs": list(self.verbs)}


LOOKING_ON = (
    Right("", ("nodes", "pods"), READ, "what there is"),
    Right("scheduling.k8s.io", ("podgroups", "compositepodgroups", "priorityclasses"), READ, "native gangs"),
    Right("scheduling.x-k8s.io", ("podgroups",), READ, "gangs of scheduler-plugins"),
    Right("scheduling.volcano.sh", ("podgroups", "queues"), READ, "gangs and queues of Volcano"),
    Right("scheduling.run.ai", ("podgroups",), READ, "gangs of KAI"),
    Right("topology.volcano.sh", ("hypernodes",), READ, "levels of the network"),
    Right("batch", ("jobs",), READ, "gangs by annotation"),
    Right("jobset.x-k8s.io", ("jobsets",), READ, "gangs of JobSets"),
    Right("leaderworkerset.x-k8s.io", ("leaderworkersets",), READ, "gangs of LeaderWorkerSets"),
    Right("ray.io", ("rayclusters",), READ, "gangs of Ray"),
    Right(
        "kubeflow.org",
        ("pytorchjobs", "tfjobs", "mpijobs", "xgboostjobs", "paddlejobs", "jaxjobs"),
        READ,
        "gangs of Kubeflow",
    ),
)
"""What shadow and snapshot read."""

SCHEDULING = (
    *LOOKING_ON,
    Right("", ("namespaces", "persistentvolumes", "persistentvolumeclaims"), READ, "affinity and volumes"),
    Right("storage.k8s.io", ("storageclasses",), READ, "volumes that wait for their first pod"),
    Right("policy", ("poddisruptionbudgets",), READ, "what may not be evicted"),
    Right("", ("pods/binding", "pods/eviction", "events"), ("create",), "to bind, to preempt, to tell"),
    Right("", ("pods/status",), ("patch",), "why a pod waits"),
    Right("", ("pods",), ("get",), "whether a bind that was repeated is our own"),
    Right("", ("pods",), ("delete",), "a gang of which one pod cannot be bound is undone"),
    Right("", ("persistentvolumeclaims",), ("patch",), "the node for which a volume is made"),
    Right(
        "scheduling.k8s.io", ("podgroups/status", "compositepodgroups/status"), ("patch",), "whether a gang has started"
    ),
    Right("ray.io", ("rayclusters", "rayjobs"), ("get", "list", "patch"), "Ray clusters are suspended, not torn apart"),
)
"""What scheduling takes, but for the Lease, which is in one namespace."""

EXTENDING = (*SCHEDULING, Right("", ("pods",), ("patch",), "which GPUs a pod is meant for"))
"""What the extender takes."""

LEASES = (
    Right("coordination.k8s.io", ("leases",), ("create",), "the first replica makes the Lease"),
    Right("coordination.k8s.io", ("leases",), ("get", "update"), "it is renewed"),
)
