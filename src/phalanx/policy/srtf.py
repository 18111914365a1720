"""srtf: the least remaining time first. It knows durations, so it is a bound to compare others with."""

from __future__ import annotations

from phalanx.policy.about import About
from phalanx.policy.parameters import Parameters
from phalanx.policy.policy import Key, Policy, Targets
from phalanx.policy.sjf import MEASURES, duration_ms, measure
from phalanx.policy.view import JobView, Moment


def srtf(parameters: Parameters) -> Policy:
    """`by` says what is least: remaining time, GPUs, or remaining time times GPUs. Who is behind is stopped."""
    by = parameters.choice("by", MEASURES)

    def order(job: JobView, at: Moment) -> Key:
        remaining_ms = max(duration_ms(job) - job.executed_ms(at.now), 0)
        return (measure(by, remaining_ms, job.gpus), job.submitted_ms, job.number)

    targets = Targets.RANK if by == "gpus" else Targets.RISE
    return Policy("srtf", order=order, targets=targets, parameters=parameters.given, about=ABOUT)


ABOUT = About(
    summary="least remaining time first, stopping who has more; knows durations",
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
