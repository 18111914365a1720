"""How often real starts lie within the intervals told at submission: by policy, on halves of traces that were not seen.

Every trace is run once, and forecasts are made in its first quarter. The first half of that is evidence: of how long
jobs take, and of how far forecasts of starts were off. Then jobs that do not start at once are forecast when they are
submitted. The rest of the trace only goes on, so that it does not become quiet behind them: where later jobs go first,
a trace that ends would start jobs sooner than any cluster.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import NamedTuple

from phalanx.bench.tenants.calibration import Calibration, counted
from phalanx.cluster.cluster import Cluster
from phalanx.cluster.topology import Topology
from phalanx.engine.state.state import State
from phalanx.protocol.event import Event, JobSubmitted
from phalanx.simulate.forecasts.experience import Experience
from phalanx.simulate.forecasts.forecast import Forecast, Outlook, forecast
from phalanx.simulate.run import Run
from phalanx.simulate.submission import Submitter
from phalanx.simulate.trace import Trace
from phalanx.simulate.world.costs import Costs
from phalanx.simulate.world.speed import SpeedModel
from phalanx.simulate.world.virtual import VirtualBackend
from phalanx.simulate.world.work import Work
from phalanx.workload.job import Checkpointing

PARTS = 8
"""Forecasts are made from the end of the first of so many parts of a trace to that of the third."""

SAVING = 0.5
"""The part of the jobs that save their work: others are not stopped for their equals, so that some jobs wait."""


class Foretold(NamedTuple):
    """What was forecast in the halves of a trace, and the State after all of it."""

    state: State
    first: list[Forecast]
    second: list[Forecast]


class Held(NamedTuple):
    """How many intervals of the second halves held: as they were drawn, as a server tells them that has made no
    forecasts before, and corrected by those of the first halves.
    """

    drawn: Calibration
    unproven: Calibration
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
    return Held(_together(drawn), _told(runs, Experience()), _told(runs, experience))


def _told(runs: list[Foretold], experience: Experience) -> Calibration:
    """The intervals of the second halves, as they are told with some experience."""
    return _together(
        [counted(run.state, [experience.corrected(made, run.state.policy) for made in run.second]) for run in runs]
    )


def _together(parts: list[Calibration]) -> Calibration:
    return Calibration(
        sum(part.starts for part in parts),
        sum(part.inside for part in parts),
        sum(part.early for part in parts),
        sum(part.late for part in parts),
        sum(part.endless for part in parts),
        tuple(width_ms for part in parts for width_ms in part.widths_ms),
        tuple(wait_ms for part in parts for wait_ms in part.waits_ms),
    )


def _foretold(cluster: Cluster, trace: Trace, policy: str, each: int, outlook: Outlook) -> Foretold:
    run = _run(cluster, trace, policy, outlook.costs)
    quarters = [trace.jobs[len(trace.jobs) * part // PARTS].submit_ms for part in (2, 3, 4)]
    found = Foretold(run.state, [], [])
    due_ms = quarters[0]
    while (now := run.next_moment()) is not None and not (now >= quarters[2] and _all_started(found)):
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


def _all_started(found: Foretold) -> bool:
    jobs = found.state.jobs
    return all(jobs[job].first_start_ms is not None for made in (*found.first, *found.second) for job in made.spans)


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
