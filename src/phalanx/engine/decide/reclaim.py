"""Reclaims within a plan: a job gets what the plan was about to lend. The borrower has not started: nothing is lost."""

from __future__ import annotations

from dataclasses import replace

from phalanx.engine.plan.builder import PlanBuilder
from phalanx.engine.plan.tentative import TentativeBorrow
from phalanx.engine.preempt.preemption import plan_beside_terminating, plan_preemption
from phalanx.engine.preempt.upper_bound import UpperBound
from phalanx.engine.reserve.overlap import meet
from phalanx.engine.state.records import JobRecord


def reclaim_in_plan(builder: PlanBuilder, record: JobRecord) -> bool:
    """Gives a job what the plan was about to lend to one other; whether it did."""
    quotas, transaction = builder.state.quotas, builder.transaction
    if not quotas or not quotas.may_reclaim(record.job.queue, record.need):
        return False
    for borrow in builder.borrows.due_to(record):
        mark, promised_gpus = transaction.mark(), builder.promised_gpus
        planned = builder.take_back(borrow)
        if _takes(builder, record, borrow):
            return True
        builder.reservations.plan_again(planned)
        transaction.undo_to(mark)
        builder.promised_gpus = promised_gpus
    return False


def reclaim_with_victims(builder: PlanBuilder, record: JobRecord) -> bool:
    """Likewise of as many as needed, where running attempts must leave as well."""
    transaction, planned = builder.transaction, builder.reservations.put_back([])
    mark, promised_gpus = transaction.mark(), builder.promised_gpus
    taken: list[TentativeBorrow] = []
    for borrow in builder.borrows.due_to(record):
        if borrow.victims:
            continue
        builder.take_back(borrow)
        taken.append(borrow)
        context = replace(builder.context(record, None), upper_bound=UpperBound(builder.state, record, builder.leaving))
        room = plan_preemption(transaction, record, context)
        if room is not None:
            for each in taken:
                builder.make_way(each, record)
            builder.promise(record, room)
            return True
    builder.reservations.plan_again(planned)
    transaction.undo_to(mark)
    builder.promised_gpus = promised_gpus
    return False


def _takes(builder: PlanBuilder, record: JobRecord, borrow: TentativeBorrow) -> bool:
    """Whether a job has a place now that another does not get its tentative borrow; then that one stays pending.

    What it reclaims is its own, whatever is reserved there.
    """
    if builder.state.shortfall(record) is not None:
        return False
    transaction = builder.transaction
    # It gets its nominal quota, but does not borrow in turn.
    transaction.lends = False
    seated = None
    if not borrow.victims:
        seated = builder.seat(record) or (transaction.seat(record) if builder.reservations.made else None)
    beside = seated is None and borrow.waits and builder.free_soon >= record.gpus_min
    room = plan_beside_terminating(transaction, record, builder.leaving) if beside else None
    transaction.lends = True
    if seated is not None:
        builder.make_way(borrow, record)
        builder.start(record, seated)
        return True
    if room is None or not all(meet(room.bookings, victim.bookings) for victim in borrow.victims):
        return False
    builder.make_way(borrow, record)
    builder.promise(record, room, borrow.victims)
    return True
