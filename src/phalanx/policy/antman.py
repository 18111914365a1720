"""antman: opportunistic jobs live on what guaranteed ones leave of their GPUs (Xiao et al., OSDI 2020).

A job that fits the quota of its queue is guaranteed: its share of a device is all of it, and it goes ahead of all
others. Any other is opportunistic: it takes idle GPUs, or what guaranteed jobs leave of theirs: the memory that they do
not use, with the rest of its own on the host, and as much compute as leaves those their own measured step times. When
its queue has quota again, it is promoted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from phalanx.cluster.device import Mode
from phalanx.policy.about import About
from phalanx.policy.gandiva import load_of
from phalanx.policy.lending import Lending, observe_memory
from phalanx.policy.parameters import Parameters
from phalanx.policy.policy import Key, Memory, Policy, as_they_are
from phalanx.policy.portions import asks_for_shares, with_share
from phalanx.policy.rounds import begin_round, next_round, round_is_due
from phalanx.policy.throttle import Throttle, allowed, observe_levels, opportunistic_on
from phalanx.policy.view import WHEREVER, Adjustment, JobView, Moment, Place
from phalanx.protocol.event import (
    AttemptEnded,
    ClusterChanged,
    Event,
    Failed,
    JobCancelled,
    JobChanged,
    JobReleased,
    JobSubmitted,
    PolicyChanged,
    TimerDue,
)
from phalanx.workload.gang import Gang
from phalanx.workload.job import Kind
from phalanx.workload.share import ShareAsk, ShareKind

PERMILLE = 1000
OWN = ShareAsk(ShareKind.FRACTION, PERMILLE)
LEFT = ShareAsk(ShareKind.FRACTION, PERMILLE, revocable=True)


def antman(parameters: Parameters) -> Policy:
    """`quota` is GPUs by queue; `share=false` has opportunistic jobs on idle GPUs only, `throttle=false` unchecked;
    `lend=false` has their memory on the host for good. `headroom` is the part of a device, in percent, that guaranteed
    jobs may grow into unasked.

    `tolerance` is by how many percent steps of guaranteed jobs may take longer, `interval` how long that is measured,
    `retry` after which time opportunistic jobs are given more again.
    """
    quota = parameters.per_queue("quota")
    share = parameters.boolean("share", default=True)
    promote = parameters.boolean("promote", default=True)
    throttles = parameters.boolean("throttle", default=True)
    tolerance = parameters.integer("tolerance", default=5, least=0)
    lends = parameters.boolean("lend", default=True)
    lending = Lending(parameters.integer("headroom", default=5, least=0, most=100))
    throttle = Throttle(tolerance, parameters.duration_ms("interval", "1m"), parameters.duration_ms("retry", "30m"))

    def sizes(jobs: Sequence[JobView], at: Moment) -> Mapping[str, Mapping[str, int]]:
        """Which jobs are guaranteed: all of a job's roles, which is a size that changes nothing, marks one that is."""
        queues = dict.fromkeys(job.job.queue for job in jobs)
        equal = at.total.gpu_permille / PERMILLE / max(len(queues), 1)
        left_gpus = {queue: float(quota.get(queue, 0) if quota else equal) for queue in queues}
        found: dict[str, dict[str, int]] = {}
        for job in sorted(jobs, key=keeps_guarantee, reverse=True):
            gpus = job.job.gang.gpus_max
            may_be = job.job.priority >= 0 and (promote or not job.has_devices)
            if keeps_guarantee(job) or (may_be and gpus <= left_gpus[job.job.queue]) or _has_no_choice(job):
                left_gpus[job.job.queue] -= gpus
                found[job.job.id] = {role.name: role.replicas_max for role in job.job.gang.roles}
        return found

    def shape(job: JobView, at: Moment) -> Gang:
        return with_share(job.job.gang, OWN if job.sizes else LEFT)

    def places(job: JobView, at: Moment) -> Sequence[Place]:
        """Idle GPUs first, of the least loaded nodes; then those of other jobs, the least used device first.

        A gang that asks for parts of devices itself may have them anywhere.
        """
        names = tuple(node.name for node in sorted(at.nodes(), key=load_of))
        places = (Place(names), Place(names, crowded=True)) if share or job.sizes else (Place(names),)
        return (*places, WHEREVER) if asks_for_shares(job.job.gang) else places

    def adjusts(memory: Memory, job: JobView, at: Moment) -> Mapping[str, Adjustment]:
        """How much compute and memory opportunistic jobs may have: the job, if it is one, or those beside it."""
        name, devices = job.job.id, at.sharing(job.job.id)
        # All jobs on a shared device share it in the same way.
        if not devices or any(device[name].mode is not Mode.FRACTION for device in devices):
            return {}
        if devices[0][name].revocable:
            return {name: allotted(memory, name, at)}
        beside = throttle.control(memory, name, at) if throttles else opportunistic_on(devices, None, at)
        return {each: allotted(memory, each, at) for each in beside}

    def allotted(memory: Memory, job: str, at: Moment) -> Adjustment:
        permille = allowed(memory, at.sharing(job)) if throttles else None
        # A suspended job uses no memory, and could not give any back.
        lent_mb = lending.lent_mb(memory, job, at) if lends and permille != 0 else 0
        return Adjustment(compute_permille=permille, lent_mb=lent_mb)

    return Policy(
        "antman",
        order=guaranteed_first,
        sizes=sizes,
        shape=shape,
        places=places,
        adjusts=adjusts if throttles or lends else as_they_are,
        observe=observe_with_reports if throttles or lends else observe,
        next_wakeup=next_round,
        reports_ms=throttle.interval_ms if throttles or lends else None,
        parameters=parameters.given,
        about=ABOUT,
    )


def guaranteed_first(job: JobView, at: Moment) -> Key:
    """Guaranteed jobs go before the rest, each in the order of submission."""
    return (not job.sizes, job.submitted_ms, job.number)


def keeps_guarantee(job: JobView) -> bool:
    """Whether a job runs with a guarantee: it has that until it ends."""
    return bool(job.sizes) and job.has_devices


def _has_no_choice(job: JobView) -> bool:
    """Whether a job could not live on what jobs leave: it may not be held back, or takes no part of a device."""
    return not job.job.preemptible or job.job.kind is Kind.SERVICE or not job.job.gang.gpus_max


def observe(memory: Memory, event: Event, now: int) -> None:
    """Whenever a job comes or goes, or other nodes are there, it is worked out anew which jobs are guaranteed."""
    match event:
        case TimerDue():
            if round_is_due(memory, now):
                begin_round(memory, now)
        case JobSubmitted() | JobChanged() | JobCancelled() | JobReleased() | AttemptEnded() | Failed():
            memory["next_ms"] = now
        case ClusterChanged() | PolicyChanged():
            memory["next_ms"] = now


def observe_with_reports(memory: Memory, event: Event, now: int) -> None:
    """Likewise, and takes note of what jobs say of their steps and their memory."""
    observe_levels(memory, event, now)
    observe_memory(memory, event)
    observe(memory, event, now)


ABOUT = About(
    summary="guaranteed jobs within quotas, opportunistic ones on what they leave of their GPUs",
    prior_knowledge="none",
    algorithm="quotas, with opportunistic sharing of devices by measured step times",
    decides_by="whether the quota of a queue has room, then arrival time",
    dimensions="spatial",
    preemption="no: opportunistic jobs are held back on their device",
    starvation="guaranteed jobs never wait for opportunistic ones; those may be slow for long",
    placement="idle GPUs first, then the least used",
    source="Xiao et al., OSDI 2020",
)
