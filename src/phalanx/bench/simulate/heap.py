"""The least that a simulation costs: a heap of events and one number of free GPUs, with nothing beside.

It knows three orders and no placement, journal, quotas, reasons or failures. What a run of ours takes beside it is what
deciding as a server does costs.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush

from phalanx.policy.attained_service import DEFAULT_LIMITS
from phalanx.simulate.trace import TraceJob

LIMITS_GPU_MS = tuple(1_000 * limit_s for limit_s in DEFAULT_LIMITS)
"""The GPU time up to which a job is in each of the queues but the last."""


class Active:
    """A job that was submitted and has not ended."""

    __slots__ = ("attained_ms", "gpus", "left_ms", "number", "since_ms")

    def __init__(self, job: TraceJob, number: int) -> None:
        self.number = number
        self.gpus = job.gpus
        self.left_ms = job.duration_ms
        self.attained_ms = 0
        self.since_ms = -1


Key = Callable[[Active, int], tuple[int, ...]]
Event = tuple[int, int]
"""When something happens, and to which job."""


def by_remaining(job: Active, now: int) -> tuple[int, ...]:
    """Least remaining time first."""
    ran_ms = now - job.since_ms if job.since_ms >= 0 else 0
    return (job.left_ms - ran_ms, job.number)


def by_attained(job: Active, now: int) -> tuple[int, ...]:
    """Queues by attained service; in each of them running jobs first."""
    ran_ms = now - job.since_ms if job.since_ms >= 0 else 0
    service = (job.attained_ms + ran_ms) * job.gpus
    return (sum(service >= limit for limit in LIMITS_GPU_MS), job.since_ms < 0, job.number)


def in_order(jobs: list[TraceJob], gpus: int) -> float:
    """The mean completion time of jobs in milliseconds, first come, first served, and none passes another."""
    ends: list[tuple[int, int]] = []
    free, now, total_ms = gpus, 0, 0
    for job in jobs:
        now = max(now, job.submit_ms)
        while ends and (ends[0][0] <= now or free < job.gpus):
            now, held = max(now, ends[0][0]), heappop(ends)[1]
            free += held
        free -= job.gpus
        heappush(ends, (now + job.duration_ms, job.gpus))
        total_ms += now + job.duration_ms - job.submit_ms
    return total_ms / len(jobs)


def preempting(jobs: list[TraceJob], gpus: int, key: Key) -> float:
    """The same where at every event all jobs are put in order anew, and those run that fit one after the other."""
    events: list[Event] = []
    known = [Active(job, number) for number, job in enumerate(jobs)]
    for job in known:
        heappush(events, (jobs[job.number].submit_ms, job.number))
    active: dict[int, Active] = {}
    total_ms = 0
    while events:
        now = events[0][0]
        while events and events[0][0] == now:
            job = known[heappop(events)[1]]
            if job.since_ms >= 0 and job.since_ms + job.left_ms == now:
                job.left_ms, job.since_ms = 0, -1
                del active[job.number]
                total_ms += now - jobs[job.number].submit_ms
            elif job.left_ms:
                active[job.number] = job
        free = gpus
        for job in sorted(active.values(), key=lambda each: key(each, now)):
            fits = job.gpus <= free
            free -= job.gpus if fits else 0
            if fits and job.since_ms < 0:
                job.since_ms = now
                _expect(events, job, now)
            elif not fits and job.since_ms >= 0:
                job.left_ms -= now - job.since_ms
                job.attained_ms += now - job.since_ms
                job.since_ms = -1
    return total_ms / len(jobs)


def _expect(events: list[Event], job: Active, now: int) -> None:
    """The end of a job that runs from now on, and the moments at which it leaves a queue for the next."""
    heappush(events, (now + job.left_ms, job.number))
    for limit in LIMITS_GPU_MS:
        sinks_ms = now + -(-limit // job.gpus) - job.attained_ms
        if now < sinks_ms < now + job.left_ms:
            heappush(events, (sinks_ms, job.number))


SIMULATORS: dict[str, Callable[[list[TraceJob], int], float]] = {
    "fifo": in_order,
    "tiresias-las": lambda jobs, gpus: preempting(jobs, gpus, by_attained),
    "srtf:by=time": lambda jobs, gpus: preempting(jobs, gpus, by_remaining),
}
