"""singularity: tiers that promise a fraction of the GPU time a job asks for, on jobs that are all elastic.

A premium job is to have 95 % of its GPU time in any hour, a standard one 70 %, a basic one what is left (Shukla et
al., 2022). So in an hour a job may do without for so long: its slack. Slack runs down while the job waits, or runs with
fewer GPUs than it asked for, and is given back at the rate of the promise. A job that has next to none left is due and
goes before all that have more; else the higher tier goes first. So what is needed is taken from basic jobs first, then
from standard ones with slack, then from premium ones with slack, and only at the end from jobs that are due. Where a
tier and those above it promise more GPUs than there are, no job of it is due: those that run stay, before the rest.

Everything can be preempted, moved and resized: a gang may run spliced, several of its ranks on one GPU at the same
world size, down to the fraction that its tier promises; a basic one down to one GPU for `splice` ranks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

from phalanx.policy.about import About
from phalanx.policy.parameters import Parameters
from phalanx.policy.policy import Key, Policy, Shape, Targets, anybody, as_asked, nobody
from phalanx.policy.promises import WHOLE, Promise, is_beyond, keeping_account, promises_of
from phalanx.policy.rounds import next_round
from phalanx.policy.view import JobView, Moment
from phalanx.workload.gang import ANYWHERE, Gang, Role, Topology
from phalanx.workload.job import Job
from phalanx.workload.tier import NAMES, TIER_LABEL, Tier, tier_of

DUE, CALM = 0, 1


def singularity(parameters: Parameters) -> Policy:
    """`premium` and `standard` are percent of GPU time; `splice` is how many ranks of a basic job share one at most,
    `moves` whether jobs are moved together before any is stopped.
    """
    promises = promises_of(parameters)
    splice = parameters.integer("splice", default=4, least=1)
    tiers = parameters.boolean("tiers", default=True)
    moves = parameters.boolean("moves", default=True)

    def promise(job: JobView) -> Promise:
        return promises[tier_of(job.job) if tiers else Tier.BASIC]

    def is_due(job: JobView, at: Moment) -> bool:
        """From when its slack is nearly used up until half is back: a job that runs at last is not stopped at once."""
        # While it starts it keeps the place that it had when it got its devices.
        starts = job.has_devices and job.running_since_ms is None
        promised = promise(job)
        slack = slack_ms(job, promised, job.opened[0] if starts else at.now)
        return slack <= promised.lead_ms or (bool(job.marks.get("due")) and slack < promised.slack_ms // 2)

    def order(job: JobView, at: Moment) -> Key:
        tier = tier_of(job.job) if tiers else Tier.BASIC
        # Where promises are more than there is, no job is due, and those that run stay: in turns all were let down.
        beyond = is_beyond(at.memory, tier)
        first = DUE if tier is not Tier.BASIC and not beyond and is_due(job, at) else CALM
        return (first, RANK[tier], int(beyond and not job.has_devices), job.submitted_ms, job.number)

    def changes(job: JobView, at: Moment) -> int | None:
        promised = promise(job)
        if not promised.permille:
            return None
        if job.stopped_ms is not None and job.marks.get("at", -1) < job.stopped_ms:
            return at.now + 1
        if job.has_devices and job.running_since_ms is None:
            return None
        slack, rate = slack_ms(job, promised, at.now), gain_permille(job, promised)
        spare = slack - promised.lead_ms
        if rate < 0 and spare > 0:
            late_ms = -(-spare * WHOLE // -rate)
            return first_ms(at.now, late_ms, lambda now: slack_ms(job, promised, now) <= promised.lead_ms)
        if rate > 0 and is_due(job, at):
            enough = promised.slack_ms // 2 if job.marks.get("due") else promised.lead_ms + 1
            late_ms = -(-(enough - slack) * WHOLE // rate)
            return first_ms(at.now, late_ms, lambda now: slack_ms(job, promised, now) >= enough)
        return None

    def due(job: JobView, at: Moment) -> None:
        promised = promise(job)
        was_due = is_due(job, at)
        job.marks["slack"] = slack_ms(job, promised, at.now)
        job.marks["at"] = at.now
        job.marks["executed"] = job.executed_ms(at.now)
        job.marks["due"] = int(was_due)

    return Policy(
        "singularity",
        order=order,
        targets=Targets.RANK,
        moves=anybody if moves else nobody,
        shape=_spliced(promises, splice, tiers) if splice > 1 else as_asked,
        changes=changes,
        due=due,
        observe=keeping_account(promises),
        next_wakeup=next_round,
        labels={TIER_LABEL: NAMES} if tiers else {},
        parameters=parameters.given,
        about=ABOUT,
    )


def first_ms(now: int, late_ms: int, turned: Callable[[int], bool]) -> int:
    """The first moment after now at which something has turned: `late_ms` from now, or before if rounding says so."""
    at_ms = now + max(late_ms, 1)
    while at_ms - 1 > now and turned(at_ms - 1):
        at_ms -= 1
    return at_ms


RANK = {Tier.PREMIUM: 0, Tier.STANDARD: 1, Tier.BASIC: 2}


def slack_ms(job: JobView, promised: Promise, now: int) -> int:
    """For how much longer a job may do without, below 0 if it has done without for too long.

    From the last mark on it waited, then ran once, then waited again, if it was stopped: a stop is marked at once.
    """
    marks = job.marks
    since = marks.get("at", job.submitted_ms)
    slack = marks.get("slack", promised.slack_ms)
    ran = job.executed_ms(now) - marks.get("executed", 0)
    stopped = job.stopped_ms if job.stopped_ms is not None and job.stopped_ms > since else None
    rests_since = stopped if stopped is not None else since
    until = now if job.running_since_ms is not None else rests_since
    began = max(until - ran, since)
    slack -= (began - since) * promised.permille // WHOLE
    slack = min(slack + (until - began) * gain_permille(job, promised, ran=True) // WHOLE, promised.slack_ms)
    return slack - (now - until) * promised.permille // WHOLE


def gain_permille(job: JobView, promised: Promise, ran: bool = False) -> int:
    """What a job gains of slack by the millisecond, in thousandths: what it has of its GPUs less what is promised."""
    asked = max(job.job.gang.gpus_max, 1)
    if job.running_since_ms is not None:
        return WHOLE * min(job.gpus, asked) // asked - promised.permille
    return WHOLE - promised.permille if ran else -promised.permille


def _spliced(promises: dict[Tier, Promise], splice: int, tiers: bool) -> Shape:
    def shape(job: JobView, at: Moment) -> Gang:
        tier = tier_of(job.job) if tiers else Tier.BASIC
        return (
            spliced(job.job.gang, max(promises[tier].permille, -(-WHOLE // splice)))
            if _may_splice(job.job)
            else job.job.gang
        )

    return shape


def _may_splice(job: Job) -> bool:
    return job.preemptible and job.parallel is None and not job.gang.elastic


@lru_cache(maxsize=4096)
def spliced(gang: Gang, permille: int) -> Gang:
    """The gang with as few GPUs as so many thousandths of them, at the least; a task that is divided stays in one node.

    Only one that is alone is divided: what keeps its parts in a node holds for a whole gang; other roles may not fit.
    """
    role = gang.roles[0]
    if len(gang.roles) == 1 and _may_divide(role):
        topology = Topology("node", gang.topology.preferred) if gang.topology == ANYWHERE else gang.topology
        return replace(gang, roles=(_divided(role, permille),), topology=topology)
    return replace(gang, roles=tuple(_spliced_role(each, permille) for each in gang.roles))


def _spliced_role(role: Role, permille: int) -> Role:
    return replace(role, replicas_min=-(-role.replicas_max * permille // WHOLE)) if _of_whole_gpus(role) else role


def _divided(role: Role, permille: int) -> Role:
    """As many tasks of one GPU as its one task has GPUs."""
    task = role.task
    one = replace(task, gpus=1, cpus_milli=-(-task.cpus_milli // task.gpus), memory_mb=-(-task.memory_mb // task.gpus))
    return replace(role, task=one, replicas_min=-(-task.gpus * permille // WHOLE), replicas_max=task.gpus)


def _may_divide(role: Role) -> bool:
    return _of_whole_gpus(role) and role.replicas_max == 1 and role.task.gpus > 1 and role.task.divisible


def _of_whole_gpus(role: Role) -> bool:
    """Members that are gangs, or parts of devices, are left as they are."""
    task = role.task
    return not role.members and task.gpus > 0 and task.share is None and role.topology == ANYWHERE


ABOUT = About(
    summary="tiers that promise a fraction of GPU time; all jobs are preempted, moved and resized",
    prior_knowledge="tier",
    algorithm="promised GPU fraction by tier",
    decides_by="slack left of the tier's promise",
    dimensions="spatial and temporal",
    preemption="yes, by checkpoint; lower tiers give way first; jobs run spliced on fewer GPUs",
    starvation="basic jobs may starve; standard and premium ones while there is enough for their promises",
    placement="packed",
    source="Shukla et al., 2022 (arXiv 2202.07848)",
)
