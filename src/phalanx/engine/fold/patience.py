"""Patience: no job is passed for ever. Of the jobs of a queue that are pending longer than its patience, the one that
has waited longest goes first. Devices are reserved for it, as for a job that is past its `max_wait`.

One job of a queue at a time: if all of them went first, the order of the policy would be that of submission.
"""

from __future__ import annotations

from phalanx.engine.fold.enqueue import rekey
from phalanx.engine.state.records import JobRecord
from phalanx.engine.state.state import State
from phalanx.protocol.reason import Reason

HOPELESS = (Reason.NEVER_FITS, Reason.QUOTA, Reason.BUDGET)
"""Reasons of pending jobs for which no devices need be reserved: they could not have them."""


def expect(state: State, record: JobRecord) -> None:
    """Has a job that was submitted, or has stopped, be looked at once the patience of its queue is over."""
    patience_ms = state.patience_ms(record.job.queue)
    # Its max_wait is for its first start. It is not passed for ever after that either.
    is_bounded = record.job.max_wait_ms is not None and record.first_start_ms is None
    if patience_ms and not is_bounded and record.final is None:
        state.set_timer(max(record.passed_since_ms + patience_ms, state.now), "patience", record.job.id)


def expect_all(state: State) -> None:
    """The same for all pending jobs, where the patience of queues has changed."""
    for record in state.jobs.values():
        if record.attempt is None and not record.impatient:
            expect(state, record)


def is_moot(state: State, record: JobRecord, at_ms: int) -> bool:
    """Whether a job need not be looked at then: it is over or runs, or has run or been given more time since."""
    if record.final is not None or record.running_since_ms is not None:
        return True
    patience_ms = state.patience_ms(record.job.queue)
    return not patience_ms or at_ms < record.passed_since_ms + patience_ms


def tire(state: State, record: JobRecord) -> None:
    """A job has waited longer than the patience of its queue."""
    record.impatient = True
    state.impatient.setdefault(record.job.queue, {})[record.job.id] = None
    # With thousands of such jobs in a queue that is at its limit, all of them are looked at only if it may help.
    if _may_go_first(state, record):
        call(state, record.job.queue)
    patience_ms = state.patience_ms(record.job.queue)
    if not record.overdue and patience_ms:
        # Its quota may be used up for now, or another goes first: it is looked at again.
        state.set_timer(state.now + patience_ms, "patience", record.job.id)


def calm(state: State, record: JobRecord) -> None:
    """A job has started, or never will: another of its queue may go first."""
    if record.impatient:
        record.impatient = record.overdue = False
        del state.impatient[record.job.queue][record.job.id]
        call(state, record.job.queue)


def call(state: State, queue: str) -> None:
    """Has the job of a queue go first that has waited longest, unless another does."""
    if _has_first(state, queue):
        return
    may_go = [each for job in state.impatient.get(queue, {}) if _may_go_first(state, each := state.jobs[job])]
    if may_go:
        record = min(may_go, key=lambda record: (record.passed_since_ms, record.number))
        state.first_impatient[queue] = record.job.id
        record.overdue = True
        rekey(state, record)


def _has_first(state: State, queue: str) -> bool:
    """Whether a job of a queue goes first: not one that was put on hold since, or that waits for another job."""
    record = state.jobs.get(state.first_impatient.get(queue, ""))
    if record is None or not record.impatient or record.job.queue != queue:
        return False
    record.overdue = record.overdue and (record.queued is not None or record.attempt is not None)
    return record.overdue


def _may_go_first(state: State, record: JobRecord) -> bool:
    if state.policy.lets_none_pass or state.cells is not None or record.queued is None:
        return False
    return state.classes[record.shape].verdict not in HOPELESS
