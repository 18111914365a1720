"""How well policies that learn online estimate what they cannot see: the true curves are the simulator's alone."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from phalanx.bench.row import Row, Tell, row
from phalanx.cluster.cluster import Cluster, Node
from phalanx.engine.state import State
from phalanx.policy.optimus import all_reduce, coefficients, lies_apart
from phalanx.simulate.simulation import Setup, Simulation
from phalanx.simulate.trace import Trace, TraceJob
from phalanx.simulate.traces.synthetic import Synthetic, synthesize
from phalanx.simulate.training import training_of

PARTS = (0.1, 0.25, 0.5, 0.75)
"""How far jobs are when their estimates are looked at."""

END_TARGET, PACE_TARGET = 0.2, 0.1
"""Ours: with larger errors the order of the gains would often be another."""

SEED = 1
GPUS_PER_NODE = 8
SIZES_MIN = 2
"""Sizes at which the pace of a job must be known before that of another is looked at."""


@dataclass(frozen=True, slots=True)
class Size:
    """Jobs and GPUs of a run."""

    jobs: int
    gpus: int


FULL, QUICK = Size(400, 64), Size(12, 16)


@dataclass(slots=True)
class Watch:
    """The errors of estimates, taken once for every job and part of its way."""

    simulation: Simulation
    ends: dict[float, list[float]] = field(default_factory=lambda: {part: [] for part in PARTS})
    paces: list[float] = field(default_factory=list)
    _known: dict[str, dict[tuple[int, int, int], float]] = field(default_factory=dict)
    _seen: dict[tuple[str, float], None] = field(default_factory=dict)

    def __call__(self, state: State) -> None:
        for job, known in state.memory.get("known", {}).items():
            self._look_at_pace(job, known["paces"])
            if known["curve"] is not None:
                self._look_at_end(state, job, known)

    def _look_at_pace(self, job: str, paces: dict[tuple[int, int, int], float]) -> None:
        """When a job has a size, or is spread, for the first time: what the model of all that was before foretold."""
        before = self._known.get(job, {})
        if len(paces) > len(before):
            newest = next(size for size in paces if size not in before)
            if len(before) >= SIZES_MIN:
                workers, servers, nodes = newest
                terms = all_reduce(workers, servers, lies_apart(workers, nodes, GPUS_PER_NODE))
                found = coefficients(before, all_reduce, GPUS_PER_NODE)
                told_ms = sum(a * b for a, b in zip(found, terms, strict=True))
                self.paces.append(abs(told_ms - paces[newest]) / paces[newest])
            self._known[job] = dict(paces)

    def _look_at_end(self, state: State, job: str, known: dict[str, Any]) -> None:
        training = training_of(state.jobs[job].job, self.simulation.works[job])
        for part in PARTS:
            if (job, part) not in self._seen and known["step"] >= part * training.steps:
                self._seen[job, part] = None
                end = known["curve"].converges_at(*known["rule"])
                if end is not None:
                    self.ends[part].append(abs(end - training.steps) / training.steps)


def run(size: Size, tell: Tell) -> list[Row]:
    """The errors of the estimates of policy optimus, over a trace of elastic jobs."""
    tell(f"estimates: {size.jobs} elastic jobs on {size.gpus} GPUs under optimus")
    nodes = tuple(Node(f"n{i}", (), GPUS_PER_NODE) for i in range(size.gpus // GPUS_PER_NODE))
    made = synthesize(Synthetic(jobs=size.jobs, gpus=size.gpus, load=0.9), SEED)
    trace = Trace("elastic", tuple(_elastic(job) for job in made.jobs))
    simulation = Simulation(Setup(Cluster(nodes), trace, "optimus"))
    watch = Watch(simulation)
    simulation.begin()
    simulation.go(watch=watch)
    rows = [
        row(f"optimus: error of the estimated end at {part:.0%}", _mean(errors), "of all steps", END_TARGET)
        for part, errors in watch.ends.items()
    ]
    return [
        *rows,
        row(
            "optimus: error of the pace foretold of a new size and spread", _mean(watch.paces), "of a step", PACE_TARGET
        ),
    ]


def _elastic(job: TraceJob) -> TraceJob:
    """The job with any number of workers from one to twice those it asked for."""
    return TraceJob(
        job.id, job.submit_ms, job.duration_ms, job.gpus, model=job.model, min_gpus=1, max_gpus=2 * job.gpus
    )


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None
