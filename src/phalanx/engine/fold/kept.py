"""Suspended attempts: what is kept of one, and how it is an attempt again."""

from __future__ import annotations

from phalanx.engine.fold.enqueue import leave
from phalanx.engine.fold.holding import arrive, expect_end
from phalanx.engine.fold.request import take_request
from phalanx.engine.state.records import AttemptRecord, JobRecord, Kept, usage_of
from phalanx.engine.state.state import State
from phalanx.engine.transaction.suspension import (
    attempt_of,
    request_of,
)
from phalanx.policy.policy import Targets


def keep_nothing(state: State, attempt: AttemptRecord) -> None:
    if attempt.keeping is not None:
        own, moved = attempt.keeping
        state.capacity.unclaim(own)
        state.capacity.release(moved)
        attempt.keeping = None


def recall(attempt: AttemptRecord, kept: Kept | None) -> None:
    """Has an attempt that goes on know what it has done: that is lost if it is stopped before it has its devices."""
    assert kept is not None, f"nothing is kept of {attempt.key}"
    attempt.device_memory_mb, attempt.unsaved_sizes = kept.device_memory_mb, kept.unsaved_sizes
    attempt.durable_ms, attempt.ran_before_ms = kept.durable_ms, kept.ran_ms


def go_on(state: State, record: JobRecord, attempt: AttemptRecord, kept: Kept) -> None:
    """A suspended attempt runs again: what was kept for it is given back, but for the memory that it asked for."""
    recall(attempt, kept)
    state.use(record.job.queue, usage_of(attempt.bookings), -1)
    for booking in attempt.bookings:
        state.capacity.release(booking)
    forget_kept(state, record)
    attempt.job = record.asked
    attempt.bookings = state.bookings(record.asked, attempt.placement)
    for booking in attempt.bookings:
        state.capacity.hold(booking)
    state.use(record.job.queue, usage_of(attempt.bookings), 1)


def forget_kept(state: State, record: JobRecord) -> None:
    """Nothing is kept for a job any more: it asks for what it was submitted with."""
    if record.kept is not None:
        state.capacity.release(record.kept.booking)
        record.kept = None
        del state.kept[record.job.id]
        leave(state, record)
        take_request(record, request_of(state, record), state.tells_apart)


def reopen(state: State, record: JobRecord) -> AttemptRecord:
    """The attempt of which something is kept, which holds that and no devices, so that it can be ended as any other."""
    kept = record.kept
    assert kept is not None, f"nothing is kept of job {record.job.id}"
    leave(state, record)
    record.kept = None
    del state.kept[record.job.id]
    take_request(record, request_of(state, record), state.tells_apart)
    attempt = attempt_of(record, kept, state.now)
    record.attempt = attempt
    arrive(state, attempt, kept.booking)
    state.runs.setdefault(attempt.group, {})[attempt.key] = attempt
    state.use(record.job.queue, usage_of(attempt.bookings), 1)
    expect_end(state, attempt)
    if state.policy.targets is not Targets.KEEP:
        state.stand(attempt, state.order(record))
    return attempt
