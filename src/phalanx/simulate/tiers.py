"""Tiers: whether jobs had what their tiers promise, a fraction of the GPU time they ask for."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from phalanx.engine.records import JobState
from phalanx.simulate.result import JobResult
from phalanx.workload.tier import PROMISED, Tier


def tier_figures(
    jobs: Sequence[JobResult], tiers: Mapping[str, Tier], alone_s: Mapping[str, float], end_s: float
) -> dict[str, dict[str, Any]]:
    """By tier: how many jobs, what is promised, the mean GPU fraction, and the share of jobs that had theirs.

    The fraction of a job is how long it would have taken with all its GPUs from the first moment on, over how long it
    took. One that has not ended counts with what it was held up so far: nobody is left out for being starved.
    """
    fractions: dict[Tier, list[float]] = {}
    for job in jobs:
        if job.job_id in tiers and alone_s.get(job.job_id, 0.0) > 0 and job.state != JobState.CANCELLED:
            fractions.setdefault(tiers[job.job_id], []).append(_fraction(job, alone_s[job.job_id], end_s))
    return {tier.value: _figures(PROMISED[tier], fractions[tier]) for tier in Tier if tier in fractions}


def _fraction(job: JobResult, alone_s: float, end_s: float) -> float:
    if job.jct_s is not None and job.state == JobState.SUCCEEDED:
        return min(alone_s / job.jct_s, 1.0) if job.jct_s > 0 else 1.0
    stay_s = max((job.end_s if job.end_s is not None else end_s) - job.submit_s, job.queued_s)
    return 1.0 - job.queued_s / stay_s if stay_s > 0 else 1.0


def _figures(promised: float, fractions: list[float]) -> dict[str, Any]:
    return {
        "jobs": len(fractions),
        "promised": promised,
        "fraction": math.fsum(fractions) / len(fractions),
        "attained": sum(fraction >= promised for fraction in fractions) / len(fractions),
    }
