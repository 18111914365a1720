"""Co-located jobs: how long a step of a job takes beside those that run on its devices, as it says itself.

What is read of a report: `step_ms` of its metrics, or its samples a second where it has no such metric.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from phalanx.cluster.device import Portion
from phalanx.policy.policy import Memory
from phalanx.protocol.event import AttemptEnded, Event, JobCancelled, Progress

Companions = tuple[tuple[str, str, int], ...]
"""The jobs that run on a job's devices: each with the job it is packed with, and with how much compute."""

REPORTS_COUNTED = 4
"""About so many of the last reports make up what is known of a job in its present company."""

SECOND_MS = 1000.0

STEP_MS = (1e-6, 1e12)
"""No step takes less than a nanosecond, or more than thirty years: whatever says so would only break the fits."""


def observe_steps(memory: Memory, event: Event, now: int) -> None:
    """Takes note of the last report of each job, until the job has ended."""
    match event:
        case Progress():
            step_ms = reported_step_ms(event)
            if step_ms > 0:
                memory.setdefault("reported", {})[event.job] = (now, step_ms)
        case JobCancelled() | AttemptEnded():
            memory.get("reported", {}).pop(event.job, None)
            memory.get("stays", {}).pop(event.job, None)


def reported_step_ms(event: Progress) -> float:
    """How long a step takes by a report; 0 if it does not say, or nothing that could be."""
    if event.metrics.get("step_ms", 0.0) > 0 or event.samples_per_s <= 0:
        return told_step_ms(event.metrics)
    return _sensible(SECOND_MS / event.samples_per_s)


def told_step_ms(metrics: Mapping[str, float]) -> float:
    """How long a step takes by a job's metrics; 0 if they do not say, or nothing that could be."""
    return _sensible(metrics.get("step_ms", 0.0))


def _sensible(step_ms: float) -> float:
    least, most = STEP_MS
    return step_ms if least <= step_ms <= most else 0.0


def companions(job: str, devices: Sequence[Mapping[str, Portion]]) -> Companions:
    """The jobs that run on the devices of a job."""
    found = {name: portion for device in devices for name, portion in device.items()}
    return tuple((name, each.beside, each.compute_permille) for name, each in sorted(found.items()))


def step_ms(memory: Memory, job: str, present: Companions, now: int, settle_ms: int) -> float | None:
    """How long a step of a job takes in this company; None if it has not said so since the company is like that.

    A report tells of the time before it: those that come too soon tell of another company.
    """
    stays = memory.setdefault("stays", {})
    stay = stays.get(job)
    if stay is None or stay[0] != present:
        stay = stays[job] = (present, now, None, 0, -1)
    since_ms, count, heard_ms = stay[1], stay[3], stay[4]
    known_ms: float | None = stay[2]
    at_ms, told_ms = memory.get("reported", {}).get(job, (-1, 0.0))
    if at_ms > heard_ms and at_ms >= since_ms + settle_ms:
        count = min(count + 1, REPORTS_COUNTED)
        known_ms = told_ms if known_ms is None else known_ms + (told_ms - known_ms) / count
        stays[job] = (present, since_ms, known_ms, count, at_ms)
    return known_ms
