"""Updating a pending job: another priority, another queue, other times."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from phalanx.document.units import DURATION_MAX_MS, TIME_MAX_MS, duration_ms, time_ms
from phalanx.server.loop.wire import UpdateJobs
from phalanx.server.refusal import Refusal
from phalanx.workload.job import PRIORITY_MAX, PRIORITY_MIN, Job

DURATIONS, MOMENTS = ("duration", "max_run"), ("begin", "deadline")
NONE = "none"
"""What takes a time away."""


def times_of(said: Mapping[str, str], now_ms: int) -> dict[str, int | None]:
    """Times as a job file has them, in milliseconds by the key of a job; what is none is refused."""
    return {f"{key}_ms": None if text == NONE else _time_of(key, text, now_ms) for key, text in said.items()}


def _time_of(key: str, text: str, now_ms: int) -> int:
    is_duration = key in DURATIONS
    found = duration_ms(text) if is_duration else time_ms(text, now_ms)
    if found is None or not 0 < found <= (DURATION_MAX_MS if is_duration else TIME_MAX_MS):
        such = "a time such as 90s, 4h or 2d" if is_duration else "a time such as +2h or 2030-01-31T08:00Z"
        raise Refusal("invalid", f"{key}: expected {such}, or none, got {text!r}")
    return found


def updated(job: Job, body: UpdateJobs) -> Job:
    """The job as it is to be; what no job file could say is refused."""
    changes: dict[str, Any] = dict(body.times)
    if body.priority is not None:
        if not PRIORITY_MIN <= body.priority <= PRIORITY_MAX:
            raise Refusal("invalid", f"priority: expected {PRIORITY_MIN} to {PRIORITY_MAX}, got {body.priority}")
        changes["priority"] = body.priority
    if body.queue is not None:
        changes["queue"] = body.queue
    changed = replace(job, **changes)
    begin_ms, deadline_ms = changed.begin_ms, changed.deadline_ms
    if begin_ms is not None and deadline_ms is not None and deadline_ms <= begin_ms:
        raise Refusal("invalid", f"job {job.id}: expected a deadline after its begin time; set both")
    return changed


def words_of(body: UpdateJobs) -> str:
    """What is changed, for the audit log."""
    said = {"priority": body.priority, "queue": body.queue}
    pairs = [*((key, value) for key, value in said.items() if value is not None), *body.times.items()]
    return ", ".join(f"{key} {NONE if value is None else value}" for key, value in pairs)
