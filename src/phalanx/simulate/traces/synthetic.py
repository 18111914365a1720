"""Synthetic traces: jobs drawn from a shape, as many as wanted, at exactly the load wanted, all from one seed."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import cos, isfinite, pi
from random import Random
from typing import Generic, TypeVar

from phalanx.simulate.trace import Ending, Trace, TraceJob
from phalanx.simulate.traces.error import TraceError
from phalanx.simulate.traces.load import at_load as at_load
from phalanx.simulate.traces.shapes import DURATION_MIN_MS, SHAPES, Shape, Size
from phalanx.workload.job import Kind

HOUR_MS = 3_600_000
HOURS_A_DAY, HOURS_A_WEEK = 24, 168
WEEKEND_FROM = 120
"""Hours from the beginning of Monday to that of Saturday."""
BUSIEST_HOUR = 14

SWEEP_MIN, SWEEP_MEAN = 5, 33
"""Jobs of a sweep. The mean is that of bursts (five jobs or more of one size and queue, each within 30 s of the one
before) in the distilled Philly trace; 64 % of its jobs come in such bursts."""
SWEEP_GAP_MS = 5_000
SWEEP_KEPT = 0.25
"""The rest is cancelled early, as a search does that goes on with its best quarter."""
SWEEP_CUT = (0.05, 0.3)
"""The part of its duration that a job has run when it is cancelled."""

DEADLINE_SLACK = (1.2, 3.0)
DEADLINE_ROOM_MS = 600_000
"""A deadline leaves the duration times a slack, and this much for starting."""

SERVICE_GPUS = (1, 2, 4)
SERVICE_PRIORITY = 200
"""The least of the production band of the policy `priority`."""

JOBS_MAX, QUEUES_MAX, USERS_MAX = 10_000_000, 50_000, 10_000
"""The most that can be made: a trace is made in memory."""

_Item = TypeVar("_Item")


@dataclass(frozen=True, slots=True)
class Synthetic:
    """A trace to be made: so many jobs at an offered load on so many GPUs. Shares are of jobs, 0 to 1.

    `sweeps` is the share of jobs that come in groups of equal ones, of which most are cancelled early. `failed` and
    `cancelled` are shares of the other jobs, those of the shape if None. `services` of the jobs are services that
    run from the beginning to the end. `elastic` jobs do with half their GPUs and use up to four times as many.
    """

    jobs: int
    gpus: int
    load: float
    shape: str = "philly"
    queues: int = 8
    users_per_queue: int = 8
    sweeps: float = 0.0
    failed: float | None = None
    cancelled: float | None = None
    services: int = 0
    elastic: float = 0.0
    deadlines: float = 0.0


def synthesize(spec: Synthetic, seed: int) -> Trace:
    """Makes a trace; equal specs and seeds make equal traces. Time 0 is midnight before a Monday.

    Sizes, durations and endings are drawn first. They say how long the trace is to be for its load, and submissions
    are then drawn over that time at a rate that follows day and week.
    """
    _check(spec)
    rng = Random(seed)
    workload = _Workload(spec, rng)
    services = workload.services()
    groups = workload.groups(spec.jobs - spec.services)
    span_ms = _span_ms(spec, groups, services)
    for service in services:
        service.duration_ms = span_ms
    drafts = [*services, *(draft for group in groups for draft in group)]
    times = [0] * len(services) + _submissions(groups, _Calendar(workload.shape, span_ms), rng)
    submitted = sorted(zip(_stretched(times, span_ms), drafts, strict=True), key=lambda pair: pair[0])
    jobs = tuple(workload.job(number, at_ms, draft) for number, (at_ms, draft) in enumerate(submitted, start=1))
    return Trace(f"{spec.shape}-{spec.jobs}-seed{seed}", jobs)


def _check(spec: Synthetic) -> None:
    if spec.shape not in SHAPES:
        raise TraceError("synthetic trace", f"there is no shape {spec.shape!r} (there is: {', '.join(SHAPES)})")
    shape = SHAPES[spec.shape]
    failed, cancelled = _endings(spec, shape)
    expectations = (
        (2 <= spec.jobs <= JOBS_MAX, f"2 to {JOBS_MAX} jobs, got {spec.jobs}"),
        (spec.gpus >= min(size.gpus for size in shape.sizes), f"1 GPU or more, got {spec.gpus}"),
        (isfinite(spec.load) and spec.load > 0, f"a load above 0, got {spec.load}"),
        (1 <= spec.queues <= QUEUES_MAX, f"1 to {QUEUES_MAX} queues, got {spec.queues}"),
        (1 <= spec.users_per_queue <= USERS_MAX, f"1 to {USERS_MAX} users a queue, got {spec.users_per_queue}"),
        (0 <= spec.services < spec.jobs, f"0 to {spec.jobs - 1} services, got {spec.services}"),
        (0 <= failed <= 1 and 0 <= cancelled <= 1, f"shares of failed and cancelled jobs, got {failed}, {cancelled}"),
        (failed + cancelled <= 1, f"no more failed and cancelled jobs than all, got {failed} and {cancelled}"),
        (0 <= spec.sweeps <= 1, f"a share of jobs in sweeps, 0 to 1, got {spec.sweeps}"),
        (0 <= spec.elastic <= 1, f"a share of elastic jobs, 0 to 1, got {spec.elastic}"),
        (0 <= spec.deadlines <= 1, f"a share of jobs with deadlines, 0 to 1, got {spec.deadlines}"),
    )
    for is_met, expected in expectations:
        if not is_met:
            raise TraceError("synthetic trace", f"expected {expected}")


def _endings(spec: Synthetic, shape: Shape) -> tuple[float, float]:
    """Shares of failed and of cancelled jobs."""
    failed = shape.failed if spec.failed is None else spec.failed
    return failed, shape.cancelled if spec.cancelled is None else spec.cancelled


class _Choice(Generic[_Item]):
    """Draws items by their weights."""

    def __init__(self, items: Sequence[_Item], weights: Iterable[float]) -> None:
        self.items = items
        *self.bounds, self.total = accumulate(weights)

    def draw(self, rng: Random) -> _Item:
        return self.items[bisect(self.bounds, rng.random() * self.total)]


def _zipf(count: int, skew: float) -> list[float]:
    return [1 / rank**skew for rank in range(1, count + 1)]


@dataclass(slots=True)
class _Draft:
    """A job before it is known when it is submitted."""

    gpus: int
    duration_ms: int
    queue: str
    user: str
    model: str = ""
    ending: Ending = Ending.COMPLETED
    kind: Kind = Kind.TRAINING


class _Workload:
    """Draws jobs of a shape."""

    def __init__(self, spec: Synthetic, rng: Random) -> None:
        self.spec, self.rng = spec, rng
        self.shape = SHAPES[spec.shape]
        self.failed, self.cancelled = _endings(spec, self.shape)
        sizes = [size for size in self.shape.sizes if size.gpus <= spec.gpus]
        self.sizes: _Choice[Size] = _Choice(sizes, (size.share for size in sizes))
        queues = [f"q{i}" for i in range(spec.queues)]
        self.queues: _Choice[str] = _Choice(queues, _zipf(spec.queues, self.shape.queue_skew))
        self.users = {
            queue: _Choice(
                [f"{queue}-u{i}" for i in range(spec.users_per_queue)],
                _zipf(spec.users_per_queue, self.shape.queue_skew),
            )
            for queue in queues
        }

    def services(self) -> list[_Draft]:
        """Services; how long they run is not known yet."""
        sizes = [size for size in SERVICE_GPUS if size <= self.spec.gpus]
        drafts = []
        for _ in range(self.spec.services):
            queue = self.queues.draw(self.rng)
            user = self.users[queue].draw(self.rng)
            drafts.append(_Draft(self.rng.choice(sizes), 0, queue, user, kind=Kind.SERVICE))
        return drafts

    def groups(self, count: int) -> list[list[_Draft]]:
        """So many jobs, in groups that are submitted together: single jobs and sweeps."""
        share = self.spec.sweeps
        # Of all jobs `share` shall be in sweeps, so among groups sweeps are rarer by what they are larger.
        sweep = share / (SWEEP_MEAN * (1 - share) + share)
        groups: list[list[_Draft]] = []
        while count:
            group = self._sweep(count) if self.rng.random() < sweep else [self._ended(self._single())]
            groups.append(group)
            count -= len(group)
        return groups

    def _single(self) -> _Draft:
        rng = self.rng
        size = self.sizes.draw(rng)
        queue = self.queues.draw(rng)
        model = self.shape.models[int(rng.random() * len(self.shape.models))]
        return _Draft(size.gpus, size.draw_ms(rng), queue, self.users[queue].draw(rng), model)

    def _ended(self, job: _Draft) -> _Draft:
        """A job that fails mostly fails early; one that is cancelled has run as long as the rest."""
        at = self.rng.random()
        if at < self.failed:
            job.ending = Ending.FAILED
            job.duration_ms = max(DURATION_MIN_MS, round(job.duration_ms * self.rng.random() ** 3))
        elif at < self.failed + self.cancelled:
            job.ending = Ending.CANCELLED
        return job

    def _sweep(self, most: int) -> list[_Draft]:
        rng, model = self.rng, self._single()
        count = SWEEP_MIN + int(rng.expovariate(1 / (SWEEP_MEAN - SWEEP_MIN)))
        jobs = []
        for _ in range(min(count, most)):
            job = _Draft(model.gpus, model.duration_ms, model.queue, model.user, model.model)
            if rng.random() >= SWEEP_KEPT:
                job.ending = Ending.CANCELLED
                job.duration_ms = max(DURATION_MIN_MS, round(job.duration_ms * rng.uniform(*SWEEP_CUT)))
            jobs.append(job)
        return jobs

    def job(self, number: int, submit_ms: int, draft: _Draft) -> TraceJob:
        """The job, once it is known when it is submitted."""
        is_training = draft.kind is Kind.TRAINING
        least = most = 0
        if is_training and self.rng.random() < self.spec.elastic:
            least, most = max(1, draft.gpus // 2), min(4 * draft.gpus, self.spec.gpus)
        deadline_ms = None
        if is_training and self.rng.random() < self.spec.deadlines:
            deadline_ms = self._deadline_ms(submit_ms, draft.duration_ms)
        return TraceJob(
            str(number),
            submit_ms,
            draft.duration_ms,
            draft.gpus,
            draft.queue,
            draft.user,
            priority=0 if is_training else SERVICE_PRIORITY,
            model=draft.model,
            ending=draft.ending,
            min_gpus=least,
            max_gpus=most,
            deadline_ms=deadline_ms,
            kind=draft.kind,
        )

    def _deadline_ms(self, submit_ms: int, duration_ms: int) -> int:
        return submit_ms + DEADLINE_ROOM_MS + round(duration_ms * self.rng.uniform(*DEADLINE_SLACK))


def _span_ms(spec: Synthetic, groups: list[list[_Draft]], services: list[_Draft]) -> int:
    """How long jobs must be submitted for the load: (work + services · span) / (GPUs · span) = load."""
    work = sum(draft.gpus * draft.duration_ms for group in groups for draft in group)
    gpus = spec.gpus * spec.load - sum(service.gpus for service in services)
    if gpus <= 0:
        reason = f"its services alone are more than a load of {spec.load} on {spec.gpus} GPUs: make fewer, or more load"
        raise TraceError("synthetic trace", reason)
    return max(1, round(work / gpus))


class _Calendar:
    """Where arrivals fall in a span of time: their rate is constant within an hour and repeats every week."""

    def __init__(self, shape: Shape, span_ms: int) -> None:
        rates = [_rate(shape, hour) for hour in range(HOURS_A_WEEK)]
        self.rates = rates
        self.before = [0.0, *accumulate(rates)]
        weeks, rest = divmod(span_ms / HOUR_MS, HOURS_A_WEEK)
        hour = int(rest)
        self.total = weeks * self.before[-1] + self.before[hour] + rates[hour] * (rest - hour)

    def at_ms(self, part: float) -> int:
        """When this part of all arrivals has arrived: the inverse of the rate summed up."""
        weeks, rest = divmod(part * self.total, self.before[-1])
        hour = min(bisect(self.before, rest), HOURS_A_WEEK) - 1
        return int((weeks * HOURS_A_WEEK + hour + (rest - self.before[hour]) / self.rates[hour]) * HOUR_MS)


def _rate(shape: Shape, hour: int) -> float:
    over_the_day = 1 + shape.day_swing * cos(2 * pi * (hour % HOURS_A_DAY - BUSIEST_HOUR) / HOURS_A_DAY)
    return over_the_day * (shape.weekend if hour >= WEEKEND_FROM else 1.0)


def _submissions(groups: list[list[_Draft]], calendar: _Calendar, rng: Random) -> list[int]:
    """A time for each job. Given how many arrive, arrivals of a Poisson process are independent of one another."""
    times = []
    for group, at_ms in zip(groups, sorted(calendar.at_ms(rng.random()) for _ in groups), strict=True):
        times.append(at_ms)
        for _ in group[1:]:
            at_ms += int(rng.random() * SWEEP_GAP_MS)
            times.append(at_ms)
    return times


def _stretched(times: list[int], span_ms: int) -> list[int]:
    """Times moved by little, so that the first is 0 and the last is the span: else the load would not be exact."""
    first, last = min(times), max(times)
    if first == last:
        return [0] * (len(times) - 1) + [span_ms]
    return [(at_ms - first) * span_ms // (last - first) for at_ms in times]
