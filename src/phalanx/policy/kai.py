"""kai: quota, over-quota weight, consolidation and reclaim, as the KAI scheduler has them.

Every queue has a fair share: its quota, as far as it wants that, and of what is left its part by over-quota weight,
the higher queue priority first, level by level down the tree. The queue with the least of its fair share goes next. A
job that does not fit has jobs moved together first; then a queue below its fair share reclaims from those above theirs;
then higher priorities stop lower ones in their own queue.
"""

from __future__ import annotations

from phalanx.cluster.queues import GPUS_PERMILLE, Queue
from phalanx.policy.about import About
from phalanx.policy.factor import Measure
from phalanx.policy.fair import BORROWS, DUE, ONE, by_priority, is_due_more, lower_in_queue
from phalanx.policy.fair_shares import Claim, FairShares, fits_in, may_give, measures_of, saturation, sides
from phalanx.policy.parameters import Parameters
from phalanx.policy.policy import Key, Policy, anybody, nobody
from phalanx.policy.view import JobView, Moment, RunView, Usage
from phalanx.policy.wants import need_of, observe_wants
from phalanx.workload.job import Kind


def kai(parameters: Parameters) -> Policy:
    """`consolidate`, `reclaim` and `preempt` switch those actions; `over_quota=equal` leaves the weights out."""
    consolidate = parameters.boolean("consolidate", default=True)
    reclaim = parameters.boolean("reclaim", default=True)
    preempt = parameters.boolean("preempt", default=True)
    weighted = parameters.choice("over_quota", ("weighted", "equal")) == "weighted"

    def claim(queue: Queue, wants: Usage, resource: int) -> Claim:
        own = queue.deserved[resource] or 0
        weight = queue.weights[resource] if weighted else 1
        return Claim(wants[resource], own, weight, queue.priority, queue.limit[resource])

    fair_shares = FairShares(claim)

    def level_order(path: str, usage: Usage, at: Moment) -> Key:
        queue = at.queue(path) or ONE
        due = DUE if is_due_more(queue, usage) else BORROWS
        return (due, -queue.priority, saturation(usage, fair_shares(at)[path]))

    def measures(path: str, usage: Usage, at: Moment) -> tuple[Measure, ...]:
        queue = at.queue(path) or ONE
        due, priority = float(is_due_more(queue, usage)), queue.priority
        return (Measure("due", due), Measure("priority", priority), *measures_of(usage, fair_shares(at)[path]))

    def keeps(queue: str, at: Moment) -> int:
        described = at.queue(queue)
        if described is None:
            return fair_shares(at)[queue].gpu_permille
        return described.deserved[GPUS_PERMILLE] or 0

    def victims(head: JobView, victim: RunView, at: Moment) -> bool:
        if victim.job.queue == head.job.queue:
            return preempt and lower_in_queue(head, victim, at)
        return reclaims(head, victim, at)

    def reclaims(head: JobView, victim: RunView, at: Moment) -> bool:
        if not reclaim:
            return False
        shares = fair_shares(at)
        mine, theirs = sides(head.job.queue, victim.job.queue, at)
        need, path = need_of(head.job.gang), head.job.queue
        if not may_give(victim.job.queue, theirs, need, shares, at):
            return False
        while fits_in(at.usage(path), need, shares[path]):
            if path == mine:
                return True
            path = path.rpartition("/")[0]
        return False

    def may_reclaim(head: JobView, at: Moment) -> bool:
        queue = head.job.queue
        return fits_in(at.usage(queue), need_of(head.job.gang), fair_shares(at)[queue])

    return Policy(
        "kai",
        order=by_priority,
        level_order=level_order,
        measures=measures,
        victims=victims if preempt or reclaim else nobody,
        moves=anybody if consolidate else nobody,
        reclaims=reclaims if reclaim else nobody,
        may_reclaim=may_reclaim,
        keeps=keeps,
        allows=within_quota,
        observe=observe_wants,
        parameters=parameters.given,
        about=ABOUT,
    )


def within_quota(job: JobView, at: Moment) -> int | None:
    """What can never be reclaimed is not lent: a job that is not preemptible stays within its queue's nominal quota."""
    if job.job.preemptible and job.job.kind is not Kind.SERVICE:
        return None
    queue = at.queue(job.job.queue)
    deserved = queue.deserved[GPUS_PERMILLE] if queue is not None else None
    return None if deserved is None else deserved - at.usage(job.job.queue).gpu_permille


ABOUT = About(
    summary="quotas, over-quota shares by weight, consolidation and reclaim",
    prior_knowledge="none",
    algorithm="fair shares of quota and surplus, down the tree of queues",
    decides_by="what queues have of their fair shares",
    dimensions="spatial, several resources",
    preemption="to have a fair share back; of lower priorities in a queue; jobs are moved together first",
    starvation="no queue starves; low priorities in one may",
    placement="packed, consolidated by moving",
    source="KAI scheduler (NVIDIA), documentation of fairness and actions",
)
