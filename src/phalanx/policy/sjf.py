"""sjf: the shortest job first, as its duration says. No job is stopped for another."""

from __future__ import annotations

from phalanx.policy.about import About
from phalanx.policy.parameters import Parameters
from phalanx.policy.policy import Key, Policy
from phalanx.policy.view import JobView, Moment

MEASURES = ("time", "gpus", "gpu_time")

UNKNOWN_MS = 1 << 60
"""A job that does not say how long it takes is longer than all that do."""


def sjf(parameters: Parameters) -> Policy:
    """`by` says what short means: the least time, the fewest GPUs, or the least of their product."""
    by = parameters.choice("by", MEASURES)

    def order(job: JobView, at: Moment) -> Key:
        return (measure(by, duration_ms(job), job.gpus), job.submitted_ms, job.number)

    return Policy("sjf", order=order, parameters=parameters.given, about=ABOUT)


def duration_ms(job: JobView) -> int:
    """How long the job says it takes."""
    return job.job.duration_ms if job.job.duration_ms is not None else UNKNOWN_MS


def measure(by: str, time_ms: int, gpus: int) -> int:
    """What is compared."""
    if by == "gpus":
        return gpus
    return time_ms * gpus if by == "gpu_time" else time_ms


ABOUT = About(
    summary="shortest job first, by the duration it says it takes",
    prior_knowledge="duration",
    foresight=True,
    algorithm="shortest job first",
    decides_by="duration, GPUs or both",
    dimensions="temporal, spatial or both",
    preemption="no",
    starvation="long jobs may starve",
    placement="packed",
    source="Conway, Maxwell and Miller, Theory of Scheduling, 1967",
)
