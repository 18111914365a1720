"""Fairness: how evenly a run served its queues, and which jobs were treated worst."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, pairwise

from phalanx.engine.state.records import JobState
from phalanx.simulate.figures.result import JobResult


def jain(shares: Sequence[float]) -> float | None:
    """Jain's index, (Σx)² ÷ (n · Σx²): 1 if all have the same, 1/n if one has everything (Jain et al., 1984).

    None if there are no shares, or all are 0.
    """
    squares = math.fsum(share * share for share in shares)
    return math.fsum(shares) ** 2 / (len(shares) * squares) if squares else None


def served(jobs: Iterable[JobResult], end_s: float) -> dict[str, float]:
    """For each queue, service received ÷ service demanded, 0 to 1.

    A job demands its GPUs from its submission to its end and receives them except while it waits. One that has not
    ended demands them until the run ends.
    """
    demanded: dict[str, list[float]] = {}
    received: dict[str, list[float]] = {}
    for job in jobs:
        stay_s = max(_end_s(job, end_s) - job.submit_s, job.queued_s)
        demanded.setdefault(job.queue, []).append(job.gpus * stay_s)
        received.setdefault(job.queue, []).append(job.gpus * (stay_s - job.queued_s))
    totals = {queue: math.fsum(parts) for queue, parts in demanded.items()}
    return {queue: math.fsum(received[queue]) / total for queue, total in totals.items() if total > 0}


def worst_ftf(jobs: Sequence[JobResult], alone_s: Mapping[str, float], gpus: int, end_s: float) -> float | None:
    """The largest ρ of a completed job: its JCT ÷ the JCT it would have had alone on its part of the cluster.

    Finish-time fairness of Mahajan et al., NSDI 2020. The part is 1/N of the cluster's GPUs, where N is the number of
    jobs in the cluster, averaged over the job's own stay. With fewer GPUs than it asks for, a job is slower in
    proportion.
    """
    presence = _Presence(jobs, end_s)
    return max(
        (
            job.jct_s / (alone_s[job.job_id] * max(1.0, job.gpus * presence.mean(job.submit_s, job.end_s) / gpus))
            for job in jobs
            if job.state == JobState.SUCCEEDED
            and job.jct_s is not None
            and job.end_s is not None
            and alone_s.get(job.job_id, 0.0) > 0
        ),
        default=None,
    )


class _Presence:
    """How many jobs there were, submitted and not ended, at any time."""

    def __init__(self, jobs: Iterable[JobResult], end_s: float) -> None:
        changes: dict[float, int] = {}
        for job in jobs:
            changes[job.submit_s] = changes.get(job.submit_s, 0) + 1
            left_s = max(_end_s(job, end_s), job.submit_s)
            changes[left_s] = changes.get(left_s, 0) - 1
        self._at_s = sorted(changes)
        self._count = list(accumulate(changes[at_s] for at_s in self._at_s))
        lengths = (later - earlier for earlier, later in pairwise(self._at_s))
        self._job_s = [0.0, *accumulate(count * length for count, length in zip(self._count, lengths, strict=False))]

    def mean(self, from_s: float, to_s: float) -> float:
        """The mean number between two moments at which a job came or left."""
        first, last = bisect_left(self._at_s, from_s), bisect_left(self._at_s, to_s)
        if last <= first:
            return float(self._count[first])
        return (self._job_s[last] - self._job_s[first]) / (self._at_s[last] - self._at_s[first])


def _end_s(job: JobResult, end_s: float) -> float:
    return job.end_s if job.end_s is not None else end_s
