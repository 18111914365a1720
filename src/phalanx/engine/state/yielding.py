"""Which attempts may be stopped or shrunk for a pending job."""

from __future__ import annotations

from phalanx.engine.state.records import AttemptRecord, JobRecord
from phalanx.engine.state.state import State
from phalanx.policy.policy import Targets
from phalanx.policy.view import Usage

HEADS_MAX = 64
"""Jobs of which it is kept what they have made way for. One is asked about again and again, then the next."""


def yields(state: State, head: JobRecord, attempt: AttemptRecord) -> bool:
    """Whether an attempt may be stopped or shrunk for a head now."""
    if spares(state, head, attempt):
        return False
    if may_yield(state, head, attempt):
        return True
    if state.policy.targets is Targets.KEEP or (state.quotas and head.job.queue != attempt.job.queue):
        return False
    return state.order(state.jobs[attempt.job.id]) > state.rank(head)


def may_yield(state: State, head: JobRecord, attempt: AttemptRecord) -> bool:
    """Whether attempts of this one's queue and priority yield to a head, whatever the running order.

    The policy decides in one queue. Across queues a head that would not borrow reclaims what is borrowed, and what
    the policy reclaims. The policy's order does not count there: else a job that reclaims and one that goes before
    could stop one another for ever.
    """
    if state.quotas and head.job.queue != attempt.job.queue:
        deserves = state.quotas.reclaims(head.job.queue, head.need, attempt.job.queue)
        return deserves or state.policy.reclaims(head, attempt, state)
    return state.policy.targets is Targets.KEEP and state.policy.victims(head, attempt, state)


def could_yield(state: State, head: JobRecord, attempt: AttemptRecord, need: Usage) -> bool:
    """Likewise, once other attempts have left: of the needed quota, so much has to come from other queues."""
    if state.quotas and state.quotas.could_reclaim(head.job.queue, need, attempt.job.queue):
        return True
    return may_yield(state, head, attempt)


def spares(state: State, head: JobRecord, attempt: AttemptRecord) -> bool:
    """Whether an attempt is protected, whatever queues have. Either it has not yet run for as long as its queue
    lets every job run, or the head's own job has made way for it.
    """
    if not state.quotas:
        return False
    if head.job.queue != attempt.job.queue and has_made_way(state, head, attempt):
        return True
    return runs_its_least(state, head, attempt)


def runs_its_least(state: State, head: JobRecord, attempt: AttemptRecord) -> bool:
    """Whether an attempt has not yet run for as long as its queue lets every job run before one of the head's."""
    least_ms = state.quotas.least_run_ms(head.job.queue, attempt.job.queue)
    return attempt.started_ms >= 0 and state.now - attempt.started_ms < least_ms


def has_made_way(state: State, head: JobRecord, attempt: AttemptRecord) -> bool:
    """Whether a job was stopped for an attempt's job, or for one that was stopped for it in turn, and so on.

    Across queues such a job never preempts that one: else jobs of two queues, of which each goes before another of
    its own queue and may reclaim from one of the other, would stop one another for ever. A cycle of preemptions has
    a step across queues, unless all its jobs are of one queue, in which the order of the policy excludes it.
    """
    if not head.made_way_for:
        return False
    before = state.made_way.get(head.job.id)
    if before is None:
        if len(state.made_way) >= HEADS_MAX:
            state.made_way.clear()
        before = state.made_way[head.job.id] = _made_way_for(state, head)
    return attempt.job.id in before


def _made_way_for(state: State, head: JobRecord) -> dict[str, None]:
    """The jobs for which a job was stopped, those for which these were, and so on."""
    found, after = {head.job.id: None}, [head]
    while after:
        for job in after.pop().made_way_for:
            if job not in found:
                found[job] = None
                if job in state.jobs:
                    after.append(state.jobs[job])
    return found
