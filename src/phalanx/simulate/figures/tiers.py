"""Tiers: whether jobs had what their tiers promise, a fraction of the GPU time they ask for in any window of time."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from phalanx.engine.state.records import JobState
from phalanx.policy.parameters import Parameters
from phalanx.policy.policy import Policy
from phalanx.policy.promises import WHOLE, Promise, promises_of
from phalanx.simulate.figures.ledger import Ran
from phalanx.simulate.figures.result import JobResult
from phalanx.workload.tier import Tier

KEEPS = "singularity"
"""The policy that promises; jobs under any other are judged by what it would promise by default."""


@dataclass(frozen=True, slots=True)
class Promised:
    """What tiers promise to which jobs, and when each of those ran; one that was not followed is judged as a whole."""

    tiers: Mapping[str, Tier]
    promises: Mapping[Tier, Promise]
    runs: Mapping[str, Sequence[Ran]] = field(default_factory=dict)


def promises_under(policy: Policy) -> dict[Tier, Promise]:
    """What tiers promise under a policy."""
    return promises_of(Parameters(KEEPS, policy.parameters if policy.name == KEEPS else {}))


def tier_figures(
    jobs: Sequence[JobResult], promised: Promised, alone_s: Mapping[str, float], end_s: float
) -> dict[str, dict[str, Any]]:
    """By tier: how many jobs, what is promised, the mean GPU fraction, the share of jobs that had theirs, and how many
    GPUs all that was promised at a time took at most, to this tier and those above it.

    The fraction of a job is how long it would have taken with all its GPUs from the first moment on, over how long it
    took. One that has not ended counts with what it was held up so far: no job is left out for being starved.
    """
    found: dict[Tier, list[JobResult]] = {}
    for job in jobs:
        if job.job_id in promised.tiers and alone_s.get(job.job_id, 0.0) > 0 and job.state != JobState.CANCELLED:
            found.setdefault(promised.tiers[job.job_id], []).append(job)
    figures: dict[str, dict[str, Any]] = {}
    above: list[tuple[float, float]] = []
    for tier in Tier:
        those, promise = found.get(tier, []), promised.promises[tier]
        above += [change for job in those for change in _needs(job, promise, end_s)]
        if those:
            fractions = [_fraction(job, alone_s[job.job_id], end_s) for job in those]
            kept = [
                _is_kept(job, promise, promised.runs[job.job_id], end_s)
                if job.job_id in promised.runs
                else fraction * WHOLE >= promise.permille
                for job, fraction in zip(those, fractions, strict=True)
            ]
            figures[tier.value] = {
                "jobs": len(those),
                "promised": promise.permille / WHOLE,
                "fraction": math.fsum(fractions) / len(fractions),
                "attained": sum(kept) / len(kept),
                "needed_gpus": math.ceil(round(_peak(above), 6)),
            }
    return figures


def _fraction(job: JobResult, alone_s: float, end_s: float) -> float:
    if job.jct_s is not None and job.state == JobState.SUCCEEDED:
        return min(alone_s / job.jct_s, 1.0) if job.jct_s > 0 else 1.0
    stay_s = max((job.end_s if job.end_s is not None else end_s) - job.submit_s, job.queued_s)
    return 1.0 - job.queued_s / stay_s if stay_s > 0 else 1.0


def _is_kept(job: JobResult, promise: Promise, runs: Sequence[Ran], end_s: float) -> bool:
    """Whether a job never did without for longer than its slack, which runs down and comes back as for the policy."""
    slack_ms, at_ms = float(promise.slack_ms), job.submit_s * 1000
    for run in runs:
        slack_ms -= (run.since_ms - at_ms) * promise.permille / WHOLE
        if slack_ms < 0:
            return False
        gained_ms = (run.until_ms - run.since_ms) * (run.permille - promise.permille) / WHOLE
        slack_ms, at_ms = min(slack_ms + gained_ms, promise.slack_ms), run.until_ms
    until_ms = 1000 * (job.end_s if job.end_s is not None else end_s)
    return slack_ms - max(until_ms - at_ms, 0.0) * promise.permille / WHOLE >= 0


def _needs(job: JobResult, promise: Promise, end_s: float) -> list[tuple[float, float]]:
    """When GPUs begin and cease to be promised to a job, and how many."""
    gpus = job.gpus * promise.permille / WHOLE
    return [(job.submit_s, gpus), (job.end_s if job.end_s is not None else end_s, -gpus)] if gpus else []


def _peak(changes: Sequence[tuple[float, float]]) -> float:
    """The most that is promised at a time. At one moment, a job that ends goes before one that comes."""
    most = now = 0.0
    for _, gpus in sorted(changes):
        now += gpus
        most = max(most, now)
    return most
