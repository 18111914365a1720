"""Manifests: the objects that a job has made for it."""

from __future__ import annotations

import copy
from typing import Any

from phalanx.kube.volcano.job import (
    JOB_NAME,
    JOB_NAMESPACE,
    JOB_VERSION,
    PARTITION,
    QUEUE_NAME,
    TASK_INDEX,
    TASK_SPEC,
    PartitionPolicy,
    TaskSpec,
    VolcanoJob,
)

API_VERSION = "batch.volcano.sh/v1alpha1"
GROUP_NAME = "scheduling.k8s.io/group-name"

Manifest = dict[str, Any]


def pod_name(job: VolcanoJob, task: TaskSpec, index: int) -> str:
    """The name of one pod of a task."""
    return f"{job.metadata.name}-{task.name}-{index}"


def host_name(job: VolcanoJob, task: TaskSpec, index: int) -> str:
    """The name by which one pod of a task finds another: its host in the Service of the job."""
    spec = task.template.get("spec") or {}
    return f"{spec.get('hostname') or pod_name(job, task, index)}.{spec.get('subdomain') or job.metadata.name}"


def selector(job: VolcanoJob) -> dict[str, str]:
    """The labels of all pods of a job."""
    return {JOB_NAME: job.metadata.name, JOB_NAMESPACE: job.metadata.namespace}


def owned(job: VolcanoJob, api_version: str, kind: str, name: str, **fields: Any) -> Manifest:
    """An object that is deleted with its job."""
    owner = {
        "apiVersion": API_VERSION,
        "kind": "Job",
        "name": job.metadata.name,
        "uid": job.metadata.uid,
        "controller": True,
    }
    metadata = {"name": name, "namespace": job.metadata.namespace, "ownerReferences": [owner]}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **fields}


def group_of(job: VolcanoJob, version: str) -> Manifest:
    """The PodGroup by which the pods of a job start together."""
    first = sum(task.replicas for task in job.tasks if task.depends_on is None or not task.depends_on.name)
    # Pods that are made only when others run cannot start together with these.
    spec: Manifest = {"minMember": min(job.least, first), "queue": job.spec.queue or "default"}
    if first == job.replicas and job.least >= sum(task.least for task in job.tasks):
        spec["minTaskMember"] = {task.name: task.least for task in job.tasks}
    if job.spec.priority_class_name:
        spec["priorityClassName"] = job.spec.priority_class_name
    if job.spec.network_topology is not None:
        spec["networkTopology"] = job.spec.network_topology
    if policies := [_sub_groups(task, task.partition_policy) for task in job.tasks if task.partition_policy]:
        spec["subGroupPolicy"] = policies
    return owned(job, version, "PodGroup", job.group, spec=spec)


def _sub_groups(task: TaskSpec, partitions: PartitionPolicy) -> Manifest:
    """How the PodGroup says that each partition of a task starts and lies together."""
    policy: Manifest = {
        "name": task.name,
        "labelSelector": {"matchLabels": {TASK_SPEC: task.name}},
        "matchLabelKeys": [PARTITION],
        "subGroupSize": partitions.partition_size,
        "minSubGroups": partitions.min_partitions,
    }
    if partitions.network_topology is not None:
        policy["networkTopology"] = partitions.network_topology
    return policy


def pod_of(job: VolcanoJob, task: TaskSpec, index: int, scheduler: str) -> Manifest:
    """One pod of a task."""
    template = copy.deepcopy(task.template)
    metadata, spec = template.get("metadata") or {}, template.get("spec") or {}
    pod = owned(job, "v1", "Pod", pod_name(job, task, index), spec=spec)
    queue = job.spec.queue or "default"
    pod["metadata"]["labels"] = {
        **(metadata.get("labels") or {}),
        **selector(job),
        TASK_SPEC: task.name,
        TASK_INDEX: str(index),
        QUEUE_NAME: queue,
    }
    if task.partition_policy is not None:
        pod["metadata"]["labels"][PARTITION] = str(index // task.partition_policy.partition_size)
    pod["metadata"]["annotations"] = {
        **(metadata.get("annotations") or {}),
        GROUP_NAME: job.group,
        TASK_SPEC: task.name,
        JOB_NAME: job.metadata.name,
        JOB_VERSION: str(job.status.version),
        QUEUE_NAME: queue,
    }
    spec.setdefault("schedulerName", job.spec.scheduler_name or scheduler)
    if job.spec.priority_class_name:
        spec.setdefault("priorityClassName", job.spec.priority_class_name)
    for number, volume in enumerate(job.spec.volumes or ()):
        source = {"persistentVolumeClaim": {"claimName": volume.volume_claim_name}}
        mount(spec, f"volume-{number}", source, volume.mount_path)
    return pod


def mount(spec: Manifest, name: str, source: Manifest, path: str) -> None:
    """Has all containers of a pod see a volume."""
    spec.setdefault("volumes", []).append({"name": name, **source})
    for container in containers(spec):
        container.setdefault("volumeMounts", []).append({"name": name, "mountPath": path})


def containers(spec: Manifest) -> list[Manifest]:
    """All containers of a pod, those that come first among them."""
    return [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
