"""The sampler: how full the cluster is and how long the line, over the time of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from phalanx.engine.state import State
from phalanx.placement.fragmentation import fragmentation
from phalanx.simulate.ledger import FULL_PERMILLE
from phalanx.simulate.result import Timeline
from phalanx.workload.gang import Task
from phalanx.workload.job import Job

SAMPLES = 2_000
"""About how many samples a run has."""

FRAGMENTATION_EVERY = 8
"""Fragmentation is looked at once in so many samples: it goes through the whole mix of jobs."""


@dataclass(slots=True)
class Sampler:
    """Takes a sample when the time since the last one is up: at the first event after it, so that nothing ticks."""

    gpus: int
    every_ms: int
    mix: Mapping[Task, float]
    lender: Job | None
    at_ms: list[int] = field(default_factory=list)
    allocated: list[float] = field(default_factory=list)
    waiting_jobs: list[int] = field(default_factory=list)
    waiting_gpus: list[int] = field(default_factory=list)
    fragmentation: list[float] = field(default_factory=list)
    waiting_peak: int = 0
    next_ms: int = 0

    def look(self, state: State, held_permille: int) -> None:
        """Looks at the cluster after a turn."""
        if state.in_line > self.waiting_peak:
            self.waiting_peak = state.in_line
        if state.now < self.next_ms:
            return
        self.next_ms = state.now + self.every_ms
        self.at_ms.append(state.now)
        self.allocated.append(held_permille / FULL_PERMILLE / max(self.gpus, 1))
        self.waiting_jobs.append(state.in_line)
        self.waiting_gpus.append(state.in_line_gpus)
        self.fragmentation.append(self._fragmentation(state))

    def _fragmentation(self, state: State) -> float:
        if self.lender is None:
            return 0.0
        if (len(self.at_ms) - 1) % FRAGMENTATION_EVERY:
            return self.fragmentation[-1]
        return fragmentation(state.fit, self.mix, self.lender)

    def mean_fragmentation(self, end_ms: int) -> float | None:
        """The mean over time; None if there was nothing to look at."""
        if not self.at_ms:
            return None
        spans = [later - earlier for earlier, later in zip(self.at_ms, [*self.at_ms[1:], end_ms], strict=True)]
        total = sum(spans)
        return sum(map(_product, self.fragmentation, spans)) / total if total > 0 else 0.0

    def timeline(self) -> Timeline:
        """The samples as plain data."""
        return Timeline(
            [at / 1000 for at in self.at_ms],
            [round(share, 6) for share in self.allocated],
            list(self.waiting_jobs),
            list(self.waiting_gpus),
            [round(share, 6) for share in self.fragmentation],
        )


def _product(value: float, weight: float) -> float:
    return value * weight


def mix_of(jobs: Sequence[Job]) -> dict[Task, float]:
    """How often each kind of task is asked for, per job."""
    mix: dict[Task, float] = {}
    for job in jobs:
        task = job.gang.roles[0].task
        mix[task] = mix.get(task, 0.0) + 1.0
    return mix
