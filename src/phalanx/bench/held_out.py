"""How often real starts lie within the intervals told at submission: by policy, on halves of traces that were not seen.

Every trace is run once. Its first half is evidence: of how long jobs take, and of how far forecasts of starts were off.
Then jobs that do not start at once are forecast when they are submitted. The last quarter only goes on, so that it does
not become quiet behind them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import NamedTuple

from phalanx.bench.calibration import Calibration, counted
from phalanx.cluster.cluster import Cluster
from phalanx.cluster.topology import Topology
from phalanx.engine.state import State
from phalanx.protocol.event import Event, JobSubmitted
from phalanx.simulate.costs import Costs
from phalanx.simulate.experience import Experience
from phalanx.simulate.forecast import Forecast, Outlook, forecast
from phalanx.simulate.run import Run
from phalanx.simulate.speed import SpeedModel
from phalanx.simulate.submission import Submitter
from phalanx.simulate.trace import Trace
from phalanx.simulate.virtual import VirtualBackend
from phalanx.simulate.work import Work
from phalanx.workload.job import Checkpointing

SAVING = 0.5
"""The part of the jobs that save their work: others are not stopped for their equals, so that somebody waits."""


class Foretold(NamedTuple):
    """What was forecast in the halves of a trace, and the State after all of it."""

    state: State
    first: list[Forecast]
    second: list[Forecast]


class Held(NamedTuple):
    """How many intervals of the second halves held, as they were drawn and as they were corrected."""

    drawn: Calibration
    told: Calibration


def held_out(cluster: Cluster, traces: Sequence[Trace], policy: str, each: int, outlook: Outlook) -> Held:
    """Forecasts at so many moments of either half of every trace. What the first halves tell corrects the second."""
    experience = Experience()
    runs = [_foretold(cluster, trace, policy, each, outlook) for trace in traces]
    for run in runs:
        for made in run.first:
            experience.remember(made, policy)
            experience.learn(run.state)
            experience.told.clear()
    drawn = [counted(run.state, run.second) for run in runs]
    told = [counted(run.state, [experience.corrected(made, policy) for made in run.second]) for run in runs]
    return Held(_together(drawn), _together(told))


def _together(parts: list[Calibration]) -> Calibration:
    columns = zip(*((part.starts, part.inside, part.early, part.late) for part in parts), strict=True)
    return Calibration(*(sum(column) for column in columns))


def _foretold(cluster: Cluster, trace: Trace, policy: str, each: int, outlook: Outlook) -> Foretold:
    run = _run(cluster, trace, policy, outlook.costs)
    quarters = [trace.jobs[len(trace.jobs) * part // 4].submit_ms for part in (1, 2, 3)]
    found = Foretold(run.state, [], [])
    due_ms = quarters[0]
    while (now := run.next_moment()) is not None:
        known = len(run.state.jobs)
        run.turn(now)
        if len(run.state.jobs) == known or not due_ms <= now < quarters[2]:
            continue
        newest = next(reversed(run.state.jobs))
        if run.state.jobs[newest].attempt is not None:
            continue
        half = 0 if now < quarters[1] else 1
        (found.first, found.second)[half].append(forecast(run.state, outlook, [newest]))
        due_ms = now + (quarters[half + 1] - quarters[half]) // each
    return found


def _run(cluster: Cluster, trace: Trace, policy: str, costs: Costs) -> Run:
    submitter, rng = Submitter(cluster), Random(trace.name)
    works: dict[str, Work] = {}
    arrivals: list[tuple[int, Event]] = []
    for traced in trace.jobs:
        job = submitter.job(traced)
        if rng.random() >= SAVING:
            job = replace(job, checkpoint=Checkpointing(saves=False))
        works[job.id] = Work(traced.duration_ms, traced.ending, job)
        arrivals.append((traced.submit_ms, JobSubmitted(job)))
    backend = VirtualBackend(works, costs, SpeedModel(Topology(cluster)))
    return Run.of(cluster, policy, backend, arrivals)
