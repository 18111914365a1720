"""phalanx: what the product decides by where no policy is named. Nothing need be known of a job.

Composed of what has been shown to work elsewhere: least attained service in levels that grow (Tiresias, NSDI 2019),
with promotion of jobs that have waited long; priorities before all (Borg, EuroSys 2015); jobs moved together before any
is stopped (KAI); a job that fits may pass. Of unlike GPUs each job gets those on which it gains most (as in Gavel, OSDI
2020), by speeds that are learned from what jobs report. Ours are the measure of service, between Tiresias' two, the
prices by which types are chosen, and that the price of being stopped counts: a job that does not save its work is never
stopped for one of its own priority.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import isqrt

from phalanx.cluster.cluster import NODE, Node
from phalanx.policy.about import About
from phalanx.policy.fleet import bound_type, next_look, observe_fleet, observe_presence, observe_seats, preferred
from phalanx.policy.gavel import confined
from phalanx.policy.growth import needs
from phalanx.policy.parameters import Parameters
from phalanx.policy.policy import Key, Memory, Observe, Policy, Targets, anybody, nobody
from phalanx.policy.view import WHEREVER, JobView, Moment, Place, Usage
from phalanx.protocol.event import ClusterChanged, ClusterDefined, Event
from phalanx.workload.gang import ANYWHERE, Gang, Topology
from phalanx.workload.job import Job, Kind

LEVEL, RISEN, RISEN_MS, SAVES = "level", "risen", "risen_ms", "saves"
KEPT = -1
"""The level of a job that runs and does not save its work: before all other jobs of its priority."""

PACES_MS = 300_000
"""When a job has settled where it runs, so that what it says of its pace counts."""


NODES = "smallest node"
ON_ONE_NODE = Topology(required=NODE)

MEDIAN = 500
THOUSAND = 1000


def phalanx(parameters: Parameters) -> Policy:
    """`first` is the service in seconds of one GPU that the first level has, and every other has `factor` times that of
    the one before. A job that has waited `patience` times as long as it ever ran rises by a level (0: never). `moves`
    says whether jobs are moved together for one that does not fit, `stops=all` that work which is not saved does not
    count. `types` says by what it is told on which GPU types a job does best: by what jobs report, or by the catalogue
    alone. With `together` elastic jobs start on one node where that can be, and fill it before they grow beyond it.
    """
    first_ms = 1000 * parameters.integer("first", default=600, least=1)
    factor = parameters.integer("factor", default=4, least=2)
    patience = parameters.integer("patience", default=2)
    moves = parameters.boolean("moves", default=True)
    stops_all = parameters.choice("stops", ("savers", "all")) == "all"
    types = parameters.choice("types", ("learned", "catalogue", "off"))
    together = parameters.boolean("together", default=True)

    def border_ms(level: int) -> int:
        return first_ms * int(factor**level)

    def level_of(service_ms: int) -> int:
        level = 0
        while service_ms >= border_ms(level):
            level += 1
        return level

    def order(job: JobView, at: Moment) -> Key:
        # A service is never stopped: it gives up replicas, and has no work to lose.
        loses = job.job.kind is not Kind.SERVICE and not job.marks.get(SAVES, job.job.checkpoint.saves)
        if job.has_devices and loses and not stops_all:
            return (-job.job.priority, KEPT, 0, job.submitted_ms, job.number)
        level = max(job.marks.get(LEVEL, 0) - job.marks.get(RISEN, 0), 0)
        return (-job.job.priority, level, 0 if job.has_devices else 1, job.submitted_ms, job.number)

    def changes(job: JobView, at: Moment) -> int | None:
        if job.running_since_ms is not None:
            service_ms = service_of(job, at.now)
            left_ms = border_ms(level_of(service_ms)) - service_ms
            return at.now + THOUSAND * left_ms // isqrt(THOUSAND * THOUSAND * max(job.gpus, 1)) + 1
        if not patience or job.has_devices or job.marks.get(LEVEL, 0) <= job.marks.get(RISEN, 0):
            return None
        if job.overdue:
            return at.now + 1
        since_ms = max(job.marks.get(RISEN_MS, job.submitted_ms), job.stopped_ms or 0)
        return max(since_ms + patience * max(job.executed_ms(at.now), first_ms), at.now + 1)

    def due(job: JobView, at: Moment) -> None:
        if job.has_devices:
            job.marks[LEVEL] = level_of(service_of(job, at.now))
            job.marks[SAVES] = int(job.saves or job.suspends)
        else:
            # Devices were kept idle for one that goes first: the next job that comes must not have it stopped again.
            job.marks[RISEN] = job.marks[LEVEL] if job.overdue else job.marks.get(RISEN, 0) + 1
            job.marks[RISEN_MS] = at.now

    policy = Policy(
        "phalanx",
        order=order,
        targets=Targets.RANK,
        moves=anybody if moves else nobody,
        changes=changes,
        due=due,
        estimate_permille=MEDIAN,
        parameters=parameters.given,
        about=ABOUT,
    )
    policy = policy if types == "off" else _minding_types(policy, learns=types == "learned")
    return _together(policy) if together else policy


def _minding_types(policy: Policy, learns: bool) -> Policy:
    """The same, with jobs where they do best if the cluster has several GPU types."""
    return replace(
        policy,
        places=best_types,
        shape=bound_for,
        observe=observe_fleet if learns else observe_presence,
        observe_plan=observe_seats,
        next_wakeup=next_look,
        paces_ms=PACES_MS if learns else None,
    )


def _together(policy: Policy) -> Policy:
    """The same, with elastic jobs on one node for a start."""

    def shape(job: JobView, at: Moment) -> Gang:
        gang = policy.shape(job, at)
        return replace(gang, topology=ON_ONE_NODE) if _starts_on_one_node(job.job, at) else gang

    return replace(policy, shape=shape, observe=_minding_nodes(policy.observe))


def _minding_nodes(observe: Observe) -> Observe:
    def observe_nodes(memory: Memory, event: Event, now: int) -> None:
        if isinstance(event, ClusterDefined | ClusterChanged):
            memory[NODES] = _smallest(event.cluster.nodes)
        observe(memory, event, now)

    return observe_nodes


def _smallest(nodes: Sequence[Node]) -> Usage:
    """The least that any node with GPUs has of each thing."""
    there = [Usage(THOUSAND * node.gpus, node.cpus_milli, node.memory_mb) for node in nodes if node.gpus]
    return Usage(*map(min, zip(*there, strict=True))) if there else Usage()


def _starts_on_one_node(job: Job, at: Moment) -> bool:
    """Whether an elastic job that does not say how close it must be fits any node, at its smallest.

    What it sends between nodes slows it down by more than a few GPUs make up for; on one node it starts small, and may
    grow later.
    """
    gang = job.gang
    if not gang.elastic or job.kind is not Kind.TRAINING or job.parallel is not None or gang.topology != ANYWHERE:
        return False
    if any(role.members or role.topology != ANYWHERE or role.task.nics or role.task.storage_gb for role in gang.roles):
        return False
    least = [[role.replicas_min * part for part in needs(role)] for role in gang.roles]
    smallest: Usage = at.memory.get(NODES, Usage())
    return all(sum(parts) <= whole for parts, whole in zip(zip(*least, strict=True), smallest, strict=True))


def best_types(job: JobView, at: Moment) -> Sequence[Place]:
    """The GPU types on which a job does best beside what other jobs make of them, in turn; then wherever it fits."""
    return (*(Place((), None, (name,)) for name in preferred(at.memory, job.job)), WHEREVER)


def bound_for(job: JobView, at: Moment) -> Gang:
    """The gang as it was submitted; of a job that runs and is to go to better GPUs, on those."""
    target = bound_type(at.memory, job.job.id) if job.has_devices else None
    return job.job.gang if target is None else confined(job.job.gang, target)


def service_of(job: JobView, now: int) -> int:
    """What a job has had: the geometric mean of its time and its GPU time, so its time by the root of its GPUs.

    By time alone large jobs take too much of the cluster before they step back, by GPU time they step back so soon that
    they hardly get on. A job without GPUs counts as one with one.
    """
    executed_ms = job.executed_ms(now)
    return isqrt(executed_ms * max(job.service_gpu_ms(now), executed_ms))


ABOUT = About(
    summary="the default: priority, then least attained service with promotion; moves before it stops",
    prior_knowledge="none; step times as jobs report them",
    algorithm="multi-level feedback over attained service; a market of GPU types",
    decides_by="priority, attained service, time waited, whether work is saved",
    dimensions="spatial and temporal",
    preemption="of jobs that save their work, at the borders of levels; of all for a higher priority; moves first",
    starvation="a job that has waited a multiple of its run rises; low priorities may starve",
    placement="by GPU type as learned, packed by topology, consolidated by moving",
    source="ours, after Tiresias (NSDI 2019), Gavel (OSDI 2020), Borg (EuroSys 2015) and KAI",
)
