"""Takeovers: a job gets what the same plan was about to lend to others, who lose nothing by it. Who runs would."""

from __future__ import annotations

from dataclasses import replace

from phalanx.engine.plan.draft import Draft
from phalanx.engine.plan.loans import Loan
from phalanx.engine.preempt.ceiling import Ceiling
from phalanx.engine.preempt.room import make_room, room_beside
from phalanx.engine.reserve.overlap import meet
from phalanx.engine.state.records import JobRecord


def take_over(draft: Draft, record: JobRecord) -> bool:
    """Gives a job what the plan was about to lend to one other; whether it did."""
    quotas, trial = draft.state.quotas, draft.trial
    if not quotas or not quotas.may_reclaim(record.job.queue, record.need):
        return False
    for loan in draft.loans.due_to(record):
        mark, promised_gpus = trial.mark(), draft.promised_gpus
        planned = draft.take_back(loan)
        if _takes(draft, record, loan):
            return True
        draft.reservations.plan_again(planned)
        trial.undo_to(mark)
        draft.promised_gpus = promised_gpus
    return False


def take_over_with_victims(draft: Draft, record: JobRecord) -> bool:
    """Likewise of as many as needed, where others must leave as well."""
    trial, planned = draft.trial, draft.reservations.put_back([])
    mark, promised_gpus = trial.mark(), draft.promised_gpus
    taken: list[Loan] = []
    for loan in draft.loans.due_to(record):
        if loan.victims:
            continue
        draft.take_back(loan)
        taken.append(loan)
        context = replace(draft.context(record, None), ceiling=Ceiling(draft.state, record, draft.leaving))
        room = make_room(trial, record, context)
        if room is not None:
            for each in taken:
                draft.make_way(each, record)
            draft.promise(record, room)
            return True
    draft.reservations.plan_again(planned)
    trial.undo_to(mark)
    draft.promised_gpus = promised_gpus
    return False


def _takes(draft: Draft, record: JobRecord, loan: Loan) -> bool:
    """Whether a job has a place now that another has not what it was to be lent; then that waits on.

    What it has back by its quota is its own, whatever is reserved there.
    """
    if draft.state.shortfall(record) is not None:
        return False
    trial = draft.trial
    # It has its due, but does not borrow in turn.
    trial.lends = False
    seated = None
    if not loan.victims:
        seated = draft.seat(record) or (trial.seat(record) if draft.reservations.made else None)
    beside = seated is None and loan.waits and draft.free_soon >= record.gpus_min
    room = room_beside(trial, record, draft.leaving) if beside else None
    trial.lends = True
    if seated is not None:
        draft.make_way(loan, record)
        draft.start(record, seated)
        return True
    if room is None or not all(meet(room.bookings, victim.bookings) for victim in loan.victims):
        return False
    draft.make_way(loan, record)
    draft.promise(record, room, loan.victims)
    return True
