"""A job that was just taken, as the view will show it."""

from __future__ import annotations

from typing import Any

from phalanx.engine.state.records import JobRecord
from phalanx.engine.state.state import State
from phalanx.placement.place import ever
from phalanx.protocol.reason import Reason


def fresh_item(state: State, record: JobRecord) -> dict[str, Any]:
    """What a list shows of a job that has not been decided on yet."""
    job = record.job
    reason = _reason(state, record)
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
        "told_start_ms": None,
        "started_ms": None,
        "running_since_ms": None,
        "executed_before_ms": 0,
        "executed_before_gpu_ms": 0,
        "ended_ms": None,
        "expected_end_ms": None,
        "attempts": 0,
        "preemptions": 0,
        "lost_gpu_ms": 0,
        "exit_code": None,
        "end_reason": "",
        "array_of": job.array_of,
        "labels": dict(job.labels),
        "version": state.seq,
    }


def _reason(state: State, record: JobRecord) -> Reason | None:
    """Why it waits. That no part of the cluster could ever hold it needs no decision to be known."""
    reason = state.reason(record.job.id)
    return Reason.NEVER_FITS if reason is Reason.UNDECIDED and not ever(state.fit, record.asked) else reason
