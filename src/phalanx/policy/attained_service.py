"""Attained service: how much a job has had so far, in few queues, so that only a job that crosses a border is stopped.

Discretised two-dimensional attained service (Gu et al., NSDI 2019, §3.2).
"""

from __future__ import annotations

from bisect import bisect_right

from phalanx.policy.policy import Key
from phalanx.policy.view import JobView

DEFAULT_LIMITS = (3250, 7200)
"""Service in seconds (or GPU-seconds) at which a job sinks, as in the authors' simulator."""


class AttainedService:
    """How far a job has come: what it attained, in which queue that puts it, and when it came there.

    In one dimension service is executed time, in two it is GPUs times executed time. A job begins in the first queue
    and sinks as its service passes the limits.
    """

    def __init__(self, dims: str, limits: tuple[int, ...]) -> None:
        self.two_dimensional = dims == "2"
        self.limits = tuple(1000 * limit for limit in limits)

    def rate(self, job: JobView) -> int:
        """Service per millisecond while the job runs."""
        return max(job.gpus, 1) if self.two_dimensional else 1

    def attained(self, job: JobView, now: int) -> int:
        """Service since the job was last promoted, if ever."""
        total = job.service_gpu_ms(now) if self.two_dimensional else job.executed_ms(now)
        return total - job.marks.get("reset", 0)

    def before(self, job: JobView) -> int:
        """Service without the present attempt."""
        total = job.service_before_gpu_ms if self.two_dimensional else job.executed_before_ms
        return total - job.marks.get("reset", 0)

    def queue(self, attained: int) -> int:
        """The queue that a service belongs to."""
        return bisect_right(self.limits, attained)

    def sank_ms(self, job: JobView, queue: int, now: int) -> int | None:
        """When the job came to a queue, if that was in the attempt that runs, or in the last one while it waits."""
        if queue == 0:
            return None
        limit = self.limits[queue - 1]
        if job.running_since_ms is not None:
            sank = self.before(job) < limit
            return now - (self.attained(job, now) - limit) // self.rate(job) if sank else None
        if job.has_devices or job.stopped_ms is None:
            return None
        sank_ms = job.stopped_ms - (self.before(job) - limit) // self.rate(job)
        return sank_ms if sank_ms > job.opened[0] else None

    def sinks_ms(self, job: JobView, now: int) -> int | None:
        """When the running job will leave its queue if it keeps its size."""
        attained = self.attained(job, now)
        queue = self.queue(attained)
        if job.running_since_ms is None or queue == len(self.limits):
            return None
        return now - (attained - self.limits[queue]) // self.rate(job)


def turn_of(job: JobView, sank_ms: int | None) -> Key:
    """The place of a job in its queue, by when it sank to that: it goes behind one just started there."""
    opened_ms, place = job.opened
    return (opened_ms, 0, place) if sank_ms is None else (sank_ms, 1, job.number)
