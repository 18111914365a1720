"""Placing a gang: seats turned into a Placement, or a Refusal that counts what stood in the way."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from phalanx.cluster.bits import members
from phalanx.cluster.topology import Topology
from phalanx.placement.bounds import Counting, supply_idle
from phalanx.placement.exhaustion import some_way
from phalanx.placement.fit import Ask, Fit
from phalanx.placement.gang import GangTrial, Seat
from phalanx.placement.pack import Packing
from phalanx.placement.placement import Lack, Placement, Refusal, Slot
from phalanx.placement.ranks import ranked
from phalanx.placement.refusals.scarcity import scarcity
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


class Leaf(NamedTuple):
    """Equal tasks of a gang: how many there must be, and the path of their role."""

    task: Task
    tasks: int
    role: str


def lack(fit: Fit, job: Job) -> Lack:
    """The dominant reason why a gang that was just tried does not fit. Costs a few set operations."""
    return _lacking(fit, job)[0]


def _lacking(fit: Fit, job: Job) -> tuple[Lack, Leaf | None]:
    """What a gang lacks, and which of its roles does, where that is not the one that takes most GPUs."""
    task, count = largest_task(job)
    if not (fit.ask(task, job).room >= count if _is_plain(job) else ever(fit, job)):
        return Lack.NEVER, None
    found = _lack_of(fit, job, task, count)
    if found is not None or not task.gpus:
        return found or Lack.AMOUNT, None
    if _has_several_roles(job):
        leaves = _leaves(job)
        for leaf in leaves:
            # Parts of devices are not counted by whole ones.
            others = leaf.task is not task and leaf.task.share is None
            if others and (found := _lack_of(fit, job, leaf.task, leaf.tasks)) is not None:
                return found, leaf
        if _need_more_than_is_free(fit, job, leaves):
            return Lack.GPUS, None
    return Lack.TOPOLOGY if job.gang.topology.required else Lack.FRAGMENTED, None


def _lack_of(fit: Fit, job: Job, task: Task, count: int) -> Lack | None:
    """What equal tasks lack, wherever they were to lie; None if there is enough of all."""
    ask = fit.ask(task, job)
    capacity = fit.capacity
    if fit.healthy_room(task, ask) < count:
        return Lack.UNHEALTHY
    if not task.gpus:
        return None if fit.passing(ask) and _has_several_roles(job) else Lack.AMOUNT
    gpus = task.gpus * count
    # What is not healthy has nothing free.
    if capacity.free_total < gpus or not capacity.has_free(ask.eligible, gpus):
        return Lack.AMOUNT if ask.portions and _is_crowded_out(fit, ask) else Lack.GPUS
    passing = fit.passing(ask)
    if not capacity.has_free(passing, gpus):
        return Lack.AMOUNT
    return None


def _has_several_roles(job: Job) -> bool:
    return len(job.gang.roles) > 1 or bool(job.gang.roles[0].members)


def _need_more_than_is_free(fit: Fit, job: Job, leaves: list[Leaf]) -> bool:
    """Whether all roles together need more GPUs than are free, where all may lie on the same nodes."""
    asks = [(fit.ask(leaf.task, job), leaf.tasks) for leaf in leaves if leaf.task.gpus]
    if any(ask.portions or ask.eligible != asks[0][0].eligible for ask, _ in asks):
        return False
    free = fit.capacity.free_gpus(asks[0][0].eligible & fit.capacity.open) if asks else 0
    return sum(ask.gpus * count for ask, count in asks) > free


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
    # Tasks of one kind have room in any order or in none; for several kinds, one order proves nothing of another.
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
    """Why a gang does not fit, with counts, on request. Of one that never will, what load is does not count.

    What `lack` takes for GPUs that do not lie together may be what lies beside them: here that is tried.
    """
    found, leaf = _lacking(fit, job)
    task = leaf.task if leaf is not None else largest_task(job)[0]
    role, short_of = leaf.role if leaf is not None else "", ""
    if found in (Lack.TOPOLOGY, Lack.FRAGMENTED) and (scarce := scarcity(fit, job)) is not None:
        found, role, short_of = Lack.AMOUNT, scarce.role, scarce.name
    ask = fit.ask(task if found is not Lack.NEVER else _hopeless_task(fit, job), job)
    capacity = fit.capacity
    counts = fit.counts(ask, capacity.topology.everything)
    return Refusal(
        found,
        len(capacity.topology.nodes),
        counts if found is not Lack.NEVER else tuple(pair for pair in ask.ruled_out if pair[1]),
        capacity.free_gpus(ask.eligible & capacity.open),
        leaf.task.gpus * leaf.tasks if leaf is not None and found is Lack.GPUS else job.gang.gpus_min,
        role,
        short_of,
    )


def telling_task(fit: Fit, job: Job) -> Task:
    """The task that a refusal counts nodes for: of the role that lacks, or the one that takes most GPUs."""
    leaf = _lacking(fit, job)[1]
    return leaf.task if leaf is not None else largest_task(job)[0]


def _hopeless_task(fit: Fit, job: Job) -> Task:
    """The first task that no node could take; else the one that takes most GPUs."""
    hopeless = (leaf.task for leaf in _leaves(job) if not fit.ask(leaf.task, job).eligible)
    return next(hopeless, largest_task(job)[0])


def largest_task(job: Job) -> tuple[Task, int]:
    """The task that takes most of the gang's GPUs, and how many there must be."""
    first = job.gang.roles[0]
    if len(job.gang.roles) == 1 and not first.members:
        return first.task, first.replicas_min
    most = max(_leaves(job), key=lambda leaf: leaf.task.gpus * leaf.tasks)
    return most.task, most.tasks


def _leaves(job: Job) -> list[Leaf]:
    """Every task, and how many of it there must be."""
    leaves: list[Leaf] = []

    def walk(roles: tuple[Role, ...], above: str, times: int) -> None:
        for role in roles:
            path = f"{above}/{role.name}" if above else role.name
            if role.members:
                walk(role.members, path, times * role.replicas_min)
            else:
                leaves.append(Leaf(role.task, times * role.replicas_min, path))

    walk(job.gang.roles, "", 1)
    return leaves
