"""fair: dominant resource fairness down the tree of queues (Ghodsi et al., NSDI 2011; Bhattacharya et al., SoCC 2013).

Two queues are compared where they, or the queues they lie in, lie side by side. A queue within its nominal quota goes
before one that would borrow, then the higher priority, then the smaller dominant share for its weight. So what a
department has is weighed against other departments first, and only then what its teams have against one another.

Nominal quota goes before priority, as in KAI: else a queue of high priority would start on the nominal quota of others,
only to be stopped when they reclaim it.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from math import log

from phalanx.cluster.queues import Queue
from phalanx.policy.about import About
from phalanx.policy.backfill import reserve_of
from phalanx.policy.drf import dominant_for_weight, dominant_share, share_for_weight
from phalanx.policy.factor import Measure
from phalanx.policy.parameters import Parameters
from phalanx.policy.policy import Key, Policy, Reserve, nobody
from phalanx.policy.view import JobView, Moment, RunView, Usage

DUE, BORROWS = 0, 1
NOTHING = Usage()
ONE = Queue("")
"""What is assumed of queues where the cluster describes none."""


def fair(parameters: Parameters) -> Policy:
    """With `half_life` what queues have had counts, too, the less the longer it is ago; `preempt` goes by priority;
    `backfill` says for which jobs a time is reserved.
    """
    half_life_ms = parameters.duration_ms_or_off("half_life")
    preempt = parameters.boolean("preempt", default=False)
    reserve = reserve_of(parameters)

    def level_order(path: str, usage: Usage, at: Moment) -> Key:
        had = NOTHING if half_life_ms is None else average(path, at, half_life_ms)
        return level(at.queue(path) or ONE, usage, had, at.total)

    def measures(path: str, usage: Usage, at: Moment) -> tuple[Measure, ...]:
        had = NOTHING if half_life_ms is None else average(path, at, half_life_ms)
        queue, share, before = at.queue(path) or ONE, dominant_share(usage, at.total), dominant_share(had, at.total)
        return (
            Measure("due", float(is_due_more(queue, usage))),
            Measure("priority", queue.priority),
            Measure("dominant_share", share),
            *((Measure("decayed_share", before),) if half_life_ms is not None else ()),
            *weights_of(queue),
            Measure("for_weight", sum(share_for_weight(usage, at.total, queue.weights) for usage in (usage, had))),
        )

    return Policy(
        "fair",
        order=by_priority,
        level_order=level_order,
        measures=measures,
        victims=lower_in_queue if preempt else nobody,
        reserve=reserve,
        half_life_ms=half_life_ms,
        parameters=parameters.given,
        about=replace(ABOUT, foresight=reserve is not Reserve.NOBODY),
    )


@lru_cache(maxsize=1 << 16)
def level(queue: Queue, has: Usage, had: Usage, total: Usage) -> Key:
    """The place of a queue among those beside it."""
    share = dominant_for_weight((has, had), total, queue.weights)
    return (DUE if is_due_more(queue, has) else BORROWS, -queue.priority, share)


def weights_of(queue: Queue) -> tuple[Measure, ...]:
    """Its weight, or its weights where they are not alike."""
    if len(set(queue.weights)) == 1:
        return (Measure("weight", queue.weight),)
    return tuple(map(Measure, ("gpu_weight", "cpu_weight", "memory_weight"), queue.weights))


def by_priority(job: JobView, at: Moment) -> Key:
    """In a queue the higher priority first, then the earlier submission."""
    return (-job.job.priority, job.submitted_ms, job.number)


def lower_in_queue(head: JobView, victim: RunView, at: Moment) -> bool:
    """In its own queue a job stops those of lower priority. What other queues have is reclaimed by quota only."""
    return victim.job.queue == head.job.queue and victim.job.priority < head.job.priority


def is_due_more(queue: Queue, usage: Usage) -> bool:
    """Whether a queue is below its nominal quota of everything; where that is 0, it has nothing."""
    due = False
    for used, deserved in zip(usage, queue.deserved, strict=True):
        if deserved is not None:
            if used and used >= deserved:
                return False
            due = due or deserved > 0
    return due


def average(path: str, at: Moment, half_life_ms: int) -> Usage:
    """What a queue has had of GPUs on average, what is a half-life ago counting half: ∫ u·2^(-t/h) dt · ln 2 / h."""
    return Usage(round(1000 * at.spent_gpu_ms(path) * log(2) / half_life_ms))


ABOUT = About(
    summary="the queue with the least for its weight of what it deserves, down the tree of queues",
    prior_knowledge="none",
    algorithm="hierarchical dominant resource fairness",
    decides_by="what queues have, or had, of GPUs, CPUs and memory",
    dimensions="spatial, several resources; with half_life also temporal",
    preemption="to give back what a queue deserves; with preempt=true also by priority in a queue",
    starvation="no queue starves; large jobs in one may",
    placement="packed",
    source="Ghodsi et al., NSDI 2011; Bhattacharya et al., SoCC 2013",
)
