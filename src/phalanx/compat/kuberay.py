"""A job as manifests of KubeRay (`ray.io/v1`): a RayJob that ends with its command, or a RayCluster to work on.

Each role becomes a worker group, each task a pod. The head has no GPU and runs no tasks: what it does, it does for all.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from phalanx.errors import PhalanxError
from phalanx.placement.fit import NODE_NAME
from phalanx.workload.gang import Role, Task
from phalanx.workload.job import Job, Kind
from phalanx.workload.selector import selector_of

VERSION = "ray.io/v1"
GPU = "nvidia.com/gpu"
HOSTNAME = "kubernetes.io/hostname"
HEAD_CPU, HEAD_MEMORY = "2", "8Gi"
"""What Ray's documentation gives a head of a small cluster."""

NAME_MAX = 47
"""KubeRay makes names of services of it, which have at most 63 characters."""

NAMES = "[a-z]([-a-z0-9]*[a-z0-9])?"


class ExportError(PhalanxError):
    """A job that Ray cannot run as it is asked for."""


@dataclass(frozen=True, slots=True)
class Site:
    """What a manifest needs of the cluster that it is for: an image with Ray, its version, and who schedules pods."""

    ray_version: str
    image: str = ""
    scheduler: str = "phalanx"


def ray_job(job: Job, site: Site) -> dict[str, Any]:
    """A RayJob that makes a RayCluster, runs the job's command on it once, and takes it away."""
    if not job.execution.command:
        raise ExportError(f"job {job.name}: there is nothing to run; give it a `command`")
    spec: dict[str, Any] = {
        "entrypoint": shlex.join(job.execution.command),
        # Without it KubeRay could not suspend the job, and so it could never make way for another.
        "shutdownAfterJobFinishes": True,
        "backoffLimit": job.retry_limit,
        "rayClusterSpec": _cluster_spec(job, site),
    }
    if job.max_run_ms is not None:
        spec["activeDeadlineSeconds"] = -(-job.max_run_ms // 1000)
    if job.execution.env or job.execution.workdir:
        spec["runtimeEnvYAML"] = _runtime_env(job)
    return {"apiVersion": VERSION, "kind": "RayJob", "metadata": _metadata(job), "spec": spec}


def ray_cluster(job: Job, site: Site) -> dict[str, Any]:
    """A RayCluster of the job's size, that stays until it is deleted."""
    return {
        "apiVersion": VERSION,
        "kind": "RayCluster",
        "metadata": _metadata(job),
        "spec": _cluster_spec(job, site),
    }


def not_said(job: Job) -> Iterator[str]:
    """What a job asks for and manifests of KubeRay cannot say, one line each."""
    if job.queue != "default":
        yield f"queue '{job.queue}': a RayCluster names no queue; its namespace is the user"
    if job.priority:
        yield f"priority {job.priority}: give the pods a priorityClassName"
    for name, is_said in {
        "after": job.after,
        "begin": job.begin_ms,
        "deadline": job.deadline_ms,
        "max_wait": job.max_wait_ms,
        "secrets": job.execution.secrets,
        "mounts": job.execution.mounts,
        "topology": job.gang.topology.required or job.gang.topology.preferred,
        "parallel": job.parallel,
        "array": job.array,
        "tolerations": job.tolerations or [role for role in job.gang.roles if _task_of(role)[0].tolerations],
        "prefer": job.preferences,
        "gpu_type": [role for role in job.gang.roles if _task_of(role)[0].gpu_types],
    }.items():
        if is_said:
            yield f"{name}: KubeRay has nothing like it; it is left out"


def _metadata(job: Job) -> dict[str, Any]:
    name = re.sub("[^a-z0-9]+", "-", job.name.lower()).strip("-")[:NAME_MAX].strip("-")
    if re.fullmatch(NAMES, name) is None:
        raise ExportError(f"job '{job.name}': expected a name with a letter first, for its pods and services")
    labels = {key: value for key, value in job.labels if re.fullmatch("[-A-Za-z0-9_./]{1,63}", value)}
    return {"name": name, **({"labels": labels} if labels else {})}


def _cluster_spec(job: Job, site: Site) -> dict[str, Any]:
    if job.kind is Kind.SERVICE:
        raise ExportError(f"job {job.name}: a service is a RayService, which is not written yet")
    return {
        "rayVersion": site.ray_version,
        "enableInTreeAutoscaling": job.gang.elastic,
        "headGroupSpec": {
            "rayStartParams": {"num-cpus": "0", "dashboard-host": "0.0.0.0"},
            "template": _template(job, site, "ray-head", {"cpu": HEAD_CPU, "memory": HEAD_MEMORY}),
        },
        "workerGroupSpecs": [_worker_group(job, role, site) for role in job.gang.roles],
    }


def _worker_group(job: Job, role: Role, site: Site) -> dict[str, Any]:
    task, hosts = _task_of(role)
    return {
        "groupName": role.name,
        # Where Ray scales it, it begins with the fewest.
        "replicas": role.replicas_min,
        "minReplicas": role.replicas_min,
        "maxReplicas": role.replicas_max,
        "numOfHosts": hosts,
        "rayStartParams": {"num-gpus": str(task.gpus)},
        "template": _template(job, site, "ray-worker", _resources(role, task), task.node_selector),
    }


def _task_of(role: Role) -> tuple[Task, int]:
    """The task of each pod of a role, and how many pods a replica is."""
    if not role.members:
        return role.task, 1
    if len(role.members) == 1 and not role.members[0].members:
        member = role.members[0]
        if member.replicas_min == member.replicas_max:
            return member.task, member.replicas_max
    raise ExportError(f"role {role.name}: a worker group of KubeRay has pods of one kind, in replicas of one size")


def _resources(role: Role, task: Task) -> dict[str, str]:
    if task.share is not None:
        raise ExportError(f"role {role.name}: a pod has whole GPUs; `share` cannot be said")
    whole, rest = divmod(task.cpus_milli, 1000)
    resources = {"cpu": f"{task.cpus_milli}m" if rest else str(whole)} if task.cpus_milli else {}
    if task.memory_mb:
        resources["memory"] = f"{task.memory_mb}Mi"
    if task.gpus:
        resources[GPU] = str(task.gpus)
    return resources


def _template(
    job: Job, site: Site, container: str, resources: dict[str, str], selected: tuple[tuple[str, str], ...] = ()
) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "schedulerName": site.scheduler,
        "terminationGracePeriodSeconds": -(-job.grace_ms // 1000),
        "containers": [
            {
                "name": container,
                "image": job.execution.image or site.image or f"rayproject/ray:{site.ray_version}",
                # Ray takes what a pod is limited to for what it has.
                "resources": {"requests": resources, "limits": dict(resources)},
            }
        ],
    }
    plain, expressions = _selected((*job.node_selector, *selected))
    if plain:
        spec["nodeSelector"] = plain
    if expressions:
        terms = [{"matchExpressions": expressions}]
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        spec["affinity"] = {"nodeAffinity": required}
    return {"spec": spec}


def _selected(labels: tuple[tuple[str, str], ...]) -> tuple[dict[str, str], list[dict[str, Any]]]:
    """Labels that nodes must have, and those of which several values, or all others, will do."""
    plain: dict[str, str] = {}
    expressions: list[dict[str, Any]] = []
    for label, text in labels:
        key, selector = HOSTNAME if label == NODE_NAME else label, selector_of(text)
        if selector.excludes or len(selector.values) > 1:
            operator = "NotIn" if selector.excludes else "In"
            expressions.append({"key": key, "operator": operator, "values": list(selector.values)})
        else:
            plain[key] = text
    return plain, expressions


def _runtime_env(job: Job) -> str:
    """JSON is YAML, too."""
    environment: dict[str, Any] = {}
    if job.execution.env:
        environment["env_vars"] = dict(job.execution.env)
    if job.execution.workdir:
        environment["working_dir"] = job.execution.workdir
    return json.dumps(environment)
