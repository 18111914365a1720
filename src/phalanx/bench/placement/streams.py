"""Streams of jobs for comparing packings: sizes shaped like three published traces, at a given load."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import log
from random import Random

from phalanx.bench.placement.fleet import GPUS, gang_of
from phalanx.workload.gang import ANYWHERE, Task, Topology
from phalanx.workload.job import Job

HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class Mix:
    """Weights of job sizes in GPUs. Jobs of 8 GPUs come `burst` at a time: sweeps are submitted together."""

    name: str
    weights: Mapping[int, float]
    burst: int = 1


# Approximations. In all three traces nine jobs in ten or more have one GPU and one in a thousand has 64; thousands of
# jobs would then hold a handful of large ones, so their tails are thickened here until waits of 64-GPU jobs can be
# compared. What is kept of each is what sets it apart.
MIXES = (
    # Jeon et al., ATC 2019, and the published trace: single GPUs first, then 2, 4 and 8 in nearly equal parts.
    Mix("philly", {1: 70, 2: 9, 4: 9, 8: 8, 16: 2, 32: 1, 64: 1}),
    # Hu et al., SC 2021 (Helios): still more single GPUs, whole nodes next, little between them.
    Mix("helios", {1: 76, 2: 4, 4: 4, 8: 13, 16: 1.5, 32: 0.75, 64: 0.75}, burst=6),
    # Weng et al., NSDI 2022 (PAI): one or two GPUs, and whole nodes.
    Mix("alibaba", {1: 55, 2: 24, 4: 7, 8: 11, 16: 1.5, 32: 0.75, 64: 0.75}),
)

DURATION_MEDIAN_MS = HOUR_MS // 2
DURATION_SIGMA = 1.5
DURATION_MAX_MS = 24 * HOUR_MS
"""Log-normal durations: the mean is three times the median, and one job in a hundred runs 33 times the median."""

LARGE_FACTOR = 2
"""Whole nodes and more run that much longer, as in the Philly trace."""

RACK_SHARE = 1 / 3
"""Gangs of several nodes that must lie in one rack."""


@dataclass(frozen=True, slots=True)
class Stream:
    """Jobs with the milliseconds of their submission, and how long each runs."""

    jobs: tuple[tuple[int, Job], ...]
    durations_ms: Mapping[str, int]


def stream(mix: Mix, load: float, gpus: int, count: int, seed: int) -> Stream:
    """Poisson arrivals, stretched so that the jobs offer exactly that load to so many GPUs."""
    rng = Random(f"{mix.name} {load} {seed}")
    jobs: list[Job] = []
    gaps: list[float] = []
    durations_ms: dict[str, int] = {}
    while len(jobs) < count:
        size = rng.choices(list(mix.weights), list(mix.weights.values()))[0]
        burst = mix.burst if size == GPUS else 1
        if rng.random() >= 1 / burst:
            continue
        gap = rng.expovariate(1.0)
        for _ in range(burst):
            job = _job(str(len(jobs)), size, rng)
            jobs.append(job)
            gaps.append(gap)
            durations_ms[job.id] = _duration_ms(size, rng)
            gap = 0.0
    gpu_ms = sum(job.gang.gpus_min * durations_ms[job.id] for job in jobs)
    stretch = gpu_ms / (gpus * load) / sum(gaps)
    at = 0.0
    timed = []
    for job, gap in zip(jobs, gaps, strict=True):
        at += gap * stretch
        timed.append((int(at), job))
    return Stream(tuple(timed), durations_ms)


def _job(name: str, gpus: int, rng: Random) -> Job:
    each = min(gpus, GPUS)
    in_rack = gpus > GPUS and rng.random() < RACK_SHARE
    return Job(name, gang_of(Task(gpus=each), gpus // each, Topology("rack") if in_rack else ANYWHERE))


def _duration_ms(gpus: int, rng: Random) -> int:
    median_ms = DURATION_MEDIAN_MS * (LARGE_FACTOR if gpus >= GPUS else 1)
    return min(int(rng.lognormvariate(log(median_ms), DURATION_SIGMA)), DURATION_MAX_MS)
