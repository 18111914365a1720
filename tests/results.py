"""Results of runs that never took place, for what shows and sums results up."""

from __future__ import annotations

import random
from collections.abc import Sequence
from heapq import heappop, heappush
from typing import Any

from phalanx.simulate.figures.fairness import served
from phalanx.simulate.figures.metrics import Cost, Totals, summarize
from phalanx.simulate.figures.never_fit import NeverFit, TooSmall
from phalanx.simulate.figures.result import JobResult, Result, Stay, Timeline


def a_job_result(job_id: str = "1", **fields: Any) -> JobResult:
    """A job of one GPU that was submitted at 0, ran from 10 to 110 and succeeded, but for what is given."""
    values: dict[str, Any] = {
        "job_id": job_id,
        "queue": "research",
        "state": "succeeded",
        "submit_s": 0.0,
        "start_s": 10.0,
        "end_s": 110.0,
        "gpus": 1,
        "attempts": 1,
        "preemptions": 0,
        "lost_gpu_s": 0.0,
        "nodes": ("n0",),
        **fields,
    }
    submit_s, start_s, end_s = values["submit_s"], values["start_s"], values["end_s"]
    values.setdefault("wait_s", None if start_s is None else start_s - submit_s)
    values.setdefault("queued_s", values["wait_s"] or 0.0)
    values.setdefault("jct_s", None if end_s is None else end_s - submit_s)
    return JobResult(**values)


def a_waiting_job(job_id: str = "1", **fields: Any) -> JobResult:
    """A job that never started."""
    return a_job_result(
        job_id, **{"state": "waiting", "start_s": None, "end_s": None, "attempts": 0, "nodes": (), **fields}
    )


def too_large(*jobs: str) -> dict[str, NeverFit]:
    """Jobs that no part of the cluster could hold."""
    return {job: NeverFit(TooSmall.CLUSTER, f"job {job} asks for 64 GPUs") for job in jobs}


def some_totals(**fields: Any) -> Totals:
    """A cluster of 8 GPUs of which half was held for 100 s."""
    values: dict[str, Any] = {
        "policy": "fifo",
        "gpus": 8,
        "capacity_gpu_s": 800.0,
        "allocated_gpu_s": 400.0,
        "busy_gpu_s": 300.0,
        "useful_gpu_s": 200.0,
        "lost_gpu_s": 40.0,
        "fragmentation": 0.25,
        "moves": 2,
        "resizes": 3,
        "never_fit": {},
        "events": 17,
        "digest": "abc123",
        **fields,
    }
    return Totals(**values)


def an_empty_result(policy: str = "fifo") -> Result:
    """A run to which nobody came."""
    totals = some_totals(
        policy=policy, capacity_gpu_s=0.0, allocated_gpu_s=0.0, useful_gpu_s=0.0, busy_gpu_s=0.0, fragmentation=None
    )
    return Result(summarize([], totals), {"seed": 0}, [], Timeline([], [], [], [], []), [])


def a_result(
    policy: str = "fifo",
    jobs: int = 60,
    seed: int = 1,
    nodes: int = 4,
    queues: Sequence[str] = ("research", "product"),
    job_prefix: str = "",
    node_prefix: str = "n",
    load: float = 1.0,
) -> Result:
    """A run of random jobs on nodes of 8 GPUs, each on one node, first fit, in the order they come."""
    chance = random.Random(f"{seed} {load}")
    order = random.Random(policy)
    line = _Line(nodes, node_prefix)
    now = 0.0
    for number in range(jobs):
        now += chance.expovariate(load * nodes * 8 / (2.6 * 5000))
        gpus = chance.choice((1, 1, 1, 2, 4, 8))
        duration_s = chance.lognormvariate(7.5, 1.2)
        line.run(f"{job_prefix}{number + 1}", chance.choice(queues), now, gpus, duration_s * order.uniform(0.9, 1.1))
    return line.result(policy, {"seed": seed, "trace": {"name": "made up", "jobs": jobs}, "nodes": nodes})


class _Line:
    """Jobs on nodes, one after the other."""

    def __init__(self, nodes: int, prefix: str) -> None:
        self.free = [8] * nodes
        self.names = [f"{prefix}{index}" for index in range(nodes)]
        self.ends: list[tuple[float, int, int]] = []
        self.jobs: list[JobResult] = []
        self.stays: list[Stay] = []
        self.now = 0.0

    def run(self, job_id: str, queue: str, submit_s: float, gpus: int, duration_s: float) -> None:
        self.now = max(self.now, submit_s)
        self._free_until(self.now)
        while max(self.free) < gpus:
            self.now = self.ends[0][0]
            self._free_until(self.now)
        node = next(index for index, free in enumerate(self.free) if free >= gpus)
        self.free[node] -= gpus
        end_s = self.now + duration_s
        heappush(self.ends, (end_s, node, gpus))
        self.stays.append(Stay(job_id, 1, self.names[node], gpus, self.now, end_s))
        self.jobs.append(
            a_job_result(
                job_id,
                queue=queue,
                submit_s=submit_s,
                start_s=self.now,
                end_s=end_s,
                gpus=gpus,
                nodes=(self.names[node],),
            )
        )

    def _free_until(self, now: float) -> None:
        while self.ends and self.ends[0][0] <= now:
            _, node, gpus = heappop(self.ends)
            self.free[node] += gpus

    def result(self, policy: str, setup: dict[str, Any]) -> Result:
        total = 8 * len(self.names)
        timeline = self._timeline(total)
        held_gpu_s = sum(stay.gpus * (stay.end_s - stay.start_s) for stay in self.stays)
        capacity_gpu_s = total * (max(job.end_s or 0.0 for job in self.jobs) - self.jobs[0].submit_s)
        totals = some_totals(
            policy=policy,
            gpus=total,
            capacity_gpu_s=capacity_gpu_s,
            allocated_gpu_s=held_gpu_s,
            busy_gpu_s=held_gpu_s * 0.8,
            useful_gpu_s=held_gpu_s * 0.95,
            events=len(timeline.at_s),
        )
        alone_s = {stay.job_id: stay.end_s - stay.start_s for stay in self.stays}
        summary = summarize(self.jobs, totals, alone_s, Cost(0.5, 60.0))
        end_s = max(job.end_s or 0.0 for job in self.jobs)
        return Result(summary, setup, self.jobs, timeline, self.stays, served=served(self.jobs, end_s))

    def _timeline(self, gpus: int) -> Timeline:
        changes = sorted(
            change
            for job in self.jobs
            if job.start_s is not None and job.end_s is not None
            for change in (
                (job.submit_s, 0, 1, job.gpus),
                (job.start_s, job.gpus, -1, -job.gpus),
                (job.end_s, -job.gpus, 0, 0),
            )
        )
        timeline = Timeline([], [], [], [], [])
        held = waiting = waiting_gpus = 0
        for at_s, held_change, waiting_change, waiting_gpus_change in changes:
            held += held_change
            waiting += waiting_change
            waiting_gpus += waiting_gpus_change
            timeline.at_s.append(at_s)
            timeline.allocated.append(held / gpus)
            timeline.waiting_jobs.append(waiting)
            timeline.waiting_gpus.append(waiting_gpus)
            timeline.fragmentation.append((gpus - held) % 8 / gpus)
        return timeline
