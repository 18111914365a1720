"""The earliest start of a pending job, by what is known of what it waits for.

It waits for its begin time, for jobs to end, for maintenance to be over, and for its queue to have headroom. It also
waits for as much as it needs to be free where it needs it. Attempts that hold devices leave one after the other, as
they are expected to. Other pending jobs are not placed here, and what is unknown (a length that is not said, a node
that is down) is taken for the better: a job does not start before that, and may well start later.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import NamedTuple

from phalanx.engine.state.records import AttemptRecord, JobRecord, JobState, Phase, usage_of
from phalanx.engine.state.state import State
from phalanx.engine.state.windows import closing
from phalanx.engine.transaction.transaction import Closed, Opened, Transaction
from phalanx.engine.why.evidence import beyond_quota, expected_end_ms, would_yield
from phalanx.placement.place import ever
from phalanx.policy.policy import Targets
from phalanx.protocol.reason import Reason
from phalanx.workload.job import After, Dependency

CHAIN_MAX = 64
"""Jobs that wait for one another, up to which a chain is followed."""

PLACES_MAX = 16
"""Jobs in a chain of which it is looked when they find a place themselves."""

MOMENTS_MAX = 64
"""Moments that are tried where nodes close and open meanwhile."""


class Earliest(NamedTuple):
    """When a job can start at the earliest; None if that is unknown, or it has its devices, or it is `never`.

    `obstacle` is what keeps it from starting before that.
    """

    at_ms: int | None = None
    obstacle: Reason | None = None
    never: bool = False


def earliest(state: State, record: JobRecord) -> Earliest:
    """When a job can start at the earliest, and what keeps it until then. The State is left as it was."""
    if record.attempt is not None:
        return Earliest()
    if not ever(state.fit, record.asked):
        return Earliest(obstacle=Reason.NEVER_FITS, never=True)
    if state.quotas and beyond_quota(state.quotas, record) is not None:
        return Earliest(obstacle=Reason.QUOTA, never=True)
    before = _Chain(state, PLACES_MAX).not_before(record)
    if before.never:
        return before
    with Transaction(state) as transaction, Opened(state):
        ahead = _Ahead(transaction, record, _leaving(transaction, record))
        found = ahead.soonest(before)
        if ahead.is_spent_by(state.now if found.at_ms is None else found.at_ms):
            return Earliest(obstacle=Reason.BUDGET, never=True)
        return found


def not_before(state: State, record: JobRecord) -> Earliest:
    """Until when a job is ineligible: by its begin time, a pause, or jobs that come first."""
    return _Chain(state).not_before(record)


def alone(state: State, records: Iterable[JobRecord]) -> dict[str, Earliest]:
    """When each of several jobs could start if no other were there: once it may, and its nodes stay open for it."""
    found = {record.job.id: not_before(state, record) for record in records}
    if not state.cluster.maintenance:
        return found
    with Transaction(state) as transaction, Opened(state):
        for attempt in list(state.attempts_present()):
            _release(transaction, attempt)
        for job, before in found.items():
            record = state.jobs[job]
            if not before.never and record.attempt is None:
                open_ms = _Ahead(transaction, record, []).open_ms(before.at_ms or state.now)
                if open_ms > (before.at_ms or state.now):
                    found[job] = Earliest(open_ms, Reason.MAINTENANCE)
    return found


class _Chain:
    """Jobs that wait for one another. For the first so many (`places`) that do not run yet, it is worked out when they
    find a place; the rest is taken to find one as soon as it is eligible.
    """

    def __init__(self, state: State, places: int = 0) -> None:
        self.state = state
        self._places = places
        self._known: dict[str, Earliest] = {}

    def not_before(self, record: JobRecord, further: int = CHAIN_MAX) -> Earliest:
        """Until when a job is ineligible."""
        if record.job.id in self._known:
            return self._known[record.job.id]
        found = Earliest(self.state.now)
        waits = [
            Earliest(record.job.begin_ms or 0, Reason.BEGIN_TIME),
            Earliest(record.not_before_ms, Reason.BACKOFF),
            *(self._after(each, further - 1) for each in record.job.after if further),
        ]
        for each in waits:
            if each.never:
                found = each
                break
            if (each.at_ms or 0) > (found.at_ms or 0):
                found = each
        self._known[record.job.id] = found
        return found

    def _after(self, dependency: Dependency, further: int) -> Earliest:
        """When a job that another waits for will have started or ended, as it wants."""
        state, other = self.state, self.state.jobs[dependency.job]
        if dependency.on is After.START and other.first_start_ms is not None:
            return Earliest(state.now)
        if other.final is not None:
            wanted = {After.SUCCESS: JobState.SUCCEEDED, After.FAILURE: JobState.FAILED}.get(dependency.on, other.final)
            met = other.final is wanted
            return Earliest(state.now) if met else Earliest(None, Reason.DEPENDENCY_FAILED, never=True)
        if other.attempt is not None:
            end_ms = expected_end_ms(state, other.attempt) if dependency.on in (After.SUCCESS, After.END) else None
            return Earliest(end_ms or state.now, Reason.DEPENDENCY)
        before = self.not_before(other, further)
        if before.never:
            # It may be cancelled, which is an end.
            lost = dependency.on in (After.SUCCESS, After.FAILURE)
            return Earliest(None, Reason.DEPENDENCY_FAILED, never=True) if lost else Earliest(state.now)
        lasts = dependency.on in (After.SUCCESS, After.END)
        left_ms = max((other.job.duration_ms or 0) - other.executed_ms(state.now), 0) if lasts else 0
        return Earliest(self._placed_ms(other, before) + left_ms, Reason.DEPENDENCY)

    def _placed_ms(self, record: JobRecord, before: Earliest) -> int:
        """When a job that is eligible from a moment on finds a place; that moment, if it is unknown."""
        state = self.state
        if self._places > 0:
            self._places -= 1
            with Transaction(state) as transaction, Opened(state):
                before = _Ahead(transaction, record, _leaving(transaction, record)).soonest(before)
        return before.at_ms or state.now


def _leaving(transaction: Transaction, record: JobRecord) -> list[tuple[int, AttemptRecord]]:
    """Attempts that hold devices, and when they leave them to a job, the first first; those that leave at once have."""
    state = transaction.state
    present = [(_leaves_ms(state, record, attempt), attempt) for attempt in state.attempts_present()]
    for end_ms, attempt in present:
        if end_ms <= state.now:
            _release(transaction, attempt)
    return sorted((each for each in present if each[0] > state.now), key=lambda each: each[0])


def _leaves_ms(state: State, record: JobRecord, attempt: AttemptRecord) -> int:
    """When an attempt leaves what it holds: at once if it would yield, or if nothing is known of its end."""
    resizes = state.policy.sets_sizes and attempt.job.gang.elastic
    if attempt.ceding or resizes or _may_give_way(state, record, attempt):
        return state.now
    end_ms = expected_end_ms(state, attempt)
    return state.now if end_ms is None else min(end_ms, closes_ms(state, attempt, end_ms))


class _Ahead:
    """Attempts that hold devices leave one after the other, until a job finds a place."""

    def __init__(self, transaction: Transaction, record: JobRecord, leaving: list[tuple[int, AttemptRecord]]) -> None:
        self.transaction = transaction
        self.state = transaction.state
        self.record = record
        self.leaving = leaving

    def soonest(self, before: Earliest) -> Earliest:
        """The first moment, not before one that is given, at which the job finds a place."""
        state, from_ms = self.state, before.at_ms or self.state.now
        found = self._enough_gone(heeds_quota=True)
        if found is None:
            return before if before.obstacle is not None else Earliest()
        at_ms = max(found, from_ms)
        open_ms = self.open_ms(at_ms)
        if open_ms > at_ms:
            return Earliest(open_ms, Reason.MAINTENANCE)
        if found <= from_ms:
            return Earliest(from_ms, before.obstacle)
        is_short = state.shortfall(self.record) is not None and (self._enough_gone(heeds_quota=False) or 0) < found
        return Earliest(at_ms, Reason.QUOTA if is_short else Reason.GPUS)

    def _enough_gone(self, heeds_quota: bool) -> int | None:
        """When so many have left that the job finds a place, whatever closes; None if not even with all of them."""

        def fits(count: int) -> bool:
            mark = self.transaction.mark()
            for _, attempt in self.leaving[:count]:
                _release(self.transaction, attempt)
            seated = self._may_have(heeds_quota) and self._seats(self.leaving[count:])
            self.transaction.undo_to(mark)
            return seated

        if fits(0):
            return self.state.now
        too_few, enough = 0, len(self.leaving)
        if not self.leaving or not fits(enough):
            return None
        while enough - too_few > 1:
            middle = (too_few + enough) // 2
            too_few, enough = (too_few, middle) if fits(middle) else (middle, enough)
        return self.leaving[enough - 1][0]

    def _may_have(self, heeds_quota: bool) -> bool:
        short = self.state.shortfall(self.record) if heeds_quota else None
        return short is None or short.by_budget

    def _seats(self, staying: list[tuple[int, AttemptRecord]]) -> bool:
        """Whether there is a place, or might be once movable attempts have moved."""
        if self.transaction.seat_at_last(self.record) is not None:
            return True
        state, record = self.state, self.record
        if state.capacity.free_total < record.gpus_min:
            return False
        movable = [each for _, each in staying if each.job.movable and state.policy.moves(record, each, state)]
        for attempt in movable:
            _release(self.transaction, attempt)
        return bool(movable) and self.transaction.seat_at_last(record) is not None

    def open_ms(self, from_ms: int) -> int:
        """The first moment from then on at which the job would have left before its nodes close."""
        windows = self.state.cluster.maintenance
        if not windows:
            return from_ms
        later = (*(end_ms for end_ms, _ in self.leaving), *(window.end_ms for window in windows))
        moments = sorted(dict.fromkeys((from_ms, *(each_ms for each_ms in later if each_ms > from_ms))))
        for at_ms in moments[:MOMENTS_MAX]:
            mark = self.transaction.mark()
            gone = bisect_right(self.leaving, at_ms, key=lambda each: each[0])
            for _, attempt in self.leaving[:gone]:
                _release(self.transaction, attempt)
            with Closed(self.state, closing(self.state, self.record, at_ms)):
                seated = self._seats(self.leaving[gone:])
            self.transaction.undo_to(mark)
            if seated:
                return at_ms
        return moments[:MOMENTS_MAX][-1]

    def is_spent_by(self, at_ms: int) -> bool:
        """Whether a budget of its queue, or of one it lies in, is used up by then: by running jobs, as it stands."""
        state, record = self.state, self.record
        if not state.quotas.budgets or not record.need.gpu_permille:
            return False
        for account in state.quotas.accounts[record.job.queue].upwards():
            budget_gpu_ms = account.queue.budget_gpu_ms
            if budget_gpu_ms is None:
                continue
            spent = state.spending.spent(account.path, state.now)
            for end_ms, attempt in self.leaving:
                if account in state.quotas.accounts[attempt.job.queue].trail:
                    spent += attempt.gpu_permille * (min(end_ms, at_ms) - state.now)
            if spent >= 1000 * budget_gpu_ms:
                return True
        return False


def _release(transaction: Transaction, attempt: AttemptRecord) -> None:
    if attempt.waits:
        transaction.unclaim(attempt.bookings)
    elif attempt.phase is Phase.STOPPING:
        transaction.vacate(attempt.bookings)
    else:
        transaction.release(attempt.bookings)
    if not attempt.ceding:
        transaction.use(attempt.job.queue, usage_of(attempt.staying), -1)
    transaction.leave_cells(attempt)


def _may_give_way(state: State, record: JobRecord, attempt: AttemptRecord) -> bool:
    """Whether an attempt yields to a job, or may come to do so as the running order changes with time."""
    if not attempt.stoppable and not attempt.job.gang.elastic:
        return False
    ranks = state.policy.targets is not Targets.KEEP and not (state.quotas and record.job.queue != attempt.job.queue)
    changes = state.policy.targets is Targets.DRIFT or state.policy.has_changes
    return (ranks and changes) or would_yield(state, record, attempt)


def closes_ms(state: State, attempt: AttemptRecord, until_ms: int) -> int:
    """When the first of an attempt's nodes is closed for maintenance; the given moment if none is before that."""
    if not state.cluster.maintenance:
        return until_ms
    names = dict.fromkeys(slot.node for slot in attempt.placement.slots)
    starts = (
        window.start_ms
        for window in state.cluster.maintenance
        if state.now < window.start_ms and any(node in names for node in window.nodes)
    )
    return min((until_ms, *starts))
