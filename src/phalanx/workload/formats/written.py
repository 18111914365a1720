"""Jobs and clusters as the native files say them: plain data that YAML and JSON can write."""

from __future__ import annotations

from typing import Any

from phalanx.cluster.catalogue import UnknownAccelerator, accelerator
from phalanx.cluster.cluster import NODE, Cluster, Node
from phalanx.workload.gang import Role, Task
from phalanx.workload.job import Job

MB_PER_GB = 1024


def job_file(job: Job) -> dict[str, Any]:
    """A job file that reads as this job. It knows what importers make: gangs of tasks, commands, arrays, labels."""
    execution = job.execution
    return _given(
        version=1,
        name=job.name,
        queue=job.queue,
        priority=job.priority,
        command=list(execution.command),
        image=execution.image,
        secrets=list(execution.secrets),
        gang=[_role(role) for role in job.gang.roles],
        array=f"{job.array.indices[0]}-{job.array.indices[-1]}" if job.array is not None else "",
        retry={"limit": job.retry_limit} if job.retry_limit else {},
        labels=dict(job.labels),
    )


def _role(role: Role) -> dict[str, Any]:
    replicas: object = role.replicas_min
    if role.replicas_min != role.replicas_max:
        replicas = {"min": role.replicas_min, "max": role.replicas_max}
    return {"role": role.name, "replicas": replicas} | _task(role.task)


def _task(task: Task) -> dict[str, Any]:
    types = task.gpu_types[0] if len(task.gpu_types) == 1 else list(task.gpu_types)
    return _given(
        gpus=task.gpus,
        gpu_type=types,
        cpus=_number(task.cpus_milli / 1000),
        memory_gb=_number(task.memory_mb / MB_PER_GB),
    )


def cluster_file(cluster: Cluster) -> dict[str, Any]:
    """A cluster file that reads as this cluster: its nodes, their domains and GPU types."""
    types = {
        node.gpu_type: node.gpu_memory_gb
        for node in cluster.nodes
        if node.gpu_type and not _is_catalogued(node.gpu_type, node.gpu_memory_gb)
    }
    return _given(
        version=1,
        name=cluster.name,
        levels=list(cluster.levels) if cluster.levels != (NODE,) else [],
        gpu_types={name: {"memory_gb": _number(gb)} for name, gb in types.items()},
        nodes=[_node(node, cluster) for node in cluster.nodes],
    )


def _is_catalogued(gpu_type: str, memory_gb: float) -> bool:
    """Whether the catalogue says the same of a type: a file must not say it again."""
    try:
        return accelerator(gpu_type).memory_gb.value == memory_gb
    except UnknownAccelerator:
        return False


def _node(node: Node, cluster: Cluster) -> dict[str, Any]:
    domains = dict(zip(cluster.levels_above, node.path, strict=True))
    return _given(
        name=node.name,
        gpus=node.gpus,
        gpu_type=node.gpu_type,
        cpus=_number(node.cpus_milli / 1000),
        memory_gb=_number(node.memory_mb / MB_PER_GB),
        split=dict(node.split),
        labels=dict(node.labels),
        **{level: name for level, name in domains.items() if name},
    )


def _given(**values: Any) -> dict[str, Any]:
    """What is neither empty nor zero, which is what a file leaves out."""
    return {key: value for key, value in values.items() if value not in ("", [], {}, 0)}


def _number(value: float) -> float | int:
    return int(value) if value == int(value) else value
