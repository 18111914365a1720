"""What is left of suspended jobs is stopped where a job before them would fit but for that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from phalanx.engine.plan.draft import Draft
from phalanx.engine.preempt.ceiling import Ceiling
from phalanx.engine.preempt.room import make_room
from phalanx.engine.state.records import JobRecord, StopReason
from phalanx.engine.transaction.suspension import in_the_way_of
from phalanx.protocol.action import ActionId, Stop


def discard_for(draft: Draft, record: JobRecord) -> None:
    """Has what is left of suspended jobs stopped, as far as a job before them would fit but for that."""
    behind = in_the_way_of(draft.state, record)
    if not behind or not _fits_without(draft, record, behind):
        return
    for other in list(behind):
        fewer = [each for each in behind if each is not other]
        if fewer and _fits_without(draft, record, fewer):
            behind = fewer
    for each in behind:
        assert each.kept is not None, f"nothing is kept of job {each.job.id}"
        action = ActionId(draft.state.term, each.job.id, each.kept.attempt, each.kept.next_seq)
        draft.actions.append(Stop(action, 0, StopReason.PREEMPTED.value))
        draft.discarded[each.job.id] = None


def _fits_without(draft: Draft, record: JobRecord, others: Sequence[JobRecord]) -> bool:
    mark = draft.trial.mark()
    draft.trial.release(each.kept.booking for each in others if each.kept is not None)
    fits = draft.trial.seat(record) is not None or (
        draft.could_make_room(record)
        and make_room(draft.trial, record, replace(draft.context(record, None), ceiling=_ceiling_now(draft, record)))
        is not None
    )
    draft.trial.undo_to(mark)
    return fits


def _ceiling_now(draft: Draft, record: JobRecord) -> Ceiling:
    return Ceiling(draft.state, record, draft.leaving)
