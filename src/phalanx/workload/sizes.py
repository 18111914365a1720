"""Sizes: how large an elastic gang may be, in numbers of replicas of its roles."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import gcd

from phalanx.workload.gang import Gang, Role
from phalanx.workload.parallel import ParallelPlan

Roles = tuple[Role, ...]


def fewer(roles: Roles, less: int) -> Roles:
    """Roles with so many fewer replicas each, but none below its minimum."""
    return tuple(replace(role, replicas_max=max(role.replicas_min, role.replicas_max - less)) for role in roles)


def steps(roles: Roles) -> int:
    """By how many replicas roles can shrink."""
    return max(role.replicas_max - role.replicas_min for role in roles)


def gpus_of(roles: Roles) -> int:
    """GPUs of roles at their largest."""
    return sum(role.gpus_each_max * role.replicas_max for role in roles)


def whole_steps(roles: Roles, plan: ParallelPlan | None) -> Sequence[int]:
    """By how many replicas roles may shrink so that their GPUs are whole replicas of a plan's model, least first.

    Where replicas themselves are elastic that is not known before they are placed, and nothing is ruled out.
    """
    every = range(steps(roles) + 1)
    if plan is None or len(every) == 1 or any(Gang(role.members).elastic for role in roles):
        return every
    replica = plan.tp * plan.pp
    if len(roles) == 1:
        each = roles[0].gpus_each_max
        apart = replica // gcd(replica, each)
        first = (less for less in every[:apart] if not each * (roles[0].replicas_max - less) % replica)
        return range(next(first, len(every)), len(every), apart)
    return [less for less in every if not gpus_of(fewer(roles, less)) % replica]


def of_whole_replicas(gang: Gang, plan: ParallelPlan | None) -> Gang:
    """The gang with no role smaller than it can be with whole replicas of the model."""
    sizes = whole_steps(gang.roles, plan)
    if not sizes or sizes[-1] == steps(gang.roles):
        return gang
    smallest = fewer(gang.roles, sizes[-1])
    roles = (replace(role, replicas_min=least.replicas_max) for role, least in zip(gang.roles, smallest, strict=True))
    return replace(gang, roles=tuple(roles))


def leaves(roles: Roles, times: int = 1) -> list[tuple[Role, int]]:
    """The roles that are tasks, and how many of each there are at full size."""
    found: list[tuple[Role, int]] = []
    for role in roles:
        count = times * role.replicas_max
        found.extend(leaves(role.members, count) if role.members else [(role, count)])
    return found


def least_leaves(roles: Roles) -> Iterator[tuple[Role, int]]:
    """Likewise for roles at full size whose members are as few as they can be."""
    for role in roles:
        if not role.members:
            yield role, role.replicas_max
        for leaf, count in least_leaves(at_least(role.members)):
            yield leaf, count * role.replicas_max


def at_least(roles: Roles) -> Roles:
    """Roles at their smallest."""
    return tuple(replace(role, replicas_max=role.replicas_min) for role in roles)
