"""Rows of jobs, attempts and nodes, as the State has them."""

from __future__ import annotations

from typing import Any

import msgspec

from phalanx.engine.state.losses import FOR_GOOD, loss_of
from phalanx.engine.state.records import FOREVER_MS, AttemptRecord, JobRecord, Phase, estimate_ms
from phalanx.engine.state.state import State
from phalanx.protocol.reason import Reason
from phalanx.server.view.devices import devices_on

Row = dict[str, Any]

_json = msgspec.json.Encoder()


def job_row(record: JobRecord, shape: str, version: int, submit_seq: int = -1) -> Row:
    """A job. `shape` names its class while it is enqueued; `submit_seq` counts for a new one only."""
    job, attempt = record.job, record.attempt
    return {
        "number": record.number,
        "id": job.id,
        "name": job.name,
        "queue": job.queue,
        "user": job.user,
        "kind": job.kind.value,
        "priority": job.priority,
        "state": record.state.value,
        "held": record.held,
        "wait_reason": _wait_reason(record),
        "shape": shape,
        "gpus": record.gpus,
        "nodes": text_of(attempt.placement.nodes) if attempt is not None else "[]",
        "submitted_ms": record.submitted_ms,
        "started_ms": record.first_start_ms,
        "running_since_ms": record.running_since_ms,
        "executed_before_ms": record.executed_before_ms,
        "executed_before_gpu_ms": record.service_before_gpu_ms,
        "ended_ms": record.ended_ms,
        "expected_end_ms": _expected_end_ms(record),
        "attempts": record.attempts,
        "preemptions": record.preemptions,
        "exit_code": None,
        "end_reason": record.end_reason,
        "array_of": job.array_of,
        "labels": text_of(dict(job.labels)) if job.labels else "{}",
        "submit_seq": submit_seq,
        "version": version,
    }


def attempt_row(attempt: AttemptRecord) -> Row:
    """An attempt that has not ended."""
    return {
        "job": attempt.job.id,
        "number": attempt.number,
        "phase": attempt.phase.value,
        "created_ms": attempt.created_ms,
        "started_ms": attempt.started_ms if attempt.started_ms >= 0 else None,
        "ended_ms": None,
        "outcome": None,
        "exit_code": None,
        "reason": "",
        "nodes": text_of(attempt.placement.nodes),
        "slots": slots_text(attempt),
        "step": None,
        "durable_step": None,
        "lost_ms": None,
        "lost_gpu_ms": None,
    }


def slots_text(attempt: AttemptRecord) -> str:
    """Where each task of an attempt is, as the store keeps it."""
    slots = attempt.placement.slots
    return text_of([{"rank": s.rank, "role": s.role, "node": s.node, "devices": s.devices} for s in slots])


def ended_row(attempt: AttemptRecord, ended_ms: int, step: int | None) -> Row:
    """An attempt that has ended, with the step that it had come to, as far as it has said so, and what was lost."""
    lost = loss_of(attempt, ended_ms) if attempt.stop_reason not in FOR_GOOD else None
    return {
        **attempt_row(attempt),
        "phase": Phase.ENDED.value,
        "ended_ms": ended_ms,
        "step": step,
        "durable_step": attempt.durable_step or None,
        "lost_ms": lost.ms if lost is not None else None,
        "lost_gpu_ms": lost.gpu_ms if lost is not None else None,
    }


def _wait_reason(record: JobRecord) -> str:
    """Why a job is pending that is not enqueued; of those that are, `classes` tells."""
    if record.final is not None:
        return ""
    if record.attempt is not None:
        if record.attempt.phase is not Phase.CLAIMED:
            return ""
        return (Reason.MAKING_ROOM if record.attempt.waits else Reason.PREPARING).value
    return record.parked.value if record.parked is not None else ""


def _expected_end_ms(record: JobRecord) -> int | None:
    length_ms = estimate_ms(record.job)
    if record.attempt is None or record.attempt.started_ms < 0 or length_ms >= FOREVER_MS:
        return None
    return record.attempt.started_ms + max(length_ms - record.executed_before_ms, 0)


def text_of(value: object) -> str:
    """A value as the store keeps it."""
    return _json.encode(value).decode()


def node_row(state: State, name: str) -> Row:
    """What happens on a node."""
    number = state.topology.number[name]
    foreign = state.capacity.foreign.get(number)
    used, there = 0 if foreign is None else foreign.devices, []
    for attempt in state.on_node.get(number, {}).values():
        there.append(attempt.job.id)
        if not attempt.waits:
            for booking in attempt.bookings:
                used |= booking.devices if booking.node == number else 0
    return {
        "name": name,
        "health": state.capacity.health[number].value,
        "gpus_used": used.bit_count(),
        "jobs": text_of(there),
        "devices": text_of(devices_on(state, number)),
        "seq": state.seq,
    }
