"""Placing a gang: seats turned into a Placement, or a Refusal that counts what stood in the way."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from phalanx.cluster.bits import members
from phalanx.cluster.topology import Topology
from phalanx.placement.bounds import Counting, supply_idle
from phalanx.placement.exhaustion import some_way
from phalanx.placement.fit import Ask, Fit
from phalanx.placement.gang import GangTrial, Seat
from phalanx.placement.pack import Packing
from phalanx.placement.placement import Lack, Placement, Refusal, Slot
from phalanx.placement.ranks import ranked
from phalanx.workload.gang import Role, Task
from phalanx.workload.job import Job


def placement_of(trial: GangTrial) -> Placement:
    """The seats of a trial by names, ranked by the gang's roles and, within a role, as they were filled.

    With a parallel plan, ranks within a role are those of the plan.
    """
    seats = trial.seats
    if len(trial.job.gang.roles) > 1:
        order = {role.name: i for i, role in enumerate(trial.job.gang.roles)}
        seats = sorted(seats, key=lambda seat: order[seat.role.partition("/")[0]])
    topology = trial.capacity.topology
    slots = slots_of(topology, seats, 0)
    if trial.job.parallel is None:
        return Placement(slots)
    return ranked(topology, trial.job, slots)


def slots_of(topology: Topology, seats: Sequence[Seat], first_rank: int) -> tuple[Slot, ...]:
    """Seats by names, ranked from `first_rank` on."""
    nodes = topology.nodes
    slots = []
    for rank, (role, (node, devices, _, portion, _)) in enumerate(seats, start=first_rank):
        slots.append(Slot(rank, role, nodes[node].name, device_numbers(devices), portion))
    return tuple(slots)


@lru_cache(maxsize=4096)
def device_numbers(devices: int) -> tuple[int, ...]:
    """A set of devices as their numbers: nodes have few devices, so that the same sets come again and again."""
    return tuple(members(devices))


def lack(fit: Fit, job: Job) -> Lack:
    """The dominant reason why a gang that was just tried does not fit. Costs a few set operations."""
    task, count = largest_task(job)
    ask = fit.ask(task, job)
    capacity = fit.capacity
    if not (ask.room >= count if _is_plain(job) else ever(fit, job)):
        return Lack.NEVER
    if fit.healthy_room(task, ask) < count:
        return Lack.UNHEALTHY
    if not task.gpus:
        return Lack.AMOUNT
    gpus = task.gpus * count
    # What is not healthy has nothing free.
    if capacity.free_total < gpus or not capacity.has_free(ask.eligible, gpus):
        return Lack.AMOUNT if ask.portions and _is_crowded_out(fit, ask) else Lack.GPUS
    passing = fit.passing(ask)
    if not capacity.has_free(passing, gpus):
        return Lack.AMOUNT
    return Lack.TOPOLOGY if job.gang.topology.required else Lack.FRAGMENTED


def _is_crowded_out(fit: Fit, ask: Ask) -> bool:
    """Whether shared devices have compute left for a part, but none of their nodes has what lies beside them."""
    least = min(portion.compute_permille for portion in ask.portions if portion is not None)
    sharing = fit.capacity.share_room.at_least(least) & ask.eligible & fit.capacity.open
    return bool(sharing) and not sharing & fit.passing(ask)


def ever(fit: Fit, job: Job) -> bool:
    """Whether a gang might fit if the whole cluster were idle and healthy. Tried once per shape, on such a cluster.

    It is said that it never does only where that is certain: a search that found no place is no proof by itself.
    """
    if _is_plain(job):
        task, count = largest_task(job)
        return fit.ask(task, job).room >= count
    shape = (job.gang, job.parallel, job.node_selector, job.tolerations)
    known = fit.ever.get(shape)
    if known is None:
        known = fit.ever[shape] = _may_ever(fit, job)
    return known


def _may_ever(fit: Fit, job: Job) -> bool:
    counting = Counting(fit, job, supply_idle(fit.capacity), lambda ask: ask.eligible)
    if not counting.holds():
        return False
    if _is_counted(fit, job):
        return True
    trial = GangTrial(fit.ideal(), Packing(), job)
    seated = trial.seat()
    trial.undo()
    if seated or trial.cut_short:
        return True
    # Tasks of one kind have room in any order or in none; for several kinds, one order proves nothing of the others.
    return len(_leaves(job)) > 1 and some_way(fit, job) is not False


def _is_counted(fit: Fit, job: Job) -> bool:
    """Whether counting tells all of a gang: tasks of one kind that are bound to one level at most, of whole nodes."""
    required = [job.gang.topology.required]
    roles = job.gang.roles
    while len(roles) == 1:
        required.append(roles[0].topology.required)
        roles = roles[0].members
    levels = [level for level in required if level]
    inside = fit.capacity.topology.cluster.levels_inside
    return not roles and job.parallel is None and len(levels) < 2 and not any(level in inside for level in levels)


def _is_plain(job: Job) -> bool:
    """Whether a gang is so many equal tasks on whole devices that may lie anywhere: then counting is enough."""
    role = job.gang.roles[0]
    if job.parallel is not None and role.replicas_min < role.replicas_max:
        return False
    required = role.topology.required or job.gang.topology.required
    return len(job.gang.roles) == 1 and not role.members and role.task.share is None and not required


def refusal(fit: Fit, job: Job) -> Refusal:
    """Why a gang does not fit, with counts: for whoever asks. Of one that never will, what load is does not count."""
    found = lack(fit, job)
    ask = fit.ask(largest_task(job)[0] if found is not Lack.NEVER else _hopeless_task(fit, job), job)
    capacity = fit.capacity
    counts = fit.counts(ask, capacity.topology.everything)
    return Refusal(
        found,
        len(capacity.topology.nodes),
        counts if found is not Lack.NEVER else tuple(pair for pair in ask.ruled_out if pair[1]),
        capacity.free_gpus(ask.eligible & capacity.open),
        job.gang.gpus_min,
    )


def _hopeless_task(fit: Fit, job: Job) -> Task:
    """The first task that no node could take; else the one that takes most GPUs."""
    hopeless = (task for task, _ in _leaves(job) if not fit.ask(task, job).eligible)
    return next(hopeless, largest_task(job)[0])


def largest_task(job: Job) -> tuple[Task, int]:
    """The task that takes most of the gang's GPUs, and how many there must be."""
    first = job.gang.roles[0]
    if len(job.gang.roles) == 1 and not first.members:
        return first.task, first.replicas_min
    return max(_leaves(job), key=lambda leaf: leaf[0].gpus * leaf[1])


def _leaves(job: Job) -> list[tuple[Task, int]]:
    """Every task, and how many of it there must be."""
    leaves: list[tuple[Task, int]] = []

    def walk(roles: tuple[Role, ...], times: int) -> None:
        for role in roles:
            if role.members:
                walk(role.members, times * role.replicas_min)
            else:
                leaves.append((role.task, times * role.replicas_min))

    walk(job.gang.roles, 1)
    return leaves
