"""How often the real start lies within the forecast interval: on the half of a trace that no forecast has seen."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from random import Random
from statistics import median

from phalanx.cluster.cluster import Cluster
from phalanx.cluster.topology import Topology
from phalanx.engine.state.state import State
from phalanx.protocol.event import Event, JobSubmitted
from phalanx.simulate.forecasts.forecast import Forecast, Outlook, forecast
from phalanx.simulate.run import Run
from phalanx.simulate.submission import Submitter
from phalanx.simulate.trace import Trace
from phalanx.simulate.world.costs import Costs
from phalanx.simulate.world.speed import SpeedModel
from phalanx.simulate.world.virtual import VirtualBackend
from phalanx.simulate.world.work import Work


@dataclass(frozen=True, slots=True)
class Calibration:
    """How many starts were forecast, how many of them came within their interval, and before or after it.

    `endless` are intervals without an end, which no start comes after; `widths_ms` and `waits_ms` are how wide the
    others were and how long those jobs really waited.
    """

    starts: int
    inside: int
    early: int
    late: int
    endless: int = 0
    widths_ms: tuple[int, ...] = ()
    waits_ms: tuple[int, ...] = ()

    @property
    def coverage(self) -> float | None:
        """The part that came within."""
        return self.inside / self.starts if self.starts else None

    @property
    def early_part(self) -> float | None:
        """The part that came before."""
        return self.early / self.starts if self.starts else None

    @property
    def width_part(self) -> float | None:
        """The median width as a part of the median wait: one that holds by being wide tells nothing."""
        return median(self.widths_ms) / max(median(self.waits_ms), 1) if self.widths_ms else None

    @property
    def endless_part(self) -> float | None:
        """The part of intervals without an end: these hold more easily."""
        return self.endless / self.starts if self.starts else None


def calibrate(cluster: Cluster, trace: Trace, policy: str, moments: int, outlook: Outlook, rough: float) -> Calibration:
    """Runs a trace and looks ahead at so many moments of its second half, over all jobs that are pending then.

    With `rough`, users say how long their jobs take, off by a factor of about so much either way; with 0 they say
    nothing, and all that is known are the jobs that came before.
    """
    run = _run(cluster, trace, policy, outlook.costs, rough)
    half = trace.jobs[len(trace.jobs) // 2].submit_ms
    last = trace.jobs[-1].submit_ms
    ahead: list[Forecast] = []
    for number in range(moments):
        _go(run, half + (last - half) * number // moments)
        ahead.append(forecast(run.state, outlook))
    _go(run, None)
    return counted(run.state, ahead)


def _run(cluster: Cluster, trace: Trace, policy: str, costs: Costs, rough: float) -> Run:
    submitter = Submitter(cluster)
    rng = Random(trace.name)
    works: dict[str, Work] = {}
    arrivals: list[tuple[int, Event]] = []
    for traced in trace.jobs:
        job = submitter.job(traced)
        works[job.id] = Work(traced.duration_ms, traced.ending, job)
        said_ms = max(round(traced.duration_ms * rough ** rng.gauss(0, 1)), 1) if rough else None
        arrivals.append((traced.submit_ms, JobSubmitted(replace(job, duration_ms=said_ms))))
    backend = VirtualBackend(works, costs, SpeedModel(Topology(cluster)))
    return Run.of(cluster, policy, backend, arrivals)


def _go(run: Run, until_ms: int | None) -> None:
    while (at := run.next_moment()) is not None and (until_ms is None or at <= until_ms):
        run.turn(at)


def counted(state: State, ahead: list[Forecast]) -> Calibration:
    """On which side of their intervals the real starts came."""
    starts = inside = early = late = endless = 0
    widths_ms: list[int] = []
    waits_ms: list[int] = []
    for made_ms, real_ms, low_ms, high_ms in _compared(state, ahead):
        starts += 1
        if high_ms is None:
            endless += 1
        else:
            widths_ms.append(high_ms - low_ms)
            waits_ms.append(real_ms - made_ms)
        if real_ms < low_ms:
            early += 1
        elif high_ms is not None and real_ms > high_ms:
            late += 1
        else:
            inside += 1
    return Calibration(starts, inside, early, late, endless, tuple(widths_ms), tuple(waits_ms))


def _compared(state: State, ahead: list[Forecast]) -> Iterator[tuple[int, int, int, int | None]]:
    """When each forecast was made, the first real start after it, and its interval. A job that never started is not
    compared.
    """
    for made in ahead:
        for job, span in made.spans.items():
            real_ms = state.jobs[job].first_start_ms
            if real_ms is not None and real_ms > made.at_ms:
                yield made.at_ms, real_ms, made.not_before_ms(job) or 0, span.late_ms
