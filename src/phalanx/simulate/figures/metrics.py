"""Metrics: what a run came to, in figures. Each is defined in docs/reference/metrics.md."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TextIO

from phalanx.engine.state.records import JobState
from phalanx.simulate.figures.deadlines import deadline_counts, late_s
from phalanx.simulate.figures.fairness import jain, served, worst_ftf
from phalanx.simulate.figures.never_fit import NeverFit, never_fit_figures
from phalanx.simulate.figures.parts import by_part, slowdowns
from phalanx.simulate.figures.result import JobResult, Timeline
from phalanx.simulate.figures.spread import rounded, spread
from phalanx.simulate.figures.tiers import Promised, tier_figures
from phalanx.simulate.figures.window import Window, allocated_within
from phalanx.workload.tier import Tier

SCHEMA = 1
"""The version of the object's form."""


@dataclass(frozen=True, slots=True)
class Totals:
    """What only the run itself can count. GPU-seconds are of the whole cluster.

    `capacity_gpu_s` is what the cluster had from the first submission to the last end, `allocated_gpu_s` what jobs held
    of it, `busy_gpu_s` what they worked, `useful_gpu_s` what of that work was kept, `lost_gpu_s` what was not.
    `fragmentation` is the mean over time. `end_s` is when the run ended; without it, the last thing known of a job.
    """

    policy: str
    gpus: int
    capacity_gpu_s: float
    allocated_gpu_s: float
    busy_gpu_s: float
    useful_gpu_s: float
    lost_gpu_s: float
    fragmentation: float | None
    moves: int
    resizes: int
    never_fit: Mapping[str, NeverFit]
    events: int
    digest: str
    end_s: float | None = None


@dataclass(frozen=True, slots=True)
class Cost:
    """What the run itself took: the only figures that differ when it is repeated."""

    wall_s: float
    peak_mb: float


def summarize(
    jobs: Sequence[JobResult],
    totals: Totals,
    alone_s: Mapping[str, float] | None = None,
    cost: Cost | None = None,
    promised: Promised | None = None,
    deadlines_s: Mapping[str, float] | None = None,
    failures: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The object that `simulate -o json` prints: plain data, byte-identical for equal runs but for `run`.

    `alone_s` says of a job how long it would have run with all its GPUs and no neighbours; `worst_ftf` needs it.
    `promised`, where any job has a tier above basic, has the object tell what tiers had of what they were promised;
    `deadlines_s`, where any job has one, how many were met; `failures`, where there are any, what they cost.
    """
    stranded = [job for job in jobs if job.job_id in totals.never_fit and not JobState(job.state).final]
    fitting = [job for job in jobs if job.job_id not in totals.never_fit]
    return {
        "schema": SCHEMA,
        "policy": totals.policy,
        "jobs": _counts(jobs, len(stranded)),
        **_never_fit(stranded, totals),
        "makespan_s": _makespan_s(jobs),
        **_times(jobs, totals, alone_s or {}),
        "gpu_allocated": _share(totals.allocated_gpu_s, totals.capacity_gpu_s),
        "gpu_busy": _share(totals.busy_gpu_s, totals.capacity_gpu_s),
        "fragmentation": rounded(totals.fragmentation),
        "preemptions": sum(job.preemptions for job in jobs),
        "moves": totals.moves,
        "resizes": totals.resizes,
        "lost_gpu_s": rounded(totals.lost_gpu_s),
        "goodput": _share(totals.useful_gpu_s, totals.allocated_gpu_s),
        "fairness": _fairness(fitting, totals, alone_s or {}),
        **_tiers(fitting, totals, alone_s or {}, promised),
        **_deadlines(jobs, totals, deadlines_s or {}),
        **({"failures": dict(failures)} if failures else {}),
        "events": totals.events,
        "digest": totals.digest,
        "run": {
            "wall_s": None if cost is None else rounded(cost.wall_s),
            "peak_mb": None if cost is None else rounded(cost.peak_mb),
        },
    }


def _times(jobs: Sequence[JobResult], totals: Totals, alone_s: Mapping[str, float]) -> dict[str, Any]:
    """How long jobs took and waited, in all and part by part."""
    fitting = [job for job in jobs if job.job_id not in totals.never_fit]
    completed = [job.jct_s for job in jobs if job.state == JobState.SUCCEEDED and job.jct_s is not None]
    return {
        "jct_s": spread(completed),
        "wait_s": spread([job.wait_s for job in jobs if job.wait_s is not None]),
        "queued_s": spread([job.queued_s for job in fitting]),
        "slowdown": spread(list(slowdowns(jobs, alone_s))),
        "by_queue": by_part(fitting, alone_s, lambda job: job.queue),
        "by_size": by_part(sorted(fitting, key=lambda job: job.gpus), alone_s, lambda job: str(job.gpus)),
    }


def within(
    window: Window, jobs: Sequence[JobResult], totals: Totals, alone_s: Mapping[str, float], timeline: Timeline
) -> dict[str, Any]:
    """The figures of a summary that are those of a window, in place of those of the whole run; and the window."""
    (begin_s, end_s), inside = window.jobs(jobs)
    return {
        **_times(inside, totals, alone_s),
        "gpu_allocated": rounded(allocated_within(timeline, begin_s, end_s)),
        "window": {"from_s": rounded(begin_s), "to_s": rounded(end_s), "jobs": len(inside)},
    }


def per_job_csv(jobs: Sequence[JobResult], file: TextIO) -> None:
    """Writes `--per-job`: a line for each job; what has not happened is empty. Open the file with `newline=""`."""
    columns = JobResult.__struct_fields__
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([_csv_value(getattr(job, column)) for column in columns] for job in jobs)


def _csv_value(value: object) -> object:
    match value:
        case None:
            return ""
        case float():
            return rounded(value)
        case tuple():
            return ";".join(value)
        case _:
            return value


def _counts(jobs: Sequence[JobResult], stranded: int) -> dict[str, int]:
    """Every job is in one of the counts, so that they add up to what was submitted."""
    states = [JobState(job.state) for job in jobs]
    return {
        "submitted": len(jobs),
        "completed": states.count(JobState.SUCCEEDED),
        "failed": states.count(JobState.FAILED),
        "cancelled": states.count(JobState.CANCELLED),
        "never_fit": stranded,
        "unfinished": sum(not state.final for state in states) - stranded,
    }


def _never_fit(stranded: Sequence[JobResult], totals: Totals) -> dict[str, Any]:
    return {"never_fit": never_fit_figures(stranded, totals.never_fit)} if stranded else {}


def _makespan_s(jobs: Sequence[JobResult]) -> float | None:
    ends = [job.end_s for job in jobs if job.end_s is not None]
    return rounded(max(ends) - min(job.submit_s for job in jobs)) if ends else None


def _fairness(jobs: Sequence[JobResult], totals: Totals, alone_s: Mapping[str, float]) -> dict[str, float | None]:
    end_s = _end_s(jobs, totals)
    return {
        "jain": rounded(jain(list(served(jobs, end_s).values()))),
        "worst_ftf": rounded(worst_ftf(jobs, alone_s, totals.gpus, end_s)),
    }


def _tiers(
    jobs: Sequence[JobResult], totals: Totals, alone_s: Mapping[str, float], promised: Promised | None
) -> dict[str, Any]:
    if promised is None or all(tier is Tier.BASIC for tier in promised.tiers.values()):
        return {}
    found = tier_figures(jobs, promised, alone_s, _end_s(jobs, totals))
    return {
        "tiers": {
            tier: {name: value if isinstance(value, int) else rounded(value) for name, value in figures.items()}
            for tier, figures in found.items()
        }
    }


def _deadlines(jobs: Sequence[JobResult], totals: Totals, deadlines_s: Mapping[str, float]) -> dict[str, Any]:
    if not deadlines_s:
        return {}
    end_s = _end_s(jobs, totals)
    counts = deadline_counts(jobs, deadlines_s, totals.never_fit, end_s)
    return {"deadlines": {**counts, "late_s": spread(late_s(jobs, deadlines_s, end_s))}}


def _end_s(jobs: Sequence[JobResult], totals: Totals) -> float:
    """When the run ended, or the last thing known of a job."""
    if totals.end_s is not None:
        return totals.end_s
    known = (job.end_s if job.end_s is not None else job.submit_s + job.queued_s for job in jobs)
    return max(known, default=0.0)


def _share(part: float, whole: float) -> float | None:
    return rounded(part / whole) if whole > 0 else None
