"""The past: how long jobs of a queue have run and when they came, to draw what may come next from."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Iterator
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property
from random import Random

from phalanx.engine.fold.check import takes
from phalanx.engine.state.records import JobRecord, shape_of
from phalanx.engine.state.state import State
from phalanx.policy.policy import Minds
from phalanx.workload.job import Job, Kind

DAY_MS = 86_400_000
SAMPLES_MIN = 20
"""Ended jobs below which those of a queue say too little, and those of all queues are asked."""

EVIDENCE_MIN = 9
"""Ended jobs of which the first and the last bound 80 %: fewer are no evidence of how long others take."""

NEAREST = 2
"""How many times each is counted of jobs that said another length: in two ways."""

PART_MAX = 0.99
"""The most of what is possible that is drawn past all that is known, where there is no longest."""

FORECAST_MARK = "~"
"""Begins the ids of jobs that are expected to arrive; no submitted job has such an id."""


class Lengths:
    """How long jobs that are alike run: the estimator of Kaplan and Meier (JASA 1958).

    Jobs that still run count as well, as lasting at least so long: else the long ones, which have not ended yet, would
    be missing.
    """

    def __init__(self, ended: list[float], running: list[float]) -> None:
        self.ended = sorted(ended)
        self._cumulated: list[float] = []
        running = sorted(running)
        left = 1.0
        for i, length in enumerate(self.ended):
            at_risk = len(self.ended) - i + len(running) - bisect_left(running, length)
            left *= 1.0 - 1.0 / at_risk
            self._cumulated.append(1.0 - left)

    def __len__(self) -> int:
        return len(self.ended)

    def longer_than(self, done: float, part: float) -> float:
        """The length that this part of those that last longer does not exceed.

        Past all known one lasts twice as long as it has with a chance of one half, ten times with one tenth, as was
        measured of processes of Unix (Harchol-Balter and Downey, SIGMETRICS 1996). That some still run which have run
        longer tells only that one may: taken as the length of all that are left, it made forecasts far too sure.
        """
        before = bisect_right(self.ended, done)
        passed = self._cumulated[before - 1] if before else 0.0
        sought = passed + part * (1.0 - passed)
        at = bisect_left(self._cumulated, sought, before)
        if at < len(self.ended):
            return self.ended[at]
        known = max(passed, *self._cumulated[-1:], 0.0)
        beyond = (sought - known) / (1.0 - known) if known < 1.0 else part
        return max(done, *self.ended[-1:]) / (1.0 - min(beyond, PART_MAX))


@dataclass(slots=True)
class Observed:
    """Run times of jobs that are alike: of those that are over, and of those that still run.

    A job that was cancelled is over: others like it will be, too, and what counts is when devices come free. Taken as
    jobs that would have run longer, they made forecasts come true much less often.
    """

    ended: list[float] = field(default_factory=list)
    running: list[float] = field(default_factory=list)

    def add(self, length: float, is_over: bool) -> None:
        """Takes note of one."""
        (self.ended if is_over else self.running).append(length)

    def take(self, other: Observed, times: float) -> None:
        """Takes note of all that others have, each so many times as long."""
        self.ended += [times * length for length in other.ended]
        self.running += [times * length for length in other.running]

    def redrawn(self, rng: Random) -> Observed:
        """As many, drawn from these: what might as well have been observed (the bootstrap of Efron, 1979)."""
        drawn, count = Observed(), len(self.ended)
        for _ in range(count + len(self.running)):
            at = int(rng.random() * (count + len(self.running)))
            drawn.add(self.ended[at] if at < count else self.running[at - count], is_over=at < count)
        return drawn if drawn.ended else self


PRIOR = Observed([0.2, 0.4, 0.6, 0.8, 1.0, 1.0, 1.0], [1.0, 1.0])
"""Which part of what they say jobs take, until enough have ended here: of nine four end sooner, at any moment alike,
three take what they say, which so is what is usual, and two outlast it. Of logged estimates the used part is spread
evenly but for a peak at the whole (Mu'alem and Feitelson, IEEE TPDS 2001), where jobs were stopped then; here none is.
"""

Group = tuple[str, str, int]
"""What is measured, the queue, and the size: the `length` in milliseconds by GPUs; by the magnitude of what was said
`said`, likewise in milliseconds, and `ratio`, which is the part of it."""


class Past:
    """What a State tells of the jobs that were.

    Of a job that says how long it takes, the queue's own jobs say how far such estimates are off. Of one that does not,
    they say how long jobs of its size take; where too few have ended, nothing is known of it. Jobs arrive as they did
    on earlier days at the same time of day.
    """

    def __init__(self, state: State) -> None:
        self.now = state.now
        self._state = state
        self._observed: dict[Group, Observed] = {}
        self._lengths: dict[Group, Lengths] = {}
        self._rng: Random | None = None
        for record in state.jobs.values():
            length_ms = record.executed_ms(state.now)
            if length_ms and record.job.kind is not Kind.SERVICE:
                self._observe(record, length_ms)
        self._jobs = state.jobs

    @cached_property
    def arrivals(self) -> list[tuple[int, Job]]:
        """When which jobs came: not every forecast asks."""
        arrivals = [
            (record.submitted_ms, record.job)
            for record in self._jobs.values()
            if record.job.kind is not Kind.SERVICE and record.job.array is None and not record.job.after
        ]
        arrivals.sort(key=lambda arrival: arrival[0])
        return arrivals

    def _observe(self, record: JobRecord, length_ms: int) -> None:
        """Takes note of how long a job has run, for those of its queue and of all."""
        job, is_over = record.job, record.final is not None
        for queue in (job.queue, ""):
            alike = self._observed.setdefault(("length", queue, _size(job)), Observed())
            alike.add(float(length_ms), is_over)
            if job.duration_ms:
                long = _magnitude(job.duration_ms)
                ratio = length_ms / job.duration_ms
                self._observed.setdefault(("ratio", queue, long), Observed()).add(ratio, is_over)
                self._observed.setdefault(("said", queue, long), Observed()).add(float(length_ms), is_over)

    def redrawn(self, rng: Random) -> Past:
        """Another past that might as well have been, for runs that are not all wrong in the same way."""
        other = copy(self)
        other._lengths, other._rng = {}, rng
        return other

    def length_ms(self, job: Job, executed_ms: int, part: float) -> int | None:
        """How long a job that has run for so long may run in all; None if nothing is known of such jobs.

        `part` says where among all that is possible: 0.5 is what is usual, one drawn from 0 to 1 is by chance.
        """
        if not self.is_known(job, executed_ms):
            return None
        # Every attempt may run so long; when this one began is not known here, and the run ahead stops it in time.
        most_ms = executed_ms + (job.max_run_ms or 0)
        if job.duration_ms:
            length_ms = round(self._said(job, job.duration_ms).longer_than(executed_ms, part))
        else:
            known = self._told("length", job)
            length_ms = round(known.longer_than(executed_ms, part)) if known is not None else most_ms
        return max(min(length_ms, most_ms), 1) if job.max_run_ms else max(length_ms, 1)

    def is_known(self, job: Job, executed_ms: int) -> bool:
        """Whether anything is known of how long a job takes that has run for so long.

        It says so itself, or it will be stopped by then; or enough jobs of its size have ended, and not all of them
        sooner than it.
        """
        if job.kind is Kind.SERVICE:
            return False
        if job.duration_ms or job.max_run_ms:
            return True
        group = self._group("length", job)
        return group is not None and max(self._observed[group].ended) > executed_ms

    def _group(self, what: str, job: Job) -> Group | None:
        """Of the queue's own jobs and of all those that say enough of a job, if any: first those most like it.

        What is said of lengths by jobs of other sizes is nothing: large jobs take much longer than small ones.
        """
        size = _magnitude(job.duration_ms) if job.duration_ms else _size(job)
        groups = ((what, job.queue, size), (what, "", size))
        counts = {group: len(self._observed[group].ended) for group in groups if group in self._observed}
        enough = (group for group, count in counts.items() if count >= SAMPLES_MIN)
        few = (group for group, count in reversed(counts.items()) if count >= EVIDENCE_MIN)
        return next(enough, next(few, None))

    def _said(self, job: Job, said_ms: int) -> Lengths:
        """How long jobs take that say what one does. Where too few have said anything, jobs count of which it is
        known from elsewhere.
        """
        key = ("said_ms", job.queue, said_ms)
        if key in self._lengths:
            return self._lengths[key]
        group, found = self._group("ratio", job), Observed()
        if group is not None:
            found.take(self._observed[group], said_ms)
        else:
            found = self._nearest(said_ms)
        if group is None and len(found.ended) < NEAREST * EVIDENCE_MIN:
            for _ in range(NEAREST):
                found.take(PRIOR, said_ms)
        elif self._rng is not None:
            found = found.redrawn(self._rng)
        made = self._lengths[key] = Lengths(found.ended, found.running)
        return made

    def _nearest(self, said_ms: int) -> Observed:
        """How long jobs took that came nearest to saying as much: as long as they did, or in the same proportion to
        what was said. It is not known which: a week is said of long jobs, and of short ones by users that do not care.
        """
        mine, found = _magnitude(said_ms), Observed()
        longs = sorted((long for what, queue, long in self._observed if (what, queue) == ("said", "")))
        for long in sorted(longs, key=lambda long: abs(long - mine)):
            if len(found.ended) < NEAREST * SAMPLES_MIN:
                found.take(self._observed["ratio", "", long], said_ms)
                found.take(self._observed["said", "", long], 1.0)
        return found

    def _told(self, what: str, job: Job) -> Lengths | None:
        """What is known of jobs like one."""
        group = self._group(what, job)
        if group is None:
            return None
        if group not in self._lengths:
            observed = self._observed[group] if self._rng is None else self._observed[group].redrawn(self._rng)
            self._lengths[group] = Lengths(observed.ended, observed.running)
        return self._lengths[group]

    def coming(self, horizon_ms: int, rng: Random, part: float) -> Iterator[tuple[int, Job]]:
        """Jobs that may arrive up to a horizon, in order of time, for as long as they go on arriving.

        That is as long again as they have so far with a chance of one half, nine times as long with one tenth, like
        all that lasts and nothing else is known of. A rush of an hour that never ended would be one of days: under
        policies by which later jobs go first a job would wait for all of it. `part` says where among all that is
        possible.
        """
        arrivals = self._repeatable
        times = [at_ms for at_ms, _ in arrivals]
        if len(times) < SAMPLES_MIN or times[-1] == times[0]:
            return
        horizon_ms = min(horizon_ms, round((self.now - times[0]) * part / (1.0 - part)))
        block_ms = min(DAY_MS, self.now - times[0])
        blocks = max((self.now - times[0]) // block_ms, 1)
        number = 0
        for later_ms in range(0, horizon_ms, block_ms):
            since_ms = self.now - block_ms * (1 + int(rng.random() * blocks))
            shift_ms = self.now + later_ms - since_ms
            for at in range(bisect_left(times, since_ms), bisect_left(times, since_ms + block_ms)):
                at_ms, job = arrivals[at]
                if at_ms + shift_ms > self.now + horizon_ms:
                    return
                number += 1
                yield at_ms + shift_ms, _again(job, number, shift_ms)

    def know_arrivals(self) -> None:
        """Works out now which jobs may come again: once for all runs that are forked from here."""
        _ = self._repeatable

    @cached_property
    def _repeatable(self) -> list[tuple[int, Job]]:
        """Arrivals of which the like would be taken on today: queues may have gone since, levels, or limits sunk."""
        taken: dict[Hashable, bool] = {}
        found = []
        for arrival in self.arrivals:
            job = arrival[1]
            kind = shape_of(job, Minds.QUEUES)
            if kind not in taken:
                taken[kind] = takes(self._state, job)
            if taken[kind]:
                found.append(arrival)
        return found


def _size(job: Job) -> int:
    """Sizes that are taken to be alike: 1, 2, 3 to 4, 5 to 8, … GPUs; from 1 on, since 0 is any size."""
    return 1 + max(job.gang.gpus_max - 1, 0).bit_length()


def _magnitude(length_ms: int) -> int:
    """Lengths up to four times as long are taken to be alike: of the longest estimates most are too long."""
    return 1 + length_ms.bit_length() // 2


def _again(job: Job, number: int, shift_ms: int) -> Job:
    """A job like one that was, to come."""
    deadline_ms = job.deadline_ms + shift_ms if job.deadline_ms is not None else None
    return replace(job, id=f"{FORECAST_MARK}{number}", begin_ms=None, deadline_ms=deadline_ms)
