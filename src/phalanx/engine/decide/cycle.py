"""The cycle: `decide` turns a State into a Plan. What should be, what is, the difference, and why.

Each step is a function of its own; a decision runs on a transaction that is undone, so the State is as it was.
"""

from __future__ import annotations

from dataclasses import replace

from phalanx.engine.cells.place import place
from phalanx.engine.decide.discard import discard_for
from phalanx.engine.decide.improve import adjust_shares, promote_revocable, relocate
from phalanx.engine.decide.leave import stop_what_must_leave
from phalanx.engine.decide.promised import start_prepared, start_promised
from phalanx.engine.decide.reclaim import reclaim_in_plan, reclaim_with_victims
from phalanx.engine.decide.replace import replace_lost
from phalanx.engine.decide.replicas import Replicas
from phalanx.engine.decide.resize import grow_elastic, shed_lost_members, shrink_to_sizes
from phalanx.engine.decide.shortcut import short_plan
from phalanx.engine.pending.candidates import Candidates
from phalanx.engine.pending.outcome import PLACED, Candidate, Outcome
from phalanx.engine.pending.reasons import reason_of
from phalanx.engine.plan.builder import PlanBuilder
from phalanx.engine.preempt.need import may_get_quota
from phalanx.engine.preempt.preemption import (
    PreemptionPlan,
    plan_beside_terminating,
    plan_defragmentation,
    plan_preemption,
    plan_with_extras,
)
from phalanx.engine.preempt.upper_bound import UpperBound
from phalanx.engine.state.records import JobRecord
from phalanx.engine.state.scattered import first_scattered
from phalanx.engine.state.settled import unsettled
from phalanx.engine.state.state import State
from phalanx.engine.state.windows import spare_ms
from phalanx.engine.transaction.transaction import Closed, Transaction
from phalanx.placement.place import lack
from phalanx.placement.placement import Lack
from phalanx.policy.policy import Targets
from phalanx.protocol.plan import Plan
from phalanx.protocol.reason import LACK_REASON, Reason


def decide(state: State, now: int) -> Plan:
    """What to start and stop at `now`, and why the rest is pending."""
    if not unsettled(state):
        return Plan(head=state.head)
    if state.policy.targets is not Targets.KEEP:
        state.settle_running_order()
    short = short_plan(state)
    if short is not None:
        return short
    with Transaction(state) as transaction:
        builder = PlanBuilder(transaction, now)
        # 1. Attempts that must leave, whatever else happens.
        stop_what_must_leave(builder)
        if state.elastic:
            shed_lost_members(builder)
            shrink_to_sizes(builder)
        # 2. What should run: the admitted jobs, in the order of the policy. What runs is kept. A job that would have
        #    more than the quota of its queue is passed over.
        candidates = Candidates(state, builder)
        if builder.reservations.vacant:
            candidates.readmit()
        replicas = Replicas(builder)
        # Jobs that lost hardware go on where they were.
        for record in replace_lost(builder) if state.replacing else ():
            candidates.started(record)
            if _had_reservation(builder, record):
                candidates.readmit()
        # 3. Each is placed as a whole gang, or preempts, or gets its infeasibility reason. Where the policy
        #    reserves devices and a time for pending jobs, no job is placed that would delay that. First of all ways to
        #    preempt, elastic jobs give back what they have beyond their minimum. Replicas that services lack by their
        #    load go before jobs of lower priorities.
        _walk(candidates, builder, replicas)
        # 4. Claims of earlier plans that can start now: their victims have left, or their devices are repartitioned.
        start_promised(builder)
        start_prepared(builder)
        if candidates.reconsider():
            _walk(candidates, builder, replicas)
        replicas.after_all()
        builder.quota_reservations.keep_from(None)
        # 5. Where a site wants it, running jobs move now and then so that a job that is still pending has a place.
        if state.defragmented_ms == now and state.cells is None:
            _defragment(candidates, builder)
        # 6. What no pending job needs goes to jobs that could use more; or each gets the size that the policy sets.
        if state.elastic and (candidates.none_waits or state.policy.sets_sizes):
            grow_elastic(builder)
        if state.revocable and state.cells is None:
            promote_revocable(builder)
        if builder.fresh and candidates.none_waits and state.policy.has_relocations and state.cells is None:
            relocate(builder)
        if state.adjustments and state.cells is None:
            adjust_shares(builder)
        # 7. The difference between what is and what should be, and why the rest is pending.
        return builder.plan(candidates.verdicts, candidates.head, candidates.exhaustive)


def _walk(candidates: Candidates, builder: PlanBuilder, replicas: Replicas) -> None:
    while (candidate := candidates.next()) is not None:
        replicas.before(candidate.record)
        builder.quota_reservations.keep_from(candidate.record)
        outcome = _try(builder, candidate)
        if outcome.placed and _had_reservation(builder, candidate.record):
            candidates.readmit()
        candidates.settle(candidate, outcome)


def _try(builder: PlanBuilder, candidate: Candidate) -> Outcome:
    """Places a candidate, preempts for it, or finds out why it stays pending."""
    record, reservations, state = candidate.record, builder.reservations, builder.state
    if state.cells is not None and record.asked.gang.gpus_min:
        return place(builder, candidate)
    if record.job.id in builder.discarded:
        return Outcome(Reason.RESERVED, spare_ms=0)
    short = state.shortfall(record)
    fits = short is None and candidate.may_fit and _place(builder, record)
    is_beyond_quota = short is not None and not may_get_quota(state, record)
    if fits or _take_extras(builder, record) or (not is_beyond_quota and _make_room(builder, candidate)):
        return PLACED
    if short is not None and builder.quota_reservations.in_the_way_of(record, short):
        return Outcome(Reason.RESERVED, spare_ms=0)
    if short is not None and (reason := reason_of(state, record, short)) is not Reason.GPUS:
        return Outcome(reason, short)
    if _closes_too_soon(builder, record):
        return Outcome(Reason.MAINTENANCE, spare_ms=spare_ms(state, record), next_too=reservations.refused(record))
    if reservations.hold_back(record):
        left_ms = reservations.spare_ms
        return Outcome(Reason.RESERVED, spare_ms=left_ms, next_too=reservations.refused(record))
    missing = _lack(builder, record)
    if state.kept:
        discard_for(builder, record)
    reserves = missing is not Lack.NEVER and reservations.refused(record)
    return Outcome(LACK_REASON[missing], short, blocks=missing is not Lack.NEVER, next_too=reserves)


def _had_reservation(builder: PlanBuilder, record: JobRecord) -> bool:
    """Takes note that a job gets its devices; whether devices were reserved for it, which other jobs may have now."""
    if builder.state.cells is not None and record.asked.gang.gpus_min:
        return False
    builder.quota_reservations.started(record)
    return builder.reservations.started(record, builder.newest_bookings, builder.newest_release)


def _defragment(candidates: Candidates, builder: PlanBuilder) -> None:
    for record in first_scattered(builder.state):
        room = None
        if not any(claim.job == record.job.id for claim in builder.claims):
            room = plan_defragmentation(builder.transaction, record, builder.context(record, None))
        if room is not None:
            builder.promise(record, room)
            builder.reservations.started(record, builder.newest_bookings, builder.newest_release)
            candidates.helped(record)
            return


def _closes_too_soon(builder: PlanBuilder, record: JobRecord) -> bool:
    """Whether a job would fit, were it not for nodes that are to be closed before it ends."""
    if not builder.state.cluster.maintenance:
        return False
    transaction = builder.transaction
    mark = transaction.mark()
    fits = transaction.seat(record) is None and transaction.seat_at_last(record) is not None
    transaction.undo_to(mark)
    return fits


def _place(builder: PlanBuilder, record: JobRecord) -> bool:
    seated = builder.seat(record)
    if seated is None:
        return False
    builder.start(record, seated)
    return True


def _lack(builder: PlanBuilder, record: JobRecord) -> Lack:
    """What a job lacks that does not fit: where many are refused, the same for all that ask for the same."""
    if not builder.state.policy.preempts or builder.state.policy.targets is not Targets.KEEP:
        return lack(builder.state.fit, record.asked)
    upper_bound = builder.upper_bound(record)
    if upper_bound.lack is None:
        upper_bound.lack = lack(builder.state.fit, record.asked)
    return upper_bound.lack


def _take_extras(builder: PlanBuilder, record: JobRecord) -> bool:
    if not builder.extras_are_lent:
        return False
    # What is reserved for a job before it may be CPUs as well, so it stays off those nodes.
    with Closed(builder.state, builder.reservations.reserved_nodes(record) if builder.reservations.made else []):
        room = plan_with_extras(builder.transaction, record, builder.context(record, None))
    if room is None:
        return False
    builder.promise(record, room)
    return True


def _make_room(builder: PlanBuilder, candidate: Candidate) -> bool:
    record = candidate.record
    if not candidate.reclaims:
        return _wait_beside(builder, record)
    if builder.state.cells is not None or not builder.could_make_room(record):
        return False
    if reclaim_in_plan(builder, record):
        return True
    room = plan_preemption(builder.transaction, record, builder.context(record, candidate.fresh))
    if room is not None and builder.reservations.made and builder.reservations.delayed_by(record, room):
        room = _room_elsewhere(builder, record)
    if room is None:
        quotas = builder.state.quotas
        if not quotas or not quotas.may_reclaim(record.job.queue, record.need):
            return False
        if reclaim_with_victims(builder, record):
            return True
        builder.reclaims_left -= 1
        return False
    builder.promise(record, room)
    return True


def _wait_beside(builder: PlanBuilder, record: JobRecord) -> bool:
    """Gives a job a claim on what attempts leave that are terminating in any case."""
    if not builder.leaving or builder.free_soon < record.gpus_min or builder.state.shortfall(record) is not None:
        return False
    room = plan_beside_terminating(builder.transaction, record, builder.leaving)
    if room is None or (builder.reservations.made and builder.reservations.delayed_by(record, room)):
        return False
    builder.promise(record, room)
    return True


def _room_elsewhere(builder: PlanBuilder, record: JobRecord) -> PreemptionPlan | None:
    """A preemption on nodes on which nothing is reserved for a job before this one: there, that would be delayed."""
    reserved = builder.reservations.reserved_nodes(record)
    if UpperBound(builder.state, record, builder.leaving).gpus_outside(reserved) < record.gpus_min:
        return None
    with Closed(builder.state, reserved):
        context = replace(builder.context(record, None), upper_bound=UpperBound(builder.state, record, builder.leaving))
        room = plan_preemption(builder.transaction, record, context)
    return room if room is not None and not builder.reservations.delayed_by(record, room) else None
