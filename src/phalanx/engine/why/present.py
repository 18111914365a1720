"""The reason that holds now.

A decision looks only at jobs that could start since something grew, so that the reason it gave grows old while other
jobs take what was free. When a user asks why a job is pending, that is worked out anew, for this one job, as a decision
would.
"""

from __future__ import annotations

from dataclasses import dataclass

from phalanx.engine.quota.shortfall import Shortfall
from phalanx.engine.reserve.profile import Underway
from phalanx.engine.reserve.quota_reservations import QuotaReservations
from phalanx.engine.reserve.reservations import Reservations
from phalanx.engine.state.order import whole_key
from phalanx.engine.state.records import JobRecord
from phalanx.engine.state.state import State
from phalanx.engine.transaction.cells import search
from phalanx.engine.transaction.transaction import Opened, Transaction
from phalanx.engine.why.evidence import Reserved, kept_for, reserved_for
from phalanx.placement.place import refusal
from phalanx.placement.placement import Lack
from phalanx.protocol.reason import LACK_REASON, Reason

PASSING = (
    Reason.BUDGET,
    Reason.QUOTA,
    Reason.BEHIND,
    *(reason for reason in LACK_REASON.values() if reason is not Reason.NEVER_FITS),
    Reason.RESERVED,
    Reason.MAINTENANCE,
    Reason.UNDECIDED,
)
"""Reasons that may be replaced by another as other jobs start and end."""


@dataclass(frozen=True, slots=True)
class Present:
    """Why a job is pending now, None if it is not; where what it would start on is reserved, for which jobs."""

    reason: Reason | None
    reserved_for: tuple[Reserved, ...] = ()


def present_reason(state: State, job: str) -> Reason | None:
    """Why a job is pending now; None if it is not. An unknown id raises ValueError."""
    return present(state, job).reason


def present(state: State, job: str) -> Present:
    """What holds of a job now. An unknown id raises ValueError."""
    told, record = state.reason(job), state.record(job)
    if told not in PASSING:
        return Present(told)
    with Transaction(state) as transaction:
        holds = QuotaReservations(transaction)
        holds.keep_from(record)
        short = state.shortfall(record)
        if short is not None and (kept := holds.in_the_way_of(record, short)):
            return Present(Reason.RESERVED, kept_for(state, kept))
        # A job that could not have it either if nothing were kept gets the reason that it would have then.
        holds.begin_anew()
        short = state.shortfall(record)
        if short is not None and (of_quota := _of_quota(state, record, short)) is not None:
            return Present(of_quota)
        if told is Reason.BEHIND or (told in (Reason.BUDGET, Reason.QUOTA) and _is_behind(state, record)):
            return Present(Reason.BEHIND)
        if state.cells is not None and record.asked.gang.gpus_min:
            return Present(_in_cells(transaction, record) or told)
        return _of_devices(transaction, record, told)


def _is_behind(state: State, record: JobRecord) -> bool:
    """Whether a job is behind the one that no job may pass: a job that was short of quota is not tried there again."""
    return bool(state.head) and whole_key(state, state.jobs[state.head]) < whole_key(state, record)


def _of_devices(transaction: Transaction, record: JobRecord, told: Reason) -> Present:
    """What keeps a job from its devices that may have what it asks for."""
    state, mark = transaction.state, transaction.mark()
    if transaction.seat(record) is not None:
        transaction.undo_to(mark)
        return _of_itself(transaction, record, told)
    if state.cluster.maintenance and transaction.seat_at_last(record) is not None:
        return Present(Reason.MAINTENANCE)
    reason = LACK_REASON[refusal(state.fit, record.asked).lack]
    if reason is Reason.UNHEALTHY and state.closed and not _would_be_unhealthy(state, record):
        return Present(Reason.MAINTENANCE)
    return Present(reason)


def _would_be_unhealthy(state: State, record: JobRecord) -> bool:
    """Whether too many nodes would not be healthy also if none were closed for maintenance."""
    with Opened(state):
        return refusal(state.fit, record.asked).lack is Lack.UNHEALTHY


def _of_itself(transaction: Transaction, record: JobRecord, told: Reason) -> Present:
    """Why a job is pending that would fit: it, or a longer one of its class, would delay a job before it that has a
    reservation. Else nothing keeps it, and no decision has looked at it since that is so.
    """
    state = transaction.state
    if state.reservations:
        reservations = Reservations(transaction, state.now, Underway(dict(state.leaving), {}, {}))
        before = [made for made, _ in reservations.before(record)] or reservations.made
        if told is Reason.RESERVED or reservations.seat(record) is None:
            others = reserved_for(state, record, before)
            return Present(Reason.RESERVED if others else Reason.UNDECIDED, others)
    return Present(Reason.UNDECIDED)


def _in_cells(transaction: Transaction, record: JobRecord) -> Reason | None:
    """What a job lacks in the cells of its virtual cluster; None if it has a place there."""
    found = search(transaction, record)
    return found if isinstance(found, Reason) and found is not Reason.UNDECIDED else None


def _of_quota(state: State, record: JobRecord, short: Shortfall) -> Reason | None:
    """As a decision has it: where there are not so many GPUs left to be lent, it is these that are missing."""
    if short.by_budget:
        return Reason.BUDGET
    full = not short.by_limit and state.capacity.free_total < record.gpus_min
    return None if full else Reason.QUOTA
