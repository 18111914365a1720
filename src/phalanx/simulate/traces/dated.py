"""Dated jobs: jobs of logs that tell times of day, until all are known and count from the first submission."""

from __future__ import annotations

from dataclasses import replace

from phalanx.simulate.trace import TraceJob


def since_first(jobs: list[TraceJob]) -> list[TraceJob]:
    """The jobs with their submissions counted from the first of them."""
    first_ms = min((job.submit_ms for job in jobs), default=0)
    return [replace(job, submit_ms=job.submit_ms - first_ms) for job in jobs]
