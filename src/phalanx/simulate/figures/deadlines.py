"""Deadlines: how many jobs that had one were done by then, and how late the rest were."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import Any

from phalanx.engine.state.records import JobState
from phalanx.simulate.figures.result import JobResult


def deadline_counts(
    jobs: Sequence[JobResult], deadlines_s: Mapping[str, float], never_fit: Container[str], end_s: float
) -> dict[str, Any]:
    """Of jobs with a deadline: how many there are, met theirs, missed it, or may still meet it when the run ends."""
    held_to = _held_to(jobs, deadlines_s)
    met = sum(job.state == JobState.SUCCEEDED and _late_s(job, deadline_s, end_s) == 0 for job, deadline_s in held_to)
    still_open = sum(
        not JobState(job.state).final and end_s <= deadline_s and job.job_id not in never_fit
        for job, deadline_s in held_to
    )
    return {"jobs": len(held_to), "met": met, "missed": len(held_to) - met - still_open, "open": still_open}


def late_s(jobs: Sequence[JobResult], deadlines_s: Mapping[str, float], end_s: float) -> list[float]:
    """How long after its deadline each ended, 0 if before; one that has not ended is as late as the run has come."""
    return [_late_s(job, deadline_s, end_s) for job, deadline_s in _held_to(jobs, deadlines_s)]


def _late_s(job: JobResult, deadline_s: float, end_s: float) -> float:
    return max((job.end_s if job.end_s is not None else end_s) - deadline_s, 0.0)


def _held_to(jobs: Sequence[JobResult], deadlines_s: Mapping[str, float]) -> list[tuple[JobResult, float]]:
    """Jobs and their deadlines. One that failed or was cancelled before it was due could not have met it at all."""
    due = [(job, deadlines_s[job.job_id]) for job in jobs if job.job_id in deadlines_s]
    return [(job, deadline_s) for job, deadline_s in due if not _is_off(job, deadline_s)]


def _is_off(job: JobResult, deadline_s: float) -> bool:
    unfinished = job.state in (JobState.FAILED, JobState.CANCELLED)
    return unfinished and job.end_s is not None and job.end_s <= deadline_s
