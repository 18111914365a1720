"""Shortcuts of a decision: where only the first pending jobs are to be looked at, no candidates are drawn up. The plan
is the same.
"""

from __future__ import annotations

from heapq import heapify, heappop, heapreplace

from phalanx.engine.plan.begin import begin
from phalanx.engine.state.records import JobRecord
from phalanx.engine.state.settled import is_plain
from phalanx.engine.state.state import State
from phalanx.engine.transaction.transaction import Transaction
from phalanx.placement.gang import GangTrial
from phalanx.placement.place import lack, placement_of, slots_of
from phalanx.placement.placement import Lack, Placement
from phalanx.policy.policy import Key
from phalanx.protocol.action import ActionId, Resume, Start
from phalanx.protocol.plan import Claim, Plan, Verdict
from phalanx.protocol.reason import LACK_REASON
from phalanx.workload.shape import is_lone


def short_plan(state: State) -> Plan | None:
    """The plan of a decision that needs no line; None where there is more to decide."""
    if not is_plain(state):
        return None
    return start_alone(state) or start_in_order(state)


def start_alone(state: State) -> Plan | None:
    """The plan that starts the only pending job and does nothing else; None where there is more to decide."""
    alone = _only_pending(state)
    placement = _place_of(state, alone) if alone is not None else None
    if alone is None or placement is None:
        return None
    claim, start = _begin(state, alone, placement)
    return Plan((claim,), (start,))


def _only_pending(state: State) -> JobRecord | None:
    """The only pending job, if it asks for whole devices."""
    if len(state.classes) != 1:
        return None
    (waiting,) = state.classes.values()
    record = state.jobs[waiting.jobs[0][1]]
    return record if len(waiting.jobs) == 1 and record.gpus_min else None


def _place_of(state: State, record: JobRecord) -> Placement | None:
    """Where a job would go. What takes one task anywhere need not be booked to know it."""
    job = record.asked
    is_plain = job.parallel is None and not state.policy.chooses_places
    if is_plain and is_lone(job.gang) and not (job.preferences or state.fit.shunned(job)):
        seat = GangTrial(state.fit, state.packing, job).best_alone(job.gang.roles[0])
        return Placement(slots_of(state.topology, (seat,), 0)) if seat is not None else None
    with Transaction(state) as transaction:
        seated = transaction.seat(record)
        return placement_of(seated) if seated is not None else None


def _begin(state: State, record: JobRecord, placement: Placement) -> tuple[Claim, Start | Resume]:
    job, number = record.job.id, record.next_attempt
    return Claim(job, number, placement), begin(record, ActionId(state.term, job, number, record.next_seq), placement)


def start_in_order(state: State) -> Plan | None:
    """The plan that starts the first pending jobs in order, up to one that does not fit. No job may pass that one, and
    none is preempted for it, so that all jobs behind it stay pending. None where that is not so.
    """
    if not _is_strict(state):
        return None
    classes = list(state.classes.values())
    line: list[tuple[Key, str, int]] = [(*waiting.jobs[0], i) for i, waiting in enumerate(classes)]
    heapify(line)
    placed = [0] * len(classes)
    claims: list[Claim] = []
    starts: list[Start | Resume] = []
    with Transaction(state) as transaction:
        while line:
            _, job, i = line[0]
            record = state.jobs[job]
            if not record.gpus_min:
                return None
            seated = transaction.seat(record)
            if seated is None:
                missing = lack(state.fit, record.asked)
                if missing is Lack.NEVER:
                    return None
                reason = LACK_REASON[missing]
                news = () if classes[i].verdict is reason else (Verdict(job, reason),)
                return Plan(tuple(claims), tuple(starts), news, job, exhaustive=len(line) == 1)
            claim, start = _begin(state, record, placement_of(seated))
            claims.append(claim)
            starts.append(start)
            placed[i] += 1
            if placed[i] < len(classes[i].jobs):
                heapreplace(line, (*classes[i].jobs[placed[i]], i))
            else:
                heappop(line)
    return Plan(tuple(claims), tuple(starts))


def _is_strict(state: State) -> bool:
    """Whether jobs start in one order, and no job passes, or is preempted for, one that does not fit."""
    policy = state.policy
    return policy.lets_none_pass and not (policy.orders_queues or policy.preempts or state.reserves)
