"""Shortcuts of a decision: where one job is all there is to look at, no line is drawn up. The plan is the same."""

from __future__ import annotations

from phalanx.engine.action import ActionId, Start
from phalanx.engine.plan import LACK_REASON, Claim, Plan, Verdict
from phalanx.engine.records import JobRecord
from phalanx.engine.state import State
from phalanx.engine.trial import Trial
from phalanx.placement.gang import GangTrial, is_lone
from phalanx.placement.place import lack, placement_of, slots_of
from phalanx.placement.placement import Lack, Placement
from phalanx.policy.policy import anywhere, never


def wait_on(state: State) -> Plan | None:
    """The plan by which all wait on behind the head: nobody may pass it or makes room for it, nobody came before it,
    and it still does not fit. None where that is not so.
    """
    head = state.jobs.get(state.head)
    if head is None or head.queued is None or not _holds_up_all(state):
        return None
    with Trial(state) as trial:
        if trial.seat(head) is not None:
            return None
    missing = lack(state.fit, head.asked)
    if missing is Lack.NEVER:
        return None
    reason, first = LACK_REASON[missing], (head.queued, head.job.id)
    news = state.classes[head.shape].verdict is not reason
    behind = any(waiting.head > first for waiting in state.classes.values())
    return Plan(verdicts=(Verdict(head.job.id, reason),) if news else (), head=head.job.id, exhaustive=not behind)


def _holds_up_all(state: State) -> bool:
    """Whether nothing but the head is to be looked at, as long as it does not fit."""
    policy = state.policy
    if policy.backfill is not never or policy.orders_queues or policy.preempts or state.reserves:
        return False
    return state.is_plain and state.newest_class <= state.clean_seq


def start_alone(state: State) -> Plan | None:
    """The plan that starts the only job that waits and does nothing else; None where there is more to decide."""
    alone = _who_waits_alone(state)
    placement = _place_of(state, alone) if alone is not None else None
    if alone is None or placement is None:
        return None
    job, number = alone.job.id, alone.attempts + 1
    return Plan((Claim(job, number, placement),), (Start(ActionId(state.term, job, number, 0), placement),))


def _place_of(state: State, record: JobRecord) -> Placement | None:
    """Where a job would go. What takes one task anywhere need not be booked in trial to know it."""
    job = record.asked
    is_plain = job.parallel is None and state.policy.places is anywhere and not state.fit.shunned(job)
    if is_plain and is_lone(job.gang):
        seat = GangTrial(state.fit, state.packing, job).best_alone(job.gang.roles[0])
        return Placement(slots_of(state.topology, (seat,), 0)) if seat is not None else None
    with Trial(state) as trial:
        seated = trial.seat(record)
        return placement_of(seated) if seated is not None else None


def _who_waits_alone(state: State) -> JobRecord | None:
    """The only job that waits, on whole devices, where nobody else is to be looked at or told to do anything."""
    if len(state.classes) != 1 or not state.is_plain:
        return None
    (waiting,) = state.classes.values()
    record = state.jobs[waiting.jobs[0][1]]
    return record if len(waiting.jobs) == 1 and record.gpus_min else None
