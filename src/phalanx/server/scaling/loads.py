"""Loads: what services last reported of their load, and what Prometheus told of it. They are in memory only: decisions
are journaled, and a server that was restarted keeps sizes as they are until it is told of loads again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from phalanx.engine.state.state import State
from phalanx.protocol.event import Progress
from phalanx.server.loop.wire import QueriedLoad
from phalanx.workload.scale import Metric


@dataclass(frozen=True, slots=True)
class Measured:
    """A load and when it was measured; None with what is wrong where it could not be."""

    value: float | None
    at_ms: int
    problem: str = ""


class Loads:
    """The newest of each service."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._measured: dict[str, Measured] = {}

    def of(self, job: str) -> Measured | None:
        """The load of a service; None if nothing was said of it."""
        return self._measured.get(job)

    def forget_all_but(self, jobs: Iterable[str]) -> None:
        """Forgets services that are over."""
        self._measured = {job: self._measured[job] for job in jobs if job in self._measured}

    def report(self, progress: Progress, now: int) -> None:
        """Takes note of what a service says of itself; a report without its metric says nothing of its load."""
        if progress.job not in self._state.scaled:
            return
        scale = self._state.jobs[progress.job].job.scale
        assert scale is not None, f"job {progress.job} has no scale"
        if scale.metric is not Metric.QUERY and self._state.attempt(progress.job, progress.attempt) is not None:
            found = _said(progress, scale.metric)
            if found is not None:
                self._measured[progress.job] = Measured(found, now)

    def query(self, told: QueriedLoad, now: int) -> None:
        """Takes note of what Prometheus says of a service. Where that is nothing, the last value stays, and ages."""
        record = self._state.jobs.get(told.job)
        scale = record.job.scale if record is not None else None
        if scale is None or scale.metric is not Metric.QUERY or scale.query != told.query:
            return
        last = self._measured.get(told.job)
        if told.value is None and last is not None and last.value is not None:
            self._measured[told.job] = Measured(last.value, last.at_ms, told.problem)
        else:
            self._measured[told.job] = Measured(told.value, now, told.problem)


def _said(progress: Progress, metric: Metric) -> float | None:
    """What a report says of a metric. A service that never measures its GPUs says that they are 0 busy as well."""
    if metric is Metric.GPU_BUSY:
        return progress.gpu_busy if progress.gpu_busy or progress.memory_gb else None
    if metric in progress.diverged:
        return float("nan")
    return progress.metrics.get(metric)
