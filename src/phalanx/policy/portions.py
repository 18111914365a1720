"""Gangs on parts of devices: what a policy that shares GPUs makes of gangs that asked for whole ones."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from phalanx.workload.gang import Gang, Role, Task
from phalanx.workload.share import ShareAsk

NODE = "node"
MB_PER_GB = 1024


@lru_cache(maxsize=4096)
def with_share(gang: Gang, share: ShareAsk) -> Gang:
    """The gang with a share of each of its GPUs instead of the whole of it; what was one task stays on one node.

    Elastic gangs, gangs of gangs, and those that share devices in their own way stay as they are.
    """
    tasks = [role.task for role in gang.roles if not role.members]
    if gang.elastic or len(tasks) < len(gang.roles) or any(task.share is not None for task in tasks):
        return gang
    alone = len(gang.roles) == 1 and gang.roles[0].replicas_max == 1 and gang.roles[0].task.gpus > 1
    topology = replace(gang.topology, required=gang.topology.required or NODE) if alone else gang.topology
    return Gang(tuple(_shared(role, share, alone) for role in gang.roles), topology)


def _shared(role: Role, share: ShareAsk, alone: bool) -> Role:
    parts = role.task.gpus
    if not parts:
        return role
    one = _part(role.task, share)
    if parts == 1:
        return replace(role, task=one)
    if alone:
        return Role(role.name, parts, parts, one, topology=role.topology)
    return replace(role, members=(Role("gpu", parts, parts, one),), topology=replace(role.topology, required=NODE))


def _part(task: Task, share: ShareAsk) -> Task:
    """One GPU's part of a task. What a revocable share cannot keep on the device is kept in the memory of the host."""
    cpus_milli, memory_mb = -(-task.cpus_milli // task.gpus), -(-task.memory_mb // task.gpus)
    if share.revocable:
        memory_mb += int(task.gpu_memory_gb * MB_PER_GB)
    return replace(task, gpus=1, share=share, cpus_milli=cpus_milli, memory_mb=memory_mb)
