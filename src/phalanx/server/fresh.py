"""A job that was just taken, as everybody will see it in the view."""

from __future__ import annotations

from typing import Any

from phalanx.engine.records import JobRecord
from phalanx.engine.state import State


def fresh_item(state: State, record: JobRecord) -> dict[str, Any]:
    """What a list shows of a job that has not been decided on yet."""
    job = record.job
    reason = state.reason(job.id)
    return {
        "id": job.id,
        "name": job.name,
        "queue": job.queue,
        "user": job.user,
        "kind": job.kind.value,
        "priority": job.priority,
        "state": record.state.value,
        "reason": reason.value if reason is not None else None,
        "held": record.held,
        "gpus": record.gpus,
        "nodes": [],
        "submitted_ms": record.submitted_ms,
        "started_ms": None,
        "ended_ms": None,
        "expected_end_ms": None,
        "attempts": 0,
        "preemptions": 0,
        "exit_code": None,
        "end_reason": "",
        "array_of": job.array_of,
        "labels": dict(job.labels),
        "version": state.seq,
    }
