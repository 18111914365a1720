"""What a job that is planned costs others, and whether it would be on time."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any

import msgspec

from phalanx.engine.state.state import State
from phalanx.engine.transaction.suspension import loss_gpu_ms
from phalanx.engine.why.change import Other
from phalanx.engine.why.deadline import outlook
from phalanx.words.deadline import deadline_words
from phalanx.words.phrases import how_long
from phalanx.workload.job import Job


def leaving_told(state: State, leaving: Sequence[Other], seen: Container[str]) -> list[dict[str, Any]]:
    """Jobs that are stopped for another, each with the GPU time that it loses, for a user that may see some queues."""
    return [
        msgspec.to_builtins(each.seen_from(seen)) | {"lost_gpu_ms": _lost_gpu_ms(state, each.job)} for each in leaving
    ]


def _lost_gpu_ms(state: State, job: str) -> int:
    attempt = state.jobs[job].attempt
    return 0 if attempt is None else loss_gpu_ms(state, attempt, state.now)


def deadline_told(state: State, job: Job, seen: Container[str]) -> dict[str, Any] | None:
    """Whether a job that is pending in the State can meet its deadline; None if it has none."""
    found = outlook(state, state.record(job.id))
    if found is None:
        return None
    says = deadline_words(state, job.id, seen).replace(f"job {job.id} ", "it ", 1)
    can_be_met = found.can_be_met if found.length_known else None
    return {"deadline_ms": job.deadline_ms, "can_be_met": can_be_met, "expected_end_ms": None, "says": says}


def with_expected_end(told: dict[str, Any] | None, job: Job, start_ms: int | None) -> dict[str, Any] | None:
    """The same with when the job is expected to end. A deadline that could be met may be missed by what is planned."""
    if told is None or start_ms is None or job.duration_ms is None:
        return told
    end_ms, deadline_ms = start_ms + job.duration_ms, told["deadline_ms"]
    late = told["can_be_met"] and end_ms > deadline_ms
    says = f"{told['says']}; as things stand it ends {how_long(end_ms, deadline_ms)} late" if late else told["says"]
    return {**told, "expected_end_ms": end_ms, "says": says}
