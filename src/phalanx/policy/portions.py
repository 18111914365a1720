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

    Elastic gangs, gangs of gangs, those that share devices in their own way, and those with several GPUs for one NIC or
    disk stay as they are.
    """
    tasks = [role.task for role in gang.roles if not role.members]
    if gang.elastic or len(tasks) < len(gang.roles) or not all(map(_can_share, tasks)):
        return gang
    alone = len(gang.roles) == 1 and gang.roles[0].replicas_max == 1 and gang.roles[0].task.gpus > 1
    topology = replace(gang.topology, required=gang.topology.required or NODE) if alone else gang.topology
    return Gang(tuple(_shared(role, share, alone) for role in gang.roles), topology)


def asks_for_shares(gang: Gang) -> bool:
    """Whether any task of a gang asks for a part of a device by itself."""
    return any(_asks_for_shares(role) for role in gang.roles)


def _asks_for_shares(role: Role) -> bool:
    return any(map(_asks_for_shares, role.members)) if role.members else role.task.share is not None


def _can_share(task: Task) -> bool:
    return task.share is None and (task.gpus < 2 or not (task.nics or task.storage_gb))


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
    """One GPU's part of a task, rounded down: the parts fit where the whole does.

    What a revocable share cannot keep on the device is kept in the memory of the host.
    """
    on_host_mb = int(task.gpu_memory_gb * MB_PER_GB) if share.revocable else 0
    return replace(
        task,
        gpus=1,
        share=share,
        cpus_milli=task.cpus_milli // task.gpus,
        cpus_limit_milli=task.cpus_limit_milli // task.gpus,
        memory_mb=task.memory_mb // task.gpus + on_host_mb,
        memory_limit_mb=task.memory_limit_mb // task.gpus + on_host_mb if task.memory_limit_mb else 0,
    )
