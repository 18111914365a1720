"""Elastic attempts: which of their members may go, and which more they could use."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from phalanx.cluster.capacity import Capacity
from phalanx.cluster.cluster import Health
from phalanx.engine.state.records import AttemptRecord, Phase, need_of
from phalanx.placement.placement import Slot
from phalanx.policy.view import Usage
from phalanx.workload.gang import ANYWHERE, Gang, Role
from phalanx.workload.job import Job, Kind


def surplus(attempt: AttemptRecord, sizes: Mapping[str, int] | None = None) -> list[Slot]:
    """Slots a running attempt can do without, or has beyond the sizes its roles are to have, the highest ranks first.

    A gang keeps the minimum of each role, a service also `min_available` in all.
    """
    if attempt.phase is not Phase.RUNNING:
        return []
    job = attempt.job
    spare = {
        role.name: count - (role.replicas_min if sizes is None else size_of(role, sizes))
        for role, count in _counted(attempt)
    }
    if max(spare.values(), default=0) <= 0:
        return []
    if job.kind is Kind.SERVICE:
        in_all = len(attempt.placement.slots) - job.min_available
    else:
        in_all = len(attempt.placement.slots)
    found: list[Slot] = []
    for slot in reversed(attempt.placement.slots):
        if len(found) < in_all and spare.get(slot.role, 0) > 0:
            spare[slot.role] -= 1
            found.append(slot)
    return found


def lost(attempt: AttemptRecord, capacity: Capacity) -> list[Slot]:
    """Members of a running attempt on hardware that has failed."""
    if attempt.phase is not Phase.RUNNING:
        return []
    failed = (
        capacity.health[booking.node] is Health.FAILED
        or any(capacity.device_health.get((booking.node, device)) is Health.FAILED for device in slot.devices)
        for slot, booking in zip(attempt.placement.slots, attempt.bookings, strict=True)
    )
    return [slot for slot, is_lost in zip(attempt.placement.slots, failed, strict=True) if is_lost]


def does_without(attempt: AttemptRecord, going: Sequence[Slot]) -> bool:
    """Whether a service goes on when these members are lost: each replica counts by itself, down to its minimum."""
    job = attempt.job
    if job.kind is not Kind.SERVICE or attempt.phase is not Phase.RUNNING:
        return False
    staying = [slot.role for slot in attempt.placement.slots if slot not in going]
    least = {role.name: role.replicas_min for role in resizable_roles(job)}
    return len(staying) >= max(job.min_available, 1) and all(
        slot.role in least and staying.count(slot.role) >= least[slot.role] for slot in going
    )


def missing(attempt: AttemptRecord, sizes: Mapping[str, int] | None = None) -> list[tuple[Role, int]]:
    """Roles a running attempt could have more members of, up to the sizes they are to have, and how many."""
    if attempt.phase is not Phase.RUNNING:
        return []
    found = []
    for role, count in _counted(attempt):
        more = (role.replicas_max if sizes is None else size_of(role, sizes)) - count
        if more > 0:
            found.append((role, more))
    return found


def sized(gang: Gang, sizes: Mapping[str, int]) -> Gang:
    """The gang with no more members of a role than that is to have."""
    return replace(gang, roles=tuple(replace(role, replicas_max=size_of(role, sizes)) for role in gang.roles))


def most(job: Job) -> Mapping[str, int]:
    """The largest sizes that the roles of a job may have."""
    return {role.name: role.replicas_max for role in job.gang.roles}


def size_of(role: Role, sizes: Mapping[str, int]) -> int:
    """How many members a role is to have: its minimum where nothing is said of it."""
    # Asked of every elastic attempt in every decision: `min` and `max` would cost more than all the rest.
    size = sizes.get(role.name, 0)
    if size <= role.replicas_min:
        return role.replicas_min
    return size if size < role.replicas_max else role.replicas_max


def within(gang: Gang, allows: Callable[[Usage], bool]) -> Gang:
    """The gang with as many members as it is allowed, role by role; never below its minimum."""
    if allows(need_of(_fixed(gang.roles, largest=True))):
        return gang
    roles = list(_fixed(gang.roles, largest=False))
    for i, role in enumerate(gang.roles):
        while roles[i].replicas_max < role.replicas_max:
            more = replace(roles[i], replicas_min=roles[i].replicas_max + 1, replicas_max=roles[i].replicas_max + 1)
            if not allows(need_of((*roles[:i], more, *roles[i + 1 :]))):
                break
            roles[i] = more
    capped = (replace(role, replicas_min=given.replicas_min) for role, given in zip(roles, gang.roles, strict=True))
    return replace(gang, roles=tuple(capped))


def _fixed(roles: tuple[Role, ...], largest: bool) -> tuple[Role, ...]:
    """Roles of one size only: the largest, or the smallest they can have."""
    return tuple(
        replace(role, replicas_min=count, replicas_max=count, members=_fixed(role.members, largest))
        for role in roles
        for count in (role.replicas_max if largest else role.replicas_min,)
    )


def resizable_roles(job: Job) -> list[Role]:
    """Roles of single tasks; with a parallel plan, only if each member holds whole replicas of the model."""
    replica = job.parallel.tp * job.parallel.pp if job.parallel is not None else 1
    return [
        role
        for role in job.gang.roles
        if not role.members and role.topology == ANYWHERE and role.task.gpus % replica == 0
    ]


def count_of(attempt: AttemptRecord, role: Role) -> int:
    """How many members of a role an attempt has."""
    return sum(slot.role == role.name for slot in attempt.placement.slots)


def _counted(attempt: AttemptRecord) -> list[tuple[Role, int]]:
    """Roles that may be resized, and how many members of each an attempt has."""
    roles = resizable_roles(attempt.job)
    if len(attempt.job.gang.roles) == 1:
        return [(role, len(attempt.placement.slots)) for role in roles]
    return [(role, count_of(attempt, role)) for role in roles]
