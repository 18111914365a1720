"""The shape of a gang: one task or many, on whole devices or parts of them, held to a level or not."""

from __future__ import annotations

from collections.abc import Iterator

from phalanx.cluster.cluster import CLUSTER
from phalanx.workload.gang import ANYWHERE, Gang, Role, Task, Topology
from phalanx.workload.sizes import leaves


def is_lone(gang: Gang) -> bool:
    """Whether a gang is one task on whole devices that may lie anywhere."""
    return _is_anywhere(gang.topology) and is_single(gang)


def is_single(gang: Gang) -> bool:
    """Whether a gang is one task on whole devices, wherever that may lie."""
    role = gang.roles[0]
    return (
        len(gang.roles) == 1
        and role.replicas_max == 1
        and not role.members
        and role.task.share is None
        and role.task.gpus > 0
        and _is_anywhere(role.topology)
    )


def _is_anywhere(topology: Topology) -> bool:
    # Mostly it is the very same object, and comparing fields costs much more than that.
    return topology is ANYWHERE or topology == ANYWHERE


def has_parts(roles: tuple[Role, ...]) -> bool:
    """Whether any task takes a part of a device."""
    return any(map(_is_part, roles))


def _is_part(role: Role) -> bool:
    return has_parts(role.members) if role.members else role.task.share is not None


def least_tasks(roles: tuple[Role, ...], above: str) -> Iterator[tuple[Task, str]]:
    """Every task of roles at their smallest and the path of its role, replica by replica."""
    for role in roles:
        path = f"{above}/{role.name}" if above else role.name
        for _ in range(role.replicas_min):
            if role.members:
                yield from least_tasks(role.members, path)
            else:
                yield role.task, path


def are_unheld(roles: tuple[Role, ...], held_to: str, wide: tuple[str, ...]) -> bool:
    """Whether nothing but the gang as a whole is held to a level: what is one task is on one node in any case."""
    return all(
        role.topology.required in ("", CLUSTER, held_to) and are_unheld(role.members, held_to, wide)
        if role.members
        else role.topology.required in wide
        for role in roles
    )


def task_size(role: Role) -> tuple[int, int, int]:
    """The most that one task of a role takes, of what is scarcest first."""
    return max((leaf.task.gpus, leaf.task.cpus_milli, leaf.task.memory_mb) for leaf, _ in leaves((role,)))
