"""Footprints: what a job has in the memory of each of its GPUs within a step, and how long that takes, as it says."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite

from phalanx.workload.gang import Role
from phalanx.workload.job import Job

STEP_LABEL = "step_ms"
"""The label of a job that says how long a step takes it, with all it asked for."""

LOW_LABEL = "gpu_memory_low_gb"
"""The label of a job that says what of its `gpu_memory_gb` it still has between two steps."""


@dataclass(frozen=True, slots=True)
class Footprint:
    """The most and the least that a job has on a GPU within a step; the least is at its end.

    One that does not say how much less it has there has the same all the time.
    """

    high_gb: float
    low_gb: float


def footprint_of(job: Job) -> Footprint | None:
    """The footprint of a job; None if it does not say what memory it needs."""
    high_gb = _most_gb(job.gang.roles)
    if not high_gb:
        return None
    low_gb = _number(job, LOW_LABEL)
    return Footprint(high_gb, high_gb if low_gb is None else min(low_gb, high_gb))


def step_ms_of(job: Job) -> float | None:
    """How long a step takes a job; None if it does not say."""
    return _number(job, STEP_LABEL) or None


def _number(job: Job, label: str) -> float | None:
    """A label that is a number; None if there is none."""
    for name, value in job.labels:
        if name == label:
            try:
                number = float(value)
            except ValueError:
                return None
            return number if isfinite(number) and number >= 0 else None
    return None


def _most_gb(roles: tuple[Role, ...]) -> float:
    most_gb = 0.0
    for role in roles:
        gb = _most_gb(role.members) if role.members else role.task.gpu_memory_gb
        most_gb = max(most_gb, gb)
    return most_gb
