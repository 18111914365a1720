"""Attempts end: stopped, suspended, failed or done, and what becomes of their jobs."""

from __future__ import annotations

from phalanx.cluster.cluster import Health
from phalanx.engine.fold.adjust import company_changed
from phalanx.engine.fold.enqueue import call_array, call_dependents, enqueue, give_up_array_seat, leave
from phalanx.engine.fold.holding import CRASH_MS, backoff_ms, depart, forget_end, pause_ms
from phalanx.engine.fold.kept import forget_kept, keep_nothing, reopen
from phalanx.engine.fold.patience import calm, expect
from phalanx.engine.fold.request import take_request
from phalanx.engine.recovery.former import forget, remember
from phalanx.engine.state.records import GOES_ON, AttemptRecord, JobRecord, JobState, Phase, StopReason, usage_of
from phalanx.engine.state.state import State
from phalanx.engine.transaction.suspension import (
    kept_of,
    request_of,
    together,
)
from phalanx.protocol.event import Outcome


def want_stopped(state: State, attempt: AttemptRecord, reason: StopReason) -> None:
    """Has the next plan stop an attempt; one that only has a claim ends at once."""
    if attempt.phase is Phase.CLAIMED:
        attempt.stop_reason = reason
        end(state, attempt)
    elif attempt.phase is not Phase.STOPPING or (attempt.keeping is not None and reason is StopReason.CANCELLED):
        # Moving its memory to the host may take minutes: a cancelled job does not wait for that.
        state.to_stop.setdefault(attempt.key, reason)


def suspended(state: State, attempt: AttemptRecord) -> None:
    """The backend says that the attempt has left its devices: its job is pending for some of that node."""
    assert attempt.keeping is not None, f"{attempt.key} keeps nothing"
    booking, record = together(*attempt.keeping), state.jobs[attempt.job.id]
    kept = kept_of(attempt, booking, state.now)
    _close(state, attempt)
    state.capacity.hold(booking)
    record.kept = kept
    state.kept[record.job.id] = None
    take_request(record, request_of(state, record), state.tells_apart)
    _after_stop(state, record, attempt)
    if record.attempt is None and state.capacity.health[booking.node] is not Health.HEALTHY:
        discard(state, record, StopReason.HARDWARE)


def kept_ended(state: State, record: JobRecord, outcome: Outcome, reason: str) -> None:
    """A suspended attempt has ended, as when its processes were killed."""
    ended_by_itself(state, reopen(state, record), outcome, reason)


def discard(state: State, record: JobRecord, reason: StopReason) -> None:
    """Has what is left of a suspended attempt stopped."""
    want_stopped(state, reopen(state, record), reason)


def stop_failed(state: State, attempt: AttemptRecord) -> None:
    """Asks again later, less and less often: until the backend says that the devices are free, they are not."""
    attempt.stop_failures += 1
    delay_ms = backoff_ms(attempt.stop_failures)
    state.set_timer(state.now + delay_ms, "stop_again", attempt.job.id, attempt.number)


def start_failed(state: State, attempt: AttemptRecord, reason: str, retryable: bool) -> None:
    """The whole claim goes back; the job tries again after a while, or has failed."""
    record = state.jobs[attempt.job.id]
    record.start_failures += 1
    _close(state, attempt)
    if attempt.phase is Phase.STOPPING or attempt.stop_reason is not None or record.cancelled:
        _after_stop(state, record, attempt)
    elif retryable:
        _again(state, record, max(backoff_ms(record.start_failures), _pause_ms(record, attempt, state.now)))
    else:
        _finish(state, record, JobState.FAILED, reason)


def end(state: State, attempt: AttemptRecord) -> None:
    """An attempt that was to be stopped is gone."""
    _close(state, attempt)
    _after_stop(state, state.jobs[attempt.job.id], attempt)


def withdraw(state: State, key: str) -> None:
    """Takes back a claim for a job that goes before."""
    job, _, number = key.rpartition("/")
    attempt = state.attempt(job, int(number))
    if attempt is not None and attempt.phase is Phase.CLAIMED:
        attempt.stop_reason = StopReason.PREEMPTED
        _close(state, attempt)
        _again(state, state.jobs[job], 0)


def ended_by_itself(
    state: State, attempt: AttemptRecord, outcome: Outcome, reason: str, ended_ms: int | None = None
) -> None:
    """An attempt has ended without our asking, or before our asking reached it; at `ended_ms`, where that is known."""
    record = state.jobs[attempt.job.id]
    attempt.stop_reason = attempt.stop_reason or state.to_stop.get(attempt.key)
    at_ms = _possible_end_ms(state, attempt, ended_ms)
    _close(state, attempt, at_ms)
    _after_end(state, record, attempt, outcome, reason, at_ms)
    if record.final is not None:
        record.ended_ms = at_ms


def _possible_end_ms(state: State, attempt: AttemptRecord, ended_ms: int | None) -> int:
    """When an attempt ended by what its backend says: not before what is known of its run, and not after now."""
    if ended_ms is None:
        return state.now
    known_ms = max(attempt.created_ms, attempt.counted_ms, attempt.durable_ms)
    return min(max(ended_ms, known_ms), state.now)


def _after_end(
    state: State, record: JobRecord, attempt: AttemptRecord, outcome: Outcome, reason: str, at_ms: int
) -> None:
    if outcome is Outcome.SUCCEEDED:
        _finish(state, record, JobState.SUCCEEDED, reason)
    elif record.cancelled or attempt.stop_reason is not None:
        _after_stop(state, record, attempt)
    elif outcome is Outcome.LOST:
        remember(state, record, attempt)
        _again(state, record, _pause_ms(record, attempt, at_ms))
    else:
        remember(state, record, attempt)
        record.failures += 1
        if record.failures <= record.job.retry_limit:
            _again(state, record, max(backoff_ms(record.failures), _pause_ms(record, attempt, at_ms)))
        else:
            _finish(state, record, JobState.FAILED, reason)


def _pause_ms(record: JobRecord, attempt: AttemptRecord, at_ms: int) -> int:
    """How long a job waits at least whose attempt has ended badly: it would else preempt others again at each try, or
    keep what it took from them. Retries do not bound that, since a lost attempt or start costs none.
    """
    if attempt.executed_ms(at_ms) >= CRASH_MS:
        record.wasted = 0
    elif attempt.victims or record.wasted:
        record.wasted += 1
        return pause_ms(record.wasted)
    return 0


def _close(state: State, attempt: AttemptRecord, at_ms: int | None = None) -> None:
    """Frees everything that the attempt holds or has a claim on. It has run until `at_ms`, by default until now."""
    ended_ms = state.now if at_ms is None else at_ms
    capacity = state.capacity
    company_changed(state, attempt)
    keep_nothing(state, attempt)
    if state.cells is not None:
        state.cells.gone(attempt.key)
    for booking in attempt.bookings:
        if attempt.waits:
            capacity.unclaim(booking)
        else:
            if attempt.ceding or booking in attempt.removing:
                capacity.keep(booking)
            capacity.release(booking)
        depart(state, attempt, booking)
    if not attempt.ceding:
        state.use(attempt.job.queue, usage_of(attempt.staying), -1, ended_ms)
    state.standing.remove(attempt)
    forget_end(state, attempt)
    record = state.jobs[attempt.job.id]
    record.executed_before_ms += attempt.executed_ms(ended_ms)
    record.service_before_gpu_ms += attempt.service_gpu_ms(ended_ms)
    record.stopped_ms = ended_ms
    record.attempt = None
    if attempt.phase is not Phase.CLAIMED:
        forget_kept(state, record)
    key = attempt.key
    del state.runs[attempt.group][key]
    state.adjustments.pop(attempt.job.id, None)
    state.to_stop.pop(key, None)
    present: dict[str, AttemptRecord]
    for present in (
        state.waiting_claims,
        state.preparing,
        state.elastic,
        state.saving,
        state.revocable,
        state.leaving,
    ):
        if present:
            present.pop(key, None)


def _after_stop(state: State, record: JobRecord, attempt: AttemptRecord) -> None:
    if record.cancelled:
        _finish(state, record, JobState.CANCELLED, record.end_reason or "cancelled")
    elif attempt.stop_reason is StopReason.MAX_RUN:
        _finish(state, record, JobState.FAILED, "ran longer than max_run")
    elif attempt.stop_reason is StopReason.OUTDONE:
        _finish(state, record, JobState.CANCELLED, "outdone by others of its sweep")
    elif attempt.stop_reason is StopReason.MISPLACED:
        record.start_failures += 1
        _again(state, record, backoff_ms(record.start_failures))
    else:
        if attempt.stop_reason in GOES_ON:
            remember(state, record, attempt)
        else:
            forget(state, record)
        if attempt.stop_reason is StopReason.PREEMPTED:
            record.preemptions += 1
        _again(state, record, 0)


def _again(state: State, record: JobRecord, delay_ms: int) -> None:
    """Pending again, in the same place as before."""
    if record.cancelled:
        _finish(state, record, JobState.CANCELLED, record.end_reason or "cancelled")
        return
    if delay_ms:
        record.not_before_ms = state.now + delay_ms
        state.set_timer(record.not_before_ms, "line_up", record.job.id)
    expect(state, record)
    enqueue(state, record)


def _finish(state: State, record: JobRecord, final: JobState, reason: str) -> None:
    if record.kept is not None:
        # Its processes go first; that is told when they are gone.
        discard(state, record, StopReason.CANCELLED)
        return
    leave(state, record)
    forget(state, record)
    state.scaled.pop(record.job.id, None)
    record.final = final
    calm(state, record)
    record.ended_ms = state.now
    record.end_reason = reason
    if state.policy.estimate_permille is not None and record.executed_before_ms:
        state.history.add(record.job, record.executed_before_ms)
    give_up_array_seat(state, record)
    call_array(state, record.job.array_of)
    call_dependents(state, record.job.id)


def cancel(state: State, record: JobRecord, reason: str) -> None:
    """Ends a job as soon as its devices are free. The reason is told from now on."""
    record.cancelled = True
    record.end_reason = reason
    if record.attempt is None:
        _finish(state, record, JobState.CANCELLED, record.end_reason or "cancelled")
    else:
        want_stopped(state, record.attempt, StopReason.CANCELLED)
