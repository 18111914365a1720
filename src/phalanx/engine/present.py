"""The reason that holds now.

A decision looks only at who could start since something grew, so that what it said of a job grows old while others take
what was free. Whoever asks why a job waits has that worked out anew, for this one job, as a decision would.
"""

from __future__ import annotations

from phalanx.engine.cells_seats import search
from phalanx.engine.evidence import reserved_for
from phalanx.engine.plan import LACK_REASON, Reason
from phalanx.engine.quotas import Shortfall
from phalanx.engine.records import JobRecord
from phalanx.engine.state import State
from phalanx.engine.trial import Trial
from phalanx.placement.place import refusal

PASSING = (
    Reason.BUDGET,
    Reason.QUOTA,
    Reason.BEHIND,
    *(reason for reason in LACK_REASON.values() if reason is not Reason.NEVER_FITS),
    Reason.RESERVED,
    Reason.MAINTENANCE,
    Reason.UNDECIDED,
)
"""Reasons that what others do may put another in the place of."""


def present_reason(state: State, job: str) -> Reason | None:
    """Why a job waits now; None if it does not. An unknown id raises ValueError."""
    told, record = state.reason(job), state.record(job)
    if told not in PASSING:
        return told
    short = state.shortfall(record)
    if short is not None and (of_quota := _of_quota(state, record, short)) is not None:
        return of_quota
    if told is Reason.BEHIND:
        return told
    with Trial(state) as trial:
        if state.cells is not None and record.asked.gang.gpus_min:
            return _in_cells(trial, record) or told
        if trial.seat(record) is not None:
            return _of_itself(state, record, told)
        if state.cluster.maintenance and trial.seat_at_last(record) is not None:
            return Reason.MAINTENANCE
    return LACK_REASON[refusal(state.fit, record.asked).lack]


def _of_itself(state: State, record: JobRecord, told: Reason) -> Reason:
    """Why a job waits that would fit: for somebody for whom that is reserved, which may not have been so when it was
    told why it waits; or a longer one of its kind may run into maintenance, and this one not.
    """
    if reserved_for(state, record):
        return Reason.RESERVED
    return told if told is not Reason.MAINTENANCE else Reason.UNDECIDED


def _in_cells(trial: Trial, record: JobRecord) -> Reason | None:
    """What a job lacks in the cells of its virtual cluster; None if it has a place there."""
    found = search(trial, record)
    return found if isinstance(found, Reason) and found is not Reason.UNDECIDED else None


def _of_quota(state: State, record: JobRecord, short: Shortfall) -> Reason | None:
    """As a decision has it: where there are not so many GPUs left to be lent, it is these that are missing."""
    if short.by_budget:
        return Reason.BUDGET
    full = not short.by_limit and state.capacity.free_total < record.gpus_min
    return None if full else Reason.QUOTA
