"""Patience: no job is passed for ever. Of the jobs of a queue that are pending longer than its patience, the one that
has waited longest goes first. Devices are reserved for it, as for a job that is past its `max_wait`.

One job of a queue at a time: if all of them went first, the order of the policy would be that of submission.

A queue is looked at before a record is folded in and after it, once something has changed for it: it has lost its first
job, a job of it has become eligible or its class another verdict, or no job goes first and the patience with another is
over.
"""

from __future__ import annotations

from bisect import bisect_left, insort

from phalanx.engine.fold.enqueue import rekey
from phalanx.engine.fold.holding import limit_waits
from phalanx.engine.state.records import FOREVER_MS, JobRecord
from phalanx.engine.state.state import State
from phalanx.policy.policy import Minds
from phalanx.protocol.plan import Verdict
from phalanx.protocol.reason import Reason

HOPELESS = (Reason.NEVER_FITS, Reason.QUOTA, Reason.BUDGET)
"""Reasons of pending jobs for which no devices need be reserved: they could not have them."""


def expect(state: State, record: JobRecord) -> None:
    """Has a job that was submitted, or has stopped, go first in its turn once the patience of its queue is over."""
    _forget(state, record)
    # Its max_wait is for its first start. It is not passed for ever after that either.
    is_bounded = record.job.max_wait_ms is not None and record.first_start_ms is None
    if state.patience_ms(record.job.queue) and not is_bounded and record.final is None:
        record.passed_ms = record.passed_since_ms
        insort(state.passed.setdefault(record.job.queue, []), (record.passed_ms, record.number, record.job.id))
        state.look_for_first(record.job.queue, record.passed_ms)


def expect_all(state: State) -> None:
    """The same for all pending jobs, where the patience of queues or what may go first has changed."""
    for record in state.jobs.values():
        if record.running_since_ms is None and record.final is None:
            expect(state, record)


def calm(state: State, record: JobRecord) -> None:
    """A job has started, or never will, or has left its queue: another of that may go first."""
    _forget(state, record)
    if record.impatient:
        _step_back(state, record)
        look(state)


def is_moot(state: State, queue: str, at_ms: int) -> bool:
    """Whether a queue need not be looked at then: a job goes first, or the next may at another moment."""
    return state.patience_timers.get(queue) != at_ms


def note_verdict(state: State, verdict: Verdict) -> None:
    """A class has another verdict: jobs of it may go first from now on."""
    record = state.jobs[verdict.job]
    if not state.passed or verdict.reason in HOPELESS or state.classes[record.shape].verdict not in HOPELESS:
        return
    for queue in (record.job.queue,) if state.tells_apart is Minds.QUEUES else state.passed:
        state.look_for_first(queue)


def look(state: State) -> None:
    """Has a job go first of each queue for which something has changed, if any may."""
    while state.looks_for_first:
        queue, since_ms = state.looks_for_first.popitem()
        if state.passed.get(queue) and not _has_first(state, queue):
            _look_at(state, queue, since_ms)


def _look_at(state: State, queue: str, since_ms: int) -> None:
    """Has the job go first that has waited longest of those that may, from a moment on; or looks again later."""
    passed, patience_ms = state.passed[queue], state.patience_ms(queue)
    for at in range(bisect_left(passed, (since_ms,)), len(passed)):
        record = state.jobs[passed[at][2]]
        over_ms = passed[at][0] + patience_ms
        if over_ms > state.now:
            _look_again(state, queue, over_ms)
            return
        limit_waits(state)
        if state.policy.lets_none_pass or state.cells is not None:
            return
        if record.queued is not None and state.classes[record.shape].verdict not in HOPELESS:
            _go_first(state, record)
            return


def _look_again(state: State, queue: str, at_ms: int) -> None:
    if at_ms < state.patience_timers.get(queue, FOREVER_MS):
        state.patience_timers[queue] = at_ms
        state.set_timer(at_ms, "patience", queue)


def _go_first(state: State, record: JobRecord) -> None:
    state.patience_timers.pop(record.job.queue, None)
    state.first_impatient[record.job.queue] = record.job.id
    record.impatient = record.overdue = True
    rekey(state, record)


def _has_first(state: State, queue: str) -> bool:
    """Whether a job of a queue goes first: not one that was put on hold since, or that waits for another job."""
    first = state.first_impatient.get(queue)
    if first is None:
        return False
    record = state.jobs[first]
    if record.queued is None and record.attempt is None:
        _step_back(state, record)
    return record.impatient


def _step_back(state: State, record: JobRecord) -> None:
    record.impatient = record.overdue = False
    del state.first_impatient[record.job.queue]
    state.look_for_first(record.job.queue)


def _forget(state: State, record: JobRecord) -> None:
    """A job is not among those any more that others may pass."""
    if record.passed_ms is None:
        return
    queue = record.job.queue
    passed = state.passed[queue]
    del passed[bisect_left(passed, (record.passed_ms, record.number, record.job.id))]
    if state.patience_timers.get(queue) == record.passed_ms + state.patience_ms(queue):
        del state.patience_timers[queue]
        state.look_for_first(queue, record.passed_ms)
    record.passed_ms = None
