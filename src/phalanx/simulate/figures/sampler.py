"""The sampler: how full the cluster is and how many jobs are pending, over the time of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from math import fsum
from random import Random

from phalanx.engine.state.state import State
from phalanx.placement.fragmentation import fragmentation
from phalanx.simulate.figures.ledger import FULL_PERMILLE
from phalanx.simulate.figures.quota_use import QuotaUse, joined_use, quota_use
from phalanx.simulate.figures.result import Timeline
from phalanx.workload.gang import Task
from phalanx.workload.job import Job

STRETCHES_MAX = 4_000
"""When a run has so many stretches of time, neighbours become one until there are half as many."""


@dataclass(slots=True)
class Stretch:
    """A stretch of time. What was allocated and waited for is summed up, each times the milliseconds it lasted."""

    begin_ms: int
    span_ms: int = 0
    allocated: float = 0.0
    waiting_jobs: int = 0
    waiting_gpus: int = 0
    fragmentation: float = 0.0
    quotas: Mapping[str, QuotaUse] = field(default_factory=dict)

    def add(self, later: Stretch) -> None:
        """Makes it one with the stretch that follows."""
        span_ms = self.span_ms + later.span_ms
        lost = self.fragmentation * self.span_ms + later.fragmentation * later.span_ms
        self.fragmentation = lost / span_ms if span_ms else later.fragmentation
        self.quotas = joined_use((self.quotas, self.span_ms), (later.quotas, later.span_ms))
        self.span_ms = span_ms
        self.allocated += later.allocated
        self.waiting_jobs += later.waiting_jobs
        self.waiting_gpus += later.waiting_gpus


@dataclass(slots=True)
class Sampler:
    """Sums up what lasts from turn to turn: nothing ticks, and nothing between two looks is missed.

    Fragmentation goes through the whole mix of jobs, and the use of quotas through all that are pending, which would be
    too much for every turn. They are looked at once in a stretch, at a moment drawn evenly from all of its
    milliseconds: so their means over time are those of the run, but for chance, however the turns fall. Stretches begin
    at `every_ms` and get longer as a run does. One in which nothing happens is as long as that lasts: as long as there
    is a stretch for every turn, the means are exact.
    """

    gpus: int
    every_ms: int
    mix: Mapping[Task, float]
    lender: Job | None
    now_ms: int = 0
    """Up to where time has passed. Before the first submission, that is where it begins."""
    past: list[Stretch] = field(default_factory=list)
    present: Stretch = field(init=False)
    waiting_peak: int = 0
    _begun: int = 0
    _end_ms: int = 0
    _due_ms: int = 0
    _looked: bool = True

    def __post_init__(self) -> None:
        self.present = Stretch(self.now_ms)
        self._end_ms = self._due_ms = self.now_ms

    def pass_time(self, state: State, held_permille: int, until_ms: int) -> None:
        """Nothing changes from the moment that was reached until another."""
        if state.in_line > self.waiting_peak:
            self.waiting_peak = state.in_line
        if until_ms > self._due_ms:
            self._pass_stretches(state, held_permille, until_ms)
        if until_ms > self.now_ms:
            self._sum_up(state, held_permille, until_ms)

    def _sum_up(self, state: State, held_permille: int, until_ms: int) -> None:
        span_ms, present = until_ms - self.now_ms, self.present
        present.span_ms += span_ms
        present.allocated += span_ms * held_permille / (FULL_PERMILLE * self.gpus or 1)
        present.waiting_jobs += span_ms * state.in_line
        present.waiting_gpus += span_ms * state.in_line_gpus
        self.now_ms = until_ms

    def _pass_stretches(self, state: State, held_permille: int, until_ms: int) -> None:
        """Looks at the State where the moment for it has come, and begins new stretches, up to a moment.

        What ends just then is left open: only with the next turn it is known how long the one after it will be.
        """
        found: tuple[float, Mapping[str, QuotaUse]] | None = None
        while until_ms > self._due_ms:
            if self._looked:
                self._sum_up(state, held_permille, self._end_ms)
                self._end()
                self._begin(self._end_ms, until_ms)
            else:
                found = self._look(state) if found is None else found
                self.present.fragmentation, self.present.quotas = found
                self._looked, self._due_ms = True, self._end_ms

    def _begin(self, at_ms: int, lasts_ms: int) -> None:
        """Begins a stretch at a moment, knowing up to which other nothing happens."""
        self.present = Stretch(at_ms)
        length_ms = max(self.every_ms, (lasts_ms - at_ms) // self.every_ms * self.every_ms)
        self._end_ms, self._looked = at_ms + length_ms, False
        # By the number of the stretch, since a run must be the same whenever it is repeated.
        self._due_ms = at_ms + Random(self._begun).randrange(length_ms)
        self._begun += 1

    def _end(self) -> None:
        """Ends the present stretch; where there are too many, makes them fewer and longer."""
        if self.present.span_ms:
            self.past.append(self.present)
        if len(self.past) >= STRETCHES_MAX:
            while len(self.past) > STRETCHES_MAX // 2:
                self.every_ms *= 2
                self.past = _joined(self.past, self.every_ms)

    def _look(self, state: State) -> tuple[float, Mapping[str, QuotaUse]]:
        lost = 0.0 if self.lender is None else fragmentation(state.fit, self.mix, self.lender)
        return lost, quota_use(state)

    def seen(self, state: State, held_permille: int, end_ms: int) -> list[Stretch]:
        """The stretches from the first submission to an end; none if that was before. The run can still go on."""
        if not self.mix or end_ms < (self.past[0] if self.past else self.present).begin_ms:
            return []
        ahead = copy(self)
        ahead.past, ahead.present = list(self.past), replace(self.present)
        ahead.pass_time(state, held_permille, end_ms)
        if not ahead._looked:
            ahead.present.fragmentation, ahead.present.quotas = ahead._look(state)
        return _ending(ahead.past + [ahead.present] * (ahead.present.span_ms > 0 or not ahead.past), end_ms)


def _joined(stretches: Sequence[Stretch], span_ms: int) -> list[Stretch]:
    """The same time, in stretches of which no two neighbours would be one of at most this length."""
    joined: list[Stretch] = []
    is_copy = False
    for stretch in stretches:
        if joined and joined[-1].span_ms + stretch.span_ms <= span_ms:
            if not is_copy:
                joined[-1], is_copy = replace(joined[-1]), True
            joined[-1].add(stretch)
        else:
            joined.append(stretch)
            is_copy = False
    return joined


def _ending(stretches: Sequence[Stretch], end_ms: int) -> list[Stretch]:
    """Without what comes after the last job has ended, when nothing is held and no job is pending."""
    kept = [replace(each) for each in stretches if each.begin_ms < end_ms or each is stretches[0]]
    kept[-1].span_ms = min(kept[-1].span_ms, end_ms - kept[-1].begin_ms)
    return kept


def mean_fragmentation(stretches: Sequence[Stretch]) -> float | None:
    """The mean over time; None if there was nothing to look at."""
    if not stretches:
        return None
    total_ms = sum(each.span_ms for each in stretches)
    if not total_ms:
        return stretches[-1].fragmentation
    return fsum(each.fragmentation * each.span_ms for each in stretches) / total_ms


def timeline_of(stretches: Sequence[Stretch]) -> Timeline:
    """Stretches as plain data: of each when it begins and the means in it."""
    end_s = (stretches[-1].begin_ms + stretches[-1].span_ms) / 1000 if stretches else None
    return Timeline(
        [each.begin_ms / 1000 for each in stretches],
        [_mean(each.allocated, each) for each in stretches],
        [_mean(each.waiting_jobs, each) for each in stretches],
        [_mean(each.waiting_gpus, each) for each in stretches],
        [round(each.fragmentation, 6) for each in stretches],
        end_s,
    )


def _mean(summed_up: float, stretch: Stretch) -> float:
    return round(summed_up / (stretch.span_ms or 1), 6)


def mix_of(jobs: Sequence[Job]) -> dict[Task, float]:
    """How often each kind of task is asked for, per job."""
    mix: dict[Task, float] = {}
    for job in jobs:
        task = job.gang.roles[0].task
        mix[task] = mix.get(task, 0.0) + 1.0
    return mix
