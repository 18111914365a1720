"""Forecasts: when pending jobs will start, by running the same decisions forward on forks of a State.

How long jobs will run and which will come is unknown. Each run draws both from what the State tells of the past;
the starts of several runs together are an interval. One forecast serves all pending jobs.

Of some jobs the past tells nothing. Every other run has them end at once, and the rest never: an interval is narrow
only where they do not matter, and where they do its end is not told.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from math import ceil, floor
from typing import NamedTuple

from phalanx.advice.registry import adviser
from phalanx.engine.state.journal import Count
from phalanx.engine.state.records import Phase
from phalanx.engine.state.state import State
from phalanx.protocol.action import Start
from phalanx.protocol.event import Event, JobSubmitted
from phalanx.simulate.calm import calm
from phalanx.simulate.forecasts.apart import apart
from phalanx.simulate.forecasts.chances import Chances, orders_of
from phalanx.simulate.forecasts.past import Past
from phalanx.simulate.run import Run
from phalanx.simulate.world.adopt import adopted
from phalanx.simulate.world.costs import Costs
from phalanx.simulate.world.work import Work
from phalanx.workload.job import Job, Kind

RUNS = 19
"""With 19 runs the second and the last but one bound 80 %: of 20 starts, the real one among them, 16 lie between."""

HORIZON_MS = 7 * 86_400_000
TURNS_MAX = 200_000
"""Turns of one run at most; one that has taken so many has its horizon where it is. Counted, and never timed."""

COMING_MAX = 10_000
"""Jobs that come in one run at most; the horizon is where the last of so many comes. After a burst of submissions more
of the like would come for as long as the horizon is far."""

ARRIVALS = ""
"""By which it is drawn how long jobs go on arriving; no job has such an id."""

MINUTE_MS = 60_000
STARTS_MAX = 800
"""Starts that a point forecast follows: counted, so that it takes a second or so, and never timed."""

EARLY, USUAL, LATE = 0.1, 0.5, 0.9


@dataclass(frozen=True, slots=True)
class Span:
    """When a job is expected to start: in eight of ten cases between `early_ms` and `late_ms`, half before `middle_ms`.

    None is beyond the horizon of the forecast. Where it is `open` it is unknown instead, since the job waits for jobs
    of whose lengths nothing is known; not even the earliest moment, if all of those may end at once. It is also
    where jobs that come later may delay it, and too few forecasts have come true to know by how much.
    """

    early_ms: int | None
    middle_ms: int | None
    late_ms: int | None
    open: bool = False

    @property
    def is_unproven(self) -> bool:
        """Whether it is open only since too few forecasts have come true: the runs themselves have an end."""
        return self.open and self.middle_ms is not None

    def is_over(self, now_ms: int) -> bool:
        """Whether its last moment has passed: its end or, where that is not told, when half of the runs had started."""
        last_ms = self.middle_ms if self.is_unproven else self.late_ms
        return last_ms is not None and last_ms < now_ms


@dataclass(frozen=True, slots=True)
class Forecast:
    """Made at a moment of a State, up to a horizon, from so many runs; a span for each job that was pending then.

    `next_end_ms` is the first moment at which any running job can end, by what is known.
    """

    at_ms: int
    horizon_ms: int
    runs: int
    spans: Mapping[str, Span]
    next_end_ms: int = 0

    def not_before_ms(self, job: str) -> int | None:
        """The moment before which a job is not expected to start; None if it is not in the forecast."""
        span = self.spans.get(job)
        if span is None:
            return None
        if span.early_ms is not None:
            return span.early_ms
        return self.at_ms if span.open else self.at_ms + self.horizon_ms


@dataclass(frozen=True, slots=True)
class Future:
    """One run ahead: when the pending jobs started in it, and up to when it looked."""

    starts: dict[str, int]
    until_ms: int


@dataclass(frozen=True, slots=True)
class Outlook:
    """How to look ahead. `workers` are processes at a time. What happens within `grain_ms` is decided on together."""

    runs: int = RUNS
    horizon_ms: int = HORIZON_MS
    seed: int = 0
    costs: Costs = field(default_factory=Costs)
    turns_max: int = TURNS_MAX
    grain_ms: int = 1
    workers: int = 1


class Watch(NamedTuple):
    """The jobs whose starts a run takes note of, and when it has seen enough of them."""

    jobs: Mapping[str, None]
    is_over: Callable[[Mapping[str, int]], bool]


def forecast(state: State, outlook: Outlook, jobs: Iterable[str] | None = None) -> Forecast:
    """When all pending jobs will start, or only some. Each run is a fork in a process of its own, so the State stays
    as it is.
    """
    waiting = waiting_jobs(state) if jobs is None else dict.fromkeys(jobs)
    past = Past(state)
    past.know_arrivals()
    unsaid = {name: None for name, job, done_ms in _open_jobs(state) if _is_unsaid(past, job, done_ms)}
    orders = orders_of(outlook.runs, outlook.seed)
    futures = apart(
        lambda number: run_ahead(
            state, past, waiting, outlook, Chances(number, outlook.seed, orders), unsaid if number % 2 == 0 else {}
        ),
        outlook.runs,
        outlook.workers,
    )
    told = {job: [future.starts.get(job) for future in futures] for job in waiting}
    spans = {
        job: _open(starts, state.now + outlook.costs.start_ms, outlook.grain_ms) if unsaid else span(starts)
        for job, starts in told.items()
    }
    horizon_ms = min(future.until_ms for future in futures) - state.now
    return Forecast(state.now, horizon_ms, outlook.runs, spans, state.now + _next_end_ms(state, past))


class Point(NamedTuple):
    """When a job is expected to start; or the moment up to which was looked, and it did not. None: unknown."""

    start_ms: int | None
    not_before_ms: int | None


def point_forecast(state: State, job: str, outlook: Outlook) -> Point:
    """When one of the first pending jobs will start, to the minute, if no job comes and all take as long as is usual.

    Much faster than a forecast with its interval: one run, which ends when the job starts or so many jobs have
    started. No pending job is left out: any may pass a job that does not fit.
    """
    (future,) = apart(lambda _: _run_short(state, job, outlook), 1, 1)
    start_ms, cut_short = future.starts.get(job), len(future.starts) >= STARTS_MAX
    return Point(start_ms, future.until_ms if start_ms is None and cut_short else None)


def _run_short(state: State, job: str, outlook: Outlook) -> Future:
    watch = Watch(waiting_jobs(state), lambda starts: job in starts or len(starts) >= STARTS_MAX)
    works = LikelyWorks(state, Past(state), lambda _: USUAL)
    future = _run(state, works, iter(()), watch, replace(outlook, grain_ms=MINUTE_MS))
    return replace(future, until_ms=state.now) if len(future.starts) >= STARTS_MAX else future


class LikelyWorks(Mapping[str, Work]):
    """What jobs have to do by what the past tells, at a part of all that is possible; some end as soon as they run.
    Worked out at a start: of many few start.
    """

    def __init__(self, state: State, past: Past, part: Callable[[str], float], at_once: Container[str] = ()) -> None:
        self._state, self._past, self._part, self._at_once = state, past, part, at_once
        self._known: dict[str, Work] = {}

    def __getitem__(self, name: str) -> Work:
        if name not in self._known:
            record = self._state.jobs[name]
            done_ms = record.executed_ms(self._state.now)
            drawn_ms = self._past.length_ms(record.job, done_ms, self._part(name))
            self._known[name] = Work(max(done_ms, 1) if name in self._at_once else drawn_ms, job=record.job)
        return self._known[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._state.jobs)

    def __len__(self) -> int:
        return len(self._state.jobs)


def waiting_jobs(state: State) -> dict[str, None]:
    """Jobs that have not started, but for those that are held or will never become eligible by themselves."""
    return {
        name: None
        for name, record in state.jobs.items()
        if record.final is None
        and not record.held
        and (record.attempt is None or record.attempt.phase is Phase.CLAIMED)
    }


def run_ahead(
    state: State,
    past: Past,
    waiting: Mapping[str, None],
    outlook: Outlook,
    chances: Chances,
    at_once: Container[str] = (),
) -> Future:
    """One possible future, in which some jobs are over as soon as they run. The State is not the same afterwards."""
    rng = chances.rng
    past = past.redrawn(rng)
    arriving = islice(past.coming(outlook.horizon_ms, rng, chances.part(ARRIVALS)), COMING_MAX)
    coming: list[tuple[int, Event]] = [(at_ms, JobSubmitted(job)) for at_ms, job in arriving]
    works = LikelyWorks(state, past, chances.part, at_once)
    if len(coming) == COMING_MAX:
        outlook = replace(outlook, horizon_ms=min(outlook.horizon_ms, coming[-1][0] - state.now))
    return _run(state, works, iter(coming), Watch(waiting, lambda starts: len(starts) == len(waiting)), outlook)


def _next_end_ms(state: State, past: Past) -> int:
    """How long it takes at least until the first running job can end; 0 if that is unknown, or none runs."""
    left = [
        (past.length_ms(job, done_ms, 0.0) or 0) - done_ms
        for name, job, done_ms in _open_jobs(state)
        if state.jobs[name].attempt is not None and job.kind is not Kind.SERVICE
    ]
    return max(min(left, default=0), 0)


def _is_unsaid(past: Past, job: Job, done_ms: int) -> bool:
    """Whether it is unknown how long a job takes. A service goes on until it is stopped, which is known."""
    return job.kind is not Kind.SERVICE and not past.is_known(job, done_ms)


def unsaid_jobs(state: State) -> list[str]:
    """Jobs that are not over and of which it is unknown how long they take: first those that run."""
    past, found = Past(state), list(_open_jobs(state))
    found.sort(key=lambda each: state.jobs[each[0]].attempt is None)
    return [name for name, job, done_ms in found if _is_unsaid(past, job, done_ms)]


def _open_jobs(state: State) -> Iterator[tuple[str, Job, int]]:
    """Jobs that are not over, and how long they have run."""
    for name, record in state.jobs.items():
        if record.final is None and not record.held:
            yield name, record.job, record.executed_ms(state.now)


def _run(
    state: State,
    works: Mapping[str, Work],
    coming: Iterator[tuple[int, Event]],
    watch: Watch,
    outlook: Outlook,
) -> Future:
    """Goes ahead until a watch is over, or to the horizon."""
    run = Run(adopted(state, works, outlook.costs), coming, state=state, journal=Count(state.seq + 1))
    if state.policy.adviser:
        run.adviser = adviser(state.policy.adviser)
    run.begin()
    until_ms = state.now + outlook.horizon_ms
    starts: dict[str, int] = {}
    at_ms: int | None = state.now
    with calm():
        for _ in range(outlook.turns_max):
            if at_ms is None or at_ms > until_ms or watch.is_over(starts):
                return Future(starts, until_ms)
            for action in run.turn(at_ms).actions:
                if isinstance(action, Start) and action.id.job in watch.jobs:
                    starts.setdefault(action.id.job, at_ms + outlook.costs.start_ms)
            at_ms = run.next_moment()
            if at_ms is not None:
                at_ms += -at_ms % outlook.grain_ms
    return Future(starts, state.now)


def _open(starts: list[int | None], soonest_ms: int, grain_ms: int) -> Span:
    """The interval where there are jobs of which nothing is known: without an end, or without anything, if it depends
    on them.
    """
    made = span(starts)
    if made.late_ms is not None:
        return made
    is_at_once = made.early_ms is None or made.early_ms < soonest_ms + grain_ms
    return Span(None if is_at_once else made.early_ms, None, None, open=True)


def span(starts: list[int | None]) -> Span:
    """The interval of several starts: such that of one more, drawn alike, the asked part of all lies inside."""
    ordered = sorted(start for start in starts if start is not None)
    count = len(starts) + 1

    def ranked(rank: int) -> int | None:
        return ordered[rank - 1] if 1 <= rank <= len(ordered) else None

    return Span(
        ranked(max(floor(EARLY * count), 1)), ranked(round(count / 2)), ranked(min(ceil(LATE * count), len(starts)))
    )
