"""The cycle: `decide` turns a State into a Plan. What should be, what is, the difference, and why.

Each step is a function of its own; a decision runs on a trial that is undone, so the State is as it was.
"""

from __future__ import annotations

from dataclasses import replace

from phalanx.engine.cells.place import place
from phalanx.engine.decide.discard import discard_for
from phalanx.engine.decide.improve import adjust_shares, promote_revocable, relocate
from phalanx.engine.decide.leave import stop_what_must_leave
from phalanx.engine.decide.promised import start_prepared, start_promised
from phalanx.engine.decide.replicas import Replicas
from phalanx.engine.decide.resize import grow_elastic, shed_lost_members, shrink_to_sizes
from phalanx.engine.decide.shortcut import short_plan
from phalanx.engine.decide.takeover import take_over, take_over_with_victims
from phalanx.engine.pending.candidates import Candidates
from phalanx.engine.pending.outcome import PLACED, Candidate, Outcome
from phalanx.engine.pending.reasons import reason_of
from phalanx.engine.plan.draft import Draft
from phalanx.engine.preempt.ceiling import Ceiling
from phalanx.engine.preempt.room import Room, make_room, room_beside, room_by_defragmenting, room_of_extras
from phalanx.engine.state.records import JobRecord
from phalanx.engine.state.scattered import first_scattered
from phalanx.engine.state.state import State
from phalanx.engine.state.windows import spare_ms
from phalanx.engine.transaction.trial import Closed, Trial
from phalanx.placement.place import lack
from phalanx.placement.placement import Lack
from phalanx.policy.policy import Targets, all_stay
from phalanx.protocol.plan import Plan
from phalanx.protocol.reason import LACK_REASON, Reason


def decide(state: State, now: int) -> Plan:
    """What to start and stop at `now`, and why the rest waits."""
    if not state.unsettled:
        return Plan(head=state.head)
    if state.policy.targets is not Targets.KEEP:
        state.settle_standing()
    short = short_plan(state)
    if short is not None:
        return short
    with Trial(state) as trial:
        draft = Draft(trial, now)
        # 1. Who must leave, whatever else happens.
        stop_what_must_leave(draft)
        if state.elastic:
            shed_lost_members(draft)
            shrink_to_sizes(draft)
        # 2. What should run: the admitted jobs, in the order of the policy. What runs is kept. A job that would have
        #    more than the quota of its queue is passed over.
        candidates = Candidates(state, draft)
        if draft.reservations.vacant:
            candidates.readmit()
        replicas = Replicas(draft)
        # 3. Each is placed as a whole gang, or room is made for it, or it is told what it lacks; where the policy
        #    reserves devices and a time for who waits, nobody is placed who would delay that. First of all ways to
        #    make room elastic jobs give back what they have beyond their minimum. Replicas that services lack by their
        #    load go before jobs of lower priorities.
        _walk(candidates, draft, replicas)
        # 4. Who was promised devices before, and has them now: their victims have left, or their devices are cut.
        start_promised(draft)
        start_prepared(draft)
        if candidates.reconsider():
            _walk(candidates, draft, replicas)
        replicas.after_all()
        draft.holds.keep_from(None)
        # 5. Where a site wants it, others move now and then so that one of those who still wait has a place.
        if state.defragmented_ms == now and state.cells is None:
            _defragment(candidates, draft)
        # 6. What nobody waits for goes to those who could use more; or everybody gets the size that the policy sets.
        if state.elastic and (candidates.none_waits or state.policy.sets_sizes):
            grow_elastic(draft)
        if state.revocable and state.cells is None:
            promote_revocable(draft)
        if draft.fresh and candidates.none_waits and state.policy.relocates is not all_stay and state.cells is None:
            relocate(draft)
        if state.adjustments and state.cells is None:
            adjust_shares(draft)
        # 7. The difference between what is and what should be, and why the rest waits.
        return draft.plan(candidates.verdicts, candidates.head, candidates.exhaustive)


def _walk(candidates: Candidates, draft: Draft, replicas: Replicas) -> None:
    while (candidate := candidates.next()) is not None:
        replicas.before(candidate.record)
        draft.holds.keep_from(candidate.record)
        outcome = _try(draft, candidate)
        if outcome.placed and _had_reservation(draft, candidate.record):
            candidates.readmit()
        candidates.settle(candidate, outcome)


def _try(draft: Draft, candidate: Candidate) -> Outcome:
    """Places a candidate, makes room for it, or finds out why it stays pending."""
    record, reservations, state = candidate.record, draft.reservations, draft.state
    if state.cells is not None and record.asked.gang.gpus_min:
        return place(draft, candidate)
    if record.job.id in draft.discarded:
        return Outcome(Reason.RESERVED, spare_ms=0)
    short = state.shortfall(record)
    fits = short is None and candidate.may_fit and _place(draft, record)
    if fits or _take_extras(draft, record) or _make_room(draft, candidate):
        return PLACED
    if short is not None and draft.holds.in_the_way_of(record, short):
        return Outcome(Reason.RESERVED, spare_ms=0)
    if short is not None and (reason := reason_of(state, record, short)) is not Reason.GPUS:
        return Outcome(reason, short)
    if _closes_too_soon(draft, record):
        return Outcome(Reason.MAINTENANCE, spare_ms=spare_ms(state, record), next_too=reservations.refused(record))
    if reservations.hold_back(record):
        left_ms = reservations.spare_ms
        return Outcome(Reason.RESERVED, spare_ms=left_ms, next_too=reservations.refused(record))
    missing = _lack(draft, record)
    if state.kept:
        discard_for(draft, record)
    reserves = missing is not Lack.NEVER and reservations.refused(record)
    return Outcome(LACK_REASON[missing], short, blocks=missing is not Lack.NEVER, next_too=reserves)


def _had_reservation(draft: Draft, record: JobRecord) -> bool:
    """Takes note that a job gets its devices; whether something was reserved for it, that others may have now."""
    if draft.state.cells is not None and record.asked.gang.gpus_min:
        return False
    draft.holds.started(record)
    return draft.reservations.started(record, draft.newest_bookings, draft.newest_release)


def _defragment(candidates: Candidates, draft: Draft) -> None:
    for record in first_scattered(draft.state):
        room = None
        if not any(claim.job == record.job.id for claim in draft.claims):
            room = room_by_defragmenting(draft.trial, record, draft.context(record, None))
        if room is not None:
            draft.promise(record, room)
            draft.reservations.started(record, draft.newest_bookings, draft.newest_release)
            candidates.helped(record)
            return


def _closes_too_soon(draft: Draft, record: JobRecord) -> bool:
    """Whether a job would fit, were it not for nodes that are to be closed before it ends."""
    if not draft.state.cluster.maintenance:
        return False
    trial = draft.trial
    mark = trial.mark()
    fits = trial.seat(record) is None and trial.seat_at_last(record) is not None
    trial.undo_to(mark)
    return fits


def _place(draft: Draft, record: JobRecord) -> bool:
    seated = draft.seat(record)
    if seated is None:
        return False
    draft.start(record, seated)
    return True


def _lack(draft: Draft, record: JobRecord) -> Lack:
    """What a job lacks that does not fit: where many are refused, the same for all that ask for the same."""
    if not draft.state.policy.preempts or draft.state.policy.targets is not Targets.KEEP:
        return lack(draft.state.fit, record.asked)
    ceiling = draft.ceiling(record)
    if ceiling.lack is None:
        ceiling.lack = lack(draft.state.fit, record.asked)
    return ceiling.lack


def _take_extras(draft: Draft, record: JobRecord) -> bool:
    if not draft.extras_are_lent:
        return False
    # What is reserved for somebody before it may be CPUs as well, so it stays off those nodes.
    with Closed(draft.state, draft.reservations.reserved_nodes(record) if draft.reservations.made else []):
        room = room_of_extras(draft.trial, record, draft.context(record, None))
    if room is None:
        return False
    draft.promise(record, room)
    return True


def _make_room(draft: Draft, candidate: Candidate) -> bool:
    record = candidate.record
    if not candidate.reclaims:
        return _wait_beside(draft, record)
    if draft.state.cells is not None or not draft.could_make_room(record):
        return False
    if take_over(draft, record):
        return True
    room = make_room(draft.trial, record, draft.context(record, candidate.fresh))
    if room is not None and draft.reservations.made and draft.reservations.delayed_by(record, room):
        room = _room_elsewhere(draft, record)
    if room is None:
        quotas = draft.state.quotas
        if not quotas or not quotas.may_reclaim(record.job.queue, record.need):
            return False
        if take_over_with_victims(draft, record):
            return True
        draft.reclaims_left -= 1
        return False
    draft.promise(record, room)
    return True


def _wait_beside(draft: Draft, record: JobRecord) -> bool:
    """Promises a job what attempts leave that are terminating in any case."""
    if not draft.leaving or draft.free_soon < record.gpus_min or draft.state.shortfall(record) is not None:
        return False
    room = room_beside(draft.trial, record, draft.leaving)
    if room is None or (draft.reservations.made and draft.reservations.delayed_by(record, room)):
        return False
    draft.promise(record, room)
    return True


def _room_elsewhere(draft: Draft, record: JobRecord) -> Room | None:
    """Room on nodes on which nothing is reserved for somebody before a job, whom it would delay there."""
    with Closed(draft.state, draft.reservations.reserved_nodes(record)):
        context = replace(draft.context(record, None), ceiling=Ceiling(draft.state, record, draft.leaving))
        room = make_room(draft.trial, record, context)
    return room if room is not None and not draft.reservations.delayed_by(record, room) else None
