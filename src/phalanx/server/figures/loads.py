"""Loads: what running jobs say of themselves, and since when it has been so."""

from __future__ import annotations

from dataclasses import dataclass, field

from phalanx.protocol.event import AttemptEnded, Event, JobCancelled, Progress
from phalanx.protocol.plan import Plan
from phalanx.server.figures.states import BUSY_BELOW

METRICS_MAX = 12
"""Metrics of a job of which a series is kept: the first it tells of."""

NAME_MAX = 64


@dataclass(slots=True)
class Said:
    """What an attempt has said. `measures` says that it ever told anything of its GPUs; `heard` are the values since
    they were last taken, by name.
    """

    attempt: int
    first_ms: int
    at_ms: int = 0
    step: int = -1
    step_ms: int = 0
    gpu_busy: float = 0.0
    memory_gb: float = 0.0
    measures: bool = False
    busy_ms: int = 0
    names: dict[str, None] = field(default_factory=dict)
    heard: dict[str, tuple[float, int]] = field(default_factory=dict)

    def note(self, progress: Progress, now: int) -> None:
        """Takes in a report."""
        self.at_ms = now
        if progress.step > self.step:
            self.step, self.step_ms = progress.step, now
        self.gpu_busy, self.memory_gb = progress.gpu_busy, progress.memory_gb
        self.measures = self.measures or progress.gpu_busy > 0 or progress.memory_gb > 0
        if progress.gpu_busy >= BUSY_BELOW:
            self.busy_ms = now
        self._hear("progress", progress.step)
        if progress.samples_per_s:
            self._hear("samples_per_s", progress.samples_per_s)
        if self.measures:
            self._hear("utilization", 100 * progress.gpu_busy)
            self._hear("memory_mb", 1024 * progress.memory_gb)
        for name, value in progress.metrics.items():
            if len(self.names) < METRICS_MAX and len(name) <= NAME_MAX:
                self.names[name] = None
            if name in self.names:
                self._hear(name, value)

    def _hear(self, name: str, value: float) -> None:
        total, count = self.heard.get(name, (0.0, 0))
        self.heard[name] = (total + value, count + 1)

    def take(self) -> dict[str, float]:
        """The means of what was heard since this was last asked."""
        means = {name: total / count for name, (total, count) in self.heard.items()}
        self.heard = {}
        return means


class Loads:
    """What every running job has said, by job. Of jobs that never report nothing is known."""

    def __init__(self) -> None:
        self.said: dict[str, Said] = {}

    def note(self, body: Event | Plan, now: int) -> None:
        """Takes note of a record."""
        match body:
            case Progress(job=job, attempt=attempt):
                said = self.said.get(job)
                if said is None or said.attempt != attempt:
                    said = self.said[job] = Said(attempt, now, step_ms=now, busy_ms=now)
                said.note(body, now)
            case AttemptEnded(job=job) | JobCancelled(job=job):
                self.said.pop(job, None)

    def idle_jobs(self) -> set[str]:
        """Jobs that measure their GPUs and do not use them."""
        return {job for job, said in self.said.items() if said.measures and said.gpu_busy < BUSY_BELOW}

    def keep(self, running: set[str]) -> None:
        """Forgets all but some jobs: an attempt may end without a word of its own."""
        if len(self.said) > len(running):
            self.said = {job: said for job, said in self.said.items() if job in running}
