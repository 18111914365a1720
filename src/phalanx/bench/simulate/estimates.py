"""How well policies that learn online estimate what they cannot see: the true curves are the simulator's alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from phalanx.bench.row import Row, Tell, row
from phalanx.cluster.cluster import Cluster, Node
from phalanx.cluster.topology import Topology
from phalanx.engine.state.journal import Count
from phalanx.engine.state.state import State
from phalanx.engine.turn import record
from phalanx.policy.optimus import Form, all_reduce, coefficients, lies_apart, parameter_servers
from phalanx.protocol.event import ClusterDefined
from phalanx.simulate.calm import calm
from phalanx.simulate.run import Run, submissions
from phalanx.simulate.submission import Submitter
from phalanx.simulate.trace import TraceJob
from phalanx.simulate.traces.synthetic import Synthetic, synthesize
from phalanx.simulate.world.costs import Costs
from phalanx.simulate.world.locality import CURVES
from phalanx.simulate.world.speed import SpeedModel
from phalanx.simulate.world.training import training_of
from phalanx.simulate.world.virtual import VirtualBackend
from phalanx.simulate.world.work import Work
from phalanx.workload.gang import Role, Task
from phalanx.workload.job import Job

PARTS = (0.1, 0.25, 0.5, 0.75)
"""How far jobs are when their estimates are looked at."""

END_TARGET, PACE_TARGET = 0.2, 0.1
"""Ours: with larger errors the order of the gains would often be another."""

POLICY = "optimus"
FORMS: Mapping[str, Form] = {"all-reduce": all_reduce, "parameter servers": parameter_servers}

SEED = 1
GPUS_PER_NODE = 8
NODE_CPUS_MILLI, SERVER_CPUS_MILLI = 64_000, 4_000
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

    form: Form
    works: Mapping[str, Work]
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
                terms = self.form(workers, max(servers, 1), lies_apart(workers, nodes, GPUS_PER_NODE))
                found = coefficients(before, self.form, GPUS_PER_NODE)
                told_ms = sum(a * b for a, b in zip(found, terms, strict=True))
                self.paces.append(abs(told_ms - paces[newest]) / paces[newest])
            self._known[job] = dict(paces)

    def _look_at_end(self, state: State, job: str, known: dict[str, Any]) -> None:
        training = training_of(state.jobs[job].job, self.works[job])
        for part in PARTS:
            if (job, part) not in self._seen and known["step"] >= part * training.steps:
                self._seen[job, part] = None
                end = known["curve"].converges_at(*known["rule"])
                if end is not None:
                    self.ends[part].append(abs(end - training.steps) / training.steps)


def run(size: Size, tell: Tell) -> list[Row]:
    """The errors of the estimates of policy optimus, over a trace of elastic jobs, in both forms of its speed model."""
    return [each for name, form in FORMS.items() for each in _of_form(name, form, size, tell)]


def _of_form(name: str, form: Form, size: Size, tell: Tell) -> list[Row]:
    tell(f"estimates: {size.jobs} elastic jobs on {size.gpus} GPUs under optimus, {name}")
    nodes = size.gpus // GPUS_PER_NODE
    cluster = Cluster(tuple(Node(f"n{i}", (), GPUS_PER_NODE, cpus_milli=NODE_CPUS_MILLI) for i in range(nodes)))
    made = synthesize(Synthetic(jobs=size.jobs, gpus=size.gpus, load=0.9), SEED)
    submitter = Submitter(cluster)
    jobs = [(job.submit_ms, submitter.job(_elastic(job))) for job in made.jobs]
    if form is parameter_servers:
        jobs = [(submit_ms, with_servers(job)) for submit_ms, job in jobs]
    watch = Watch(form, {job.id: Work(job.duration_ms, job=job) for _, job in jobs})
    backend = VirtualBackend(watch.works, Costs(), SpeedModel(Topology(cluster), CURVES))
    run = Run(backend, submissions(jobs), journal=Count())
    record(run.state, run.journal, ClusterDefined(cluster, POLICY), 0)
    run.begin()
    backend.reports_ms = run.state.policy.reports_ms
    with calm():
        while run.step() is not None:
            watch(run.state)
    return [
        *(
            row(
                f"{POLICY}, {name}: error of the estimated end at {part:.0%}", _mean(errors), "of all steps", END_TARGET
            )
            for part, errors in watch.ends.items()
        ),
        row(
            f"{POLICY}, {name}: error of the pace foretold of a new size and spread",
            _mean(watch.paces),
            "of a step",
            PACE_TARGET,
        ),
    ]


def with_servers(job: Job) -> Job:
    """The job with as many parameter servers as workers at most, and at least one."""
    most = sum(role.replicas_max for role in job.gang.roles)
    server = Role("server", 1, max(most, 2), Task(cpus_milli=SERVER_CPUS_MILLI))
    return replace(job, gang=replace(job.gang, roles=(*job.gang.roles, server)))


def _elastic(job: TraceJob) -> TraceJob:
    """The job with any number of workers from one to twice those it asked for."""
    return TraceJob(
        job.id, job.submit_ms, job.duration_ms, job.gpus, model=job.model, min_gpus=1, max_gpus=2 * job.gpus
    )


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None
