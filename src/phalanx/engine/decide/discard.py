"""What is left of suspended jobs is stopped where a job before them would fit but for that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from phalanx.engine.plan.builder import PlanBuilder
from phalanx.engine.preempt.preemption import plan_preemption
from phalanx.engine.preempt.upper_bound import UpperBound
from phalanx.engine.state.records import JobRecord, StopReason
from phalanx.engine.transaction.suspension import in_the_way_of
from phalanx.protocol.action import ActionId, Stop


def discard_for(builder: PlanBuilder, record: JobRecord) -> None:
    """Has what is left of suspended jobs stopped, as far as a job before them would fit but for that."""
    behind = in_the_way_of(builder.state, record)
    if not behind or not _fits_without(builder, record, behind):
        return
    for other in list(behind):
        fewer = [each for each in behind if each is not other]
        if fewer and _fits_without(builder, record, fewer):
            behind = fewer
    for each in behind:
        assert each.kept is not None, f"nothing is kept of job {each.job.id}"
        action = ActionId(builder.state.term, each.job.id, each.kept.attempt, each.kept.next_seq)
        builder.actions.append(Stop(action, 0, StopReason.PREEMPTED.value))
        builder.discarded[each.job.id] = None


def _fits_without(builder: PlanBuilder, record: JobRecord, others: Sequence[JobRecord]) -> bool:
    mark = builder.transaction.mark()
    builder.transaction.release(each.kept.booking for each in others if each.kept is not None)
    fits = builder.transaction.seat(record) is not None or (
        builder.could_make_room(record)
        and plan_preemption(
            builder.transaction,
            record,
            replace(builder.context(record, None), upper_bound=_ceiling_now(builder, record)),
        )
        is not None
    )
    builder.transaction.undo_to(mark)
    return fits


def _ceiling_now(builder: PlanBuilder, record: JobRecord) -> UpperBound:
    return UpperBound(builder.state, record, builder.leaving)
