"""Scaling: how many replicas a service is to have by its load. The decided size is part of its job, so that it is
journaled. A server that is restarted in the middle of a cool-down waits for the rest of it.

The rule is that of the Kubernetes HorizontalPodAutoscaler: replicas in proportion to load, none for deviations within a
tolerance, and a window over which the largest size counts before a service shrinks.
https://kubernetes.io/docs/tasks/run-application/horizontal-pod-autoscale/#algorithm-details
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from math import ceil, isfinite

from phalanx.engine.state.records import JobRecord, Phase
from phalanx.workload.job import Job
from phalanx.workload.scale import Scale

TOLERANCE = 0.1
"""Load per replica that is off its target by no more than this part of it changes nothing."""

STALE_MS = 60_000
"""A measurement that is older says nothing of the load now."""

GROW_AGAIN_MS = 15_000
"""Replicas that were just asked for are to show in the measurements before more are."""


class Standing(StrEnum):
    """What is made of the load of a service."""

    STEADY = "steady"
    GROWS = "grows"
    SHRINKS = "shrinks"
    COOLS_DOWN = "cools_down"
    AT_MAX = "at_max"
    UNKNOWN = "unknown"
    STALE = "stale"
    NONSENSE = "nonsense"
    NOT_RUNNING = "not_running"


@dataclass(frozen=True, slots=True)
class Load:
    """What is known of the load of a service. It is the value and when it was measured, or None where nothing is known;
    the replicas that run; and the most that were wanted within the last cool-down, as far as that was seen.
    """

    value: float | None
    at_ms: int
    running: int
    wanted_lately: int = 0


@dataclass(frozen=True, slots=True)
class Verdict:
    """The size from now on, what the load alone asks for (None where it is not known), and what is made of it."""

    replicas: int
    wanted: int | None
    standing: Standing


def size_now(job: Job) -> int:
    """How many replicas a service that follows its load is to have by the last decision."""
    assert job.scale is not None, f"job {job.id} has no scale"
    return job.scale.replicas if job.scale.replicas is not None else job.gang.roles[0].replicas_max


def scaled(job: Job, replicas: int, now: int) -> Job:
    """The job with so many replicas from now on."""
    scale = job.scale
    assert scale is not None, f"job {job.id} has no scale"
    role = job.gang.roles[0]
    least = max(scale.least, 1)
    role = replace(role, replicas_min=least, replicas_max=max(replicas, least))
    return replace(job, gang=replace(job.gang, roles=(role,)), scale=replace(scale, replicas=replicas, since_ms=now))


def verdict(record: JobRecord, load: Load, now: int) -> Verdict:
    """What the size of a service should be. Where the load is not known, it stays what it is."""
    job, attempt = record.job, record.attempt
    assert job.scale is not None, f"job {job.id} has no scale"
    size = size_now(job)
    asleep = job.scale.is_at_zero and attempt is None
    if not asleep and (attempt is None or attempt.phase is not Phase.RUNNING):
        return Verdict(size, None, Standing.NOT_RUNNING)
    return next_size(job.scale, size, load, now, attempt.started_ms if attempt is not None else 0)


def next_size(scale: Scale, size: int, load: Load, now: int, started_ms: int = 0) -> Verdict:
    """The size of a service that is to have `size` replicas until now. One that was started again has had its load for
    no longer than that, and cools down first.
    """
    value = load.value
    if value is None:
        return Verdict(size, None, Standing.UNKNOWN)
    if not isfinite(value) or value < 0:
        return Verdict(size, None, Standing.NONSENSE)
    if now - load.at_ms > STALE_MS:
        return Verdict(size, None, Standing.STALE)
    wanted = wanted_by(scale, value, load.running)
    if _is_near(scale, value, size, load.running):
        return Verdict(size, wanted, Standing.STEADY)
    if wanted > size:
        again = scale.since_ms + GROW_AGAIN_MS <= now or size == 0
        return Verdict(wanted if again else size, wanted, Standing.GROWS)
    if size == scale.most and value > scale.target * (1 if scale.metric.is_mean else size):
        return Verdict(size, wanted, Standing.AT_MAX)
    smaller = max(wanted, min(load.wanted_lately, size))
    if smaller == size:
        return Verdict(size, wanted, Standing.STEADY if wanted == size else Standing.COOLS_DOWN)
    if now - max(scale.since_ms, started_ms) < scale.cool_down_ms:
        return Verdict(size, wanted, Standing.COOLS_DOWN)
    return Verdict(smaller, wanted, Standing.SHRINKS)


def wanted_by(scale: Scale, value: float, running: int) -> int:
    """The replicas of which each would have its target of the load, within the bounds. Load wakes a service, so that
    only without any it has none.
    """
    needed = value / scale.target * (running if scale.metric.is_mean else 1)
    # A load beyond any size need not be counted out, and a huge one could not be turned into a whole number of use.
    return max(scale.least, ceil(min(needed, scale.most)))


def _is_near(scale: Scale, value: float, size: int, running: int) -> bool:
    """Whether the load of each replica is close to its target. A service that still grows has more to come."""
    replicas = running if scale.metric.is_mean else size
    if not size or not replicas or (scale.metric.is_mean and running != size):
        return False
    each = value if scale.metric.is_mean else value / size
    return abs(each / scale.target - 1) <= TOLERANCE
