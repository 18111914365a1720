"""volcano: gang, priority, proportion, drf and binpack, composed as Volcano composes its plugins.

`proportion` divides the cluster among queues by weight, each up to what it wants and may have; the nominal quota of a
queue is its own before, as under `capacity`. The queue that has least of that goes next, and one that has all of it
gets no more. In a queue the higher priority goes first, then submission. A job stops lower priorities of its own queue
(preempt), and a queue below its share reclaims what another has beyond its own (reclaim). With `queues=hdrf` queues
are ordered by hierarchical dominant shares instead.
"""

from __future__ import annotations

from phalanx.cluster.queues import GPUS_PERMILLE, Queue
from phalanx.policy.about import About
from phalanx.policy.drf import dominant_for_weight, dominant_share, share_for_weight
from phalanx.policy.factor import Measure
from phalanx.policy.fair import ONE, by_priority, lower_in_queue, weights_of
from phalanx.policy.fair_shares import Claim, FairShares, fits_in, may_give, measures_of, saturation, sides
from phalanx.policy.parameters import Parameters
from phalanx.policy.policy import Key, Policy, no_bound, nobody
from phalanx.policy.view import JobView, Moment, RunView, Usage
from phalanx.policy.wants import need_of, observe_wants


def volcano(parameters: Parameters) -> Policy:
    """`queues` says how they are ordered; `preempt` and `reclaim` switch those actions."""
    proportion = parameters.choice("queues", ("proportion", "hdrf")) == "proportion"
    preempt = parameters.boolean("preempt", default=True)
    reclaim = parameters.boolean("reclaim", default=True)
    deserved = FairShares(claim)

    def level_order(path: str, usage: Usage, at: Moment) -> Key:
        queue = at.queue(path) or ONE
        if proportion:
            return (-queue.priority, saturation(usage, deserved(at)[path]))
        return (-queue.priority, dominant_for_weight((usage,), at.total, queue.weights))

    def measures(path: str, usage: Usage, at: Moment) -> tuple[Measure, ...]:
        queue = at.queue(path) or ONE
        first = Measure("priority", queue.priority)
        if proportion:
            return (first, *measures_of(usage, deserved(at)[path]))
        share = dominant_share(usage, at.total)
        for_weight = share_for_weight(usage, at.total, queue.weights)
        return (first, Measure("dominant_share", share), *weights_of(queue), Measure("for_weight", for_weight))

    def keeps(queue: str, at: Moment) -> int:
        described = at.queue(queue)
        if described is None:
            return deserved(at)[queue].gpu_permille
        return described.deserved[GPUS_PERMILLE] or 0

    def victims(head: JobView, victim: RunView, at: Moment) -> bool:
        if victim.job.queue == head.job.queue:
            return preempt and lower_in_queue(head, victim, at)
        return reclaims(head, victim, at)

    def reclaims(head: JobView, victim: RunView, at: Moment) -> bool:
        mine, theirs = sides(head.job.queue, victim.job.queue, at)
        described = at.queue(victim.job.queue)
        if not reclaim or (described is not None and not described.reclaimable):
            return False
        shares = deserved(at)
        need = need_of(head.job.gang)
        return may_give(victim.job.queue, theirs, need, shares, at) and fits_in(at.usage(mine), need, shares[mine])

    def allows(job: JobView, at: Moment) -> int | None:
        """A queue that has all it is due (overused) of what the job asks for gets no more, not even what lies idle."""
        queue = job.job.queue
        return 0 if is_overused(at.usage(queue), need_of(job.job.gang), deserved(at)[queue]) else None

    return Policy(
        "volcano",
        order=by_priority,
        level_order=level_order,
        measures=measures,
        victims=victims if preempt or reclaim else nobody,
        reclaims=reclaims if reclaim else nobody,
        keeps=keeps,
        allows=allows if proportion else no_bound,
        observe=observe_wants,
        parameters=parameters.given,
        about=ABOUT,
    )


def claim(queue: Queue, wants: Usage, resource: int) -> Claim:
    """A queue's nominal quota is its own, as in Volcano's capacity; the rest falls to all by weight (proportion)."""
    own = queue.deserved[resource] or queue.guaranteed[resource] or 0
    return Claim(wants[resource], own, queue.weights[resource], 0, queue.limit[resource])


def is_overused(usage: Usage, need: Usage, share: Usage) -> bool:
    """Whether a queue has all that it is due of some resource that it uses and that is asked for.

    What is not asked for does not count: a queue is due no more CPUs than it wants, so that it has all of them as
    soon as its jobs run, and one that asks for GPUs alone would wait beside idle ones.
    """
    return any(used and more and used >= part for used, more, part in zip(usage, need, share, strict=True))


ABOUT = About(
    summary="queues by their proportion of the cluster, priorities in them, gangs, packed",
    prior_knowledge="none",
    algorithm="proportional shares, or hierarchical dominant resource fairness",
    decides_by="what queues have of what they are due, then priority",
    dimensions="spatial, several resources",
    preemption="of lower priorities in a queue; to have back what a queue is due",
    starvation="no queue starves; low priorities in one may",
    placement="packed",
    source="Volcano (CNCF), documentation of its actions and plugins",
)
