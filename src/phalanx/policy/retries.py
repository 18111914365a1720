"""Retries: which job is over for good, as it is known from events alone. One that fails may be tried again."""

from __future__ import annotations

from phalanx.policy.policy import Memory
from phalanx.protocol.event import AttemptEnded, Event, Failed, JobCancelled, JobChanged, JobSubmitted, Outcome


def job_over(memory: Memory, event: Event) -> str | None:
    """The job that an event is the end of: of a failure only if there is no retry left. Keeps count of failures."""
    match event:
        case JobSubmitted() | JobChanged():
            memory.setdefault("retries", {})[event.job.id] = event.job.retry_limit
            return None
        case JobCancelled():
            over = event.job
        case AttemptEnded() if event.outcome is Outcome.SUCCEEDED or (
            event.outcome is Outcome.FAILED and not _again(memory, event)
        ):
            over = event.job
        case Failed() if not event.retryable:
            over = event.action.job
        case _:
            return None
    for counts in ("retries", "failures"):
        memory.get(counts, {}).pop(over, None)
    return over


def _again(memory: Memory, event: AttemptEnded) -> bool:
    failures = memory.setdefault("failures", {})
    failures[event.job] = failures.get(event.job, 0) + 1
    return bool(failures[event.job] <= memory.get("retries", {}).get(event.job, 0))
