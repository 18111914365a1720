"""srtf: the least remaining time first. It knows durations, so it is a bound to compare other policies with."""

from __future__ import annotations

from phalanx.policy.about import About
from phalanx.policy.parameters import Parameters
from phalanx.policy.policy import Key, Policy, Targets
from phalanx.policy.sjf import MEASURES, duration_ms
from phalanx.policy.view import JobView, Moment


def srtf(parameters: Parameters) -> Policy:
    """`by` says what is least: remaining time, GPUs, or remaining time times GPUs. A job that is behind is stopped."""
    by = parameters.choice("by", MEASURES)

    return Policy(
        "srtf",
        order=ORDERS[by],
        targets=TARGETS[by],
        parameters=parameters.given,
        about=ABOUT,
    )


# Asked of every running job at every decision: each asks for no more than it needs.
def _by_time(job: JobView, at: Moment) -> Key:
    return (remaining_ms(job, at.now), job.submitted_ms, job.number)


def _by_gpus(job: JobView, at: Moment) -> Key:
    return (job.gpus, job.submitted_ms, job.number)


def _by_gpu_time(job: JobView, at: Moment) -> Key:
    return (remaining_ms(job, at.now) * job.gpus, job.submitted_ms, job.number)


def remaining_ms(job: JobView, now: int) -> int:
    """How long the job still takes, as its duration says."""
    remaining = duration_ms(job) - job.executed_ms(now)
    return remaining if remaining > 0 else 0


ORDERS = {"time": _by_time, "gpus": _by_gpus, "gpu_time": _by_gpu_time}
TARGETS = {"time": Targets.REMAINING, "gpus": Targets.RANK, "gpu_time": Targets.RISE}

ABOUT = About(
    summary="least remaining time first, stopping jobs with more; knows durations",
    prior_knowledge="duration",
    foresight=True,
    algorithm="shortest remaining time first",
    decides_by="remaining time, GPUs or both",
    dimensions="temporal, spatial or both",
    preemption="yes, by checkpoint",
    starvation="long jobs may starve",
    placement="packed",
    source="Schrage, Operations Research 1968",
)
