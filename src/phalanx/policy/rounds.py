"""Rounds: moments at which a policy works out all sizes anew, and the order in which that is brought about."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from phalanx.policy.policy import Key, Memory
from phalanx.policy.view import JobView, Moment

LATE, ALLOTTED, DUE, SPARED, WAITS = range(5)
"""A job that has a size and has waited for too long, one that runs and has one, one that waits and has one, one that
runs without one, and one that waits for what other jobs leave.
"""

PATIENCE = 2
"""Rounds that a job with a size waits for devices to come free before it preempts."""

PATIENCE_MIN_MS = 300_000


@dataclass(frozen=True, slots=True)
class Allotment:
    """The order of jobs by their sizes. A job that has one goes before a job that has none, and preempts it.

    Of two jobs that have sizes neither stops the other, as long as devices come free where they are needed: sizes only
    add up, they do not say where. A job that still waits after a while preempts, by shrinking if that will do.
    """

    interval_ms: int

    def order(self, job: JobView, at: Moment) -> Key:
        """The key of a job."""
        if job.has_devices:
            return (ALLOTTED if job.sizes else SPARED,)
        if not job.sizes:
            return (WAITS, job.number)
        return (LATE if self._late_ms(job) <= at.now else DUE, job.number)

    def changes(self, job: JobView, at: Moment) -> int | None:
        """When a job has waited for too long."""
        late_ms = self._late_ms(job)
        return late_ms if job.sizes and not job.has_devices and late_ms > at.now else None

    def _late_ms(self, job: JobView) -> int:
        since_ms = max(job.submitted_ms, job.job.begin_ms or 0, job.stopped_ms or 0)
        return since_ms + max(PATIENCE * self.interval_ms, PATIENCE_MIN_MS)


def expect_round(memory: Memory, now: int, interval_ms: int) -> None:
    """Something has happened: a round follows, an interval after the last one at the earliest.

    Where nothing happens no round follows, so that a simulation can come to its end.
    """
    if memory.get("next_ms") is None:
        memory["next_ms"] = max(now, memory.get("began_ms", now - interval_ms) + interval_ms)


def round_is_due(memory: Mapping[str, Any], now: int) -> bool:
    """Whether the moment of a round has come."""
    at_ms = next_round(memory, now)
    return at_ms is not None and at_ms <= now


def begin_round(memory: Memory, now: int) -> None:
    """A round begins now."""
    memory["began_ms"], memory["next_ms"] = now, None


def next_round(memory: Mapping[str, Any], now: int) -> int | None:
    """When the next round begins; None while nothing has happened since the last."""
    at_ms: int | None = memory.get("next_ms")
    return at_ms
