"""Present jobs: those that compete for devices when a solver is asked."""

from __future__ import annotations

from collections.abc import Iterator

from phalanx.engine.state.records import JobRecord, StopReason
from phalanx.engine.state.state import State

FINAL_REASONS = (StopReason.CANCELLED, StopReason.MAX_RUN, StopReason.OUTDONE)
"""Reasons of a stop after which a job does not come back."""


def present_jobs(state: State) -> Iterator[JobRecord]:
    """Jobs that are pending, or have devices that they can be made to give up."""
    for waiting in state.classes.values():
        for _, job in waiting.jobs:
            yield state.jobs[job]
    for attempt in state.attempts_present():
        record = state.jobs[attempt.job.id]
        reason = attempt.stop_reason or state.to_stop.get(attempt.key)
        if attempt.stoppable and not record.cancelled and reason not in FINAL_REASONS:
            yield record
