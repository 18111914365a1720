"""Parts of a run: the times of the jobs of each queue and of each size, and how much longer jobs took than alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from phalanx.engine.state.records import JobState
from phalanx.simulate.figures.result import JobResult
from phalanx.simulate.figures.spread import spread

SHORT_S = 10.0
"""A job that runs for less counts as running so long: else the slowdown of jobs of a second would be all there is."""


def by_part(
    jobs: Sequence[JobResult], alone_s: Mapping[str, float], part_of: Callable[[JobResult], str]
) -> dict[str, dict[str, Any]]:
    """The times of the jobs of each part, parts in the order in which they come."""
    parts: dict[str, list[JobResult]] = {}
    for job in jobs:
        parts.setdefault(part_of(job), []).append(job)
    return {name: _times(own, alone_s) for name, own in parts.items()}


def _times(jobs: Sequence[JobResult], alone_s: Mapping[str, float]) -> dict[str, Any]:
    completed = [job.jct_s for job in jobs if job.state == JobState.SUCCEEDED and job.jct_s is not None]
    return {
        "jobs": len(jobs),
        "completed": len(completed),
        "jct_s": spread(completed),
        "wait_s": spread([job.wait_s for job in jobs if job.wait_s is not None]),
        "queued_s": spread([job.queued_s for job in jobs]),
        "slowdown": spread(list(slowdowns(jobs, alone_s))),
    }


def slowdowns(jobs: Sequence[JobResult], alone_s: Mapping[str, float]) -> Iterator[float]:
    """The bounded slowdown of each completed job whose length is known (Feitelson et al., JSSPP 1997)."""
    for job in jobs:
        if job.state == JobState.SUCCEEDED and job.jct_s is not None and job.job_id in alone_s:
            yield max(job.jct_s / max(alone_s[job.job_id], SHORT_S), 1.0)
