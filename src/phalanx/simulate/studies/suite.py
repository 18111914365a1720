"""Suites: the same policies on several workloads, loads and seeds, so that no single trace decides which is best.

All that a suite runs on is made here from seeds, so that it can be repeated, unless real traces are given for some
of its workloads. What each run came to is kept in a folder, a file a run; a suite that was interrupted goes on from
those that are there.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from operator import itemgetter
from pathlib import Path
from random import Random
from typing import Any, Protocol

from phalanx.cluster.cluster import Cluster, Node
from phalanx.errors import PhalanxError
from phalanx.policy.registry import BUILTIN
from phalanx.policy.registry import policy as policy_named
from phalanx.simulate.figures.window import Window
from phalanx.simulate.plugins import resolve_policy
from phalanx.simulate.studies.batch import DiedError, FailedRunsError, run_cases
from phalanx.simulate.studies.source import Source
from phalanx.simulate.studies.study import Case, Study
from phalanx.simulate.trace import Trace, TraceJob
from phalanx.simulate.traces.load import at_load
from phalanx.simulate.traces.synthetic import Synthetic, synthesize

LOADS = (0.7, 0.9, 1.1)
SEEDS = 10
JOBS = 400
"""Jobs of a run: as many as let all runs of the standard suite finish within an hour on two processors."""
SCHEMA = 1
ELASTIC_MAX_MS = 86_400_000
"""The longest of the elastic jobs: they report while they run, and reports of weeks would be most of a run's events."""

NEEDS = {
    "antman": "antman:interval=30m,retry=5h",
    "optimus": "optimus:reports=300",
    "pollux": "pollux:interval=300",
    "tiresias-gittins": "tiresias-gittins:samples=300/1200/3600/14400/43200/172800/604800",
}
"""Policies with the parameters that the suite gives them: of Philly's jobs their GPU-seconds; and where jobs run for
days and weeks, reports every minute, and sizes that are worked out anew with each, are most of a run.
"""

Dress = Callable[[Trace, Random], Trace]


STANDARD, HELD_OUT = SUITES = ("standard", "held-out")


class SuiteError(PhalanxError):
    """A suite that cannot be run."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Runs of one policy on one workload that came to no end: how many, and what was wrong with the first."""

    workload: str
    policy: str
    runs: int
    error: str

    def __str__(self) -> str:
        return f"{self.workload}, {self.policy}: {self.runs} run{'s' * (self.runs != 1)} failed: {self.error}"


class FailedSuiteError(SuiteError):
    """Runs that came to no end, while all the rest did."""

    def __init__(self, failures: Sequence[Failure]) -> None:
        self.failures = tuple(failures)
        super().__init__("; ".join(map(str, failures)))


@dataclass(frozen=True, slots=True)
class Dressed:
    """A synthetic trace with something added to its jobs: parts of GPUs, models, types."""

    spec: Synthetic
    dress: str = ""

    def at(self, gpus: int, load: float | None, seed: int, first_seed: int) -> Trace:
        """The trace of a seed, at a load."""
        load = self.spec.load if load is None else load
        trace = synthesize(replace(self.spec, gpus=gpus, load=load), seed)
        if self.dress:
            trace = at_load(DRESSES[self.dress](trace, Random(seed)), gpus, load)
        return trace

    def load(self, gpus: int) -> float:
        """The load it is made at."""
        return self.spec.load

    @property
    def jobs(self) -> int:
        """Jobs of a run."""
        return self.spec.jobs


class Drawn(Source, Protocol):
    """Where the jobs of a workload come from. Its `repr` tells one from another."""

    @property
    def jobs(self) -> int:
        """Jobs of a run."""


@dataclass(frozen=True, slots=True)
class Workload:
    """A cluster and the jobs that come to it. With a window, times are of the jobs submitted in it."""

    name: str
    about: str
    cluster: Cluster
    source: Drawn
    window: Window | None = None


@dataclass(frozen=True, slots=True)
class Cell:
    """One run of a suite, and what it came to. `advice_kept` is how often the solver of its policy gave no answer."""

    workload: str
    policy: str
    load: float
    seed: int
    summary: Mapping[str, Any]
    advice_kept: int = 0


@dataclass(frozen=True, slots=True)
class Suite:
    """What is run. Where policies were tuned, `tuned` is by the best setting of each how many times as long its jobs
    take under all that were tried.
    """

    name: str
    workloads: tuple[Workload, ...]
    policies: Mapping[str, str]
    loads: tuple[float, ...] = LOADS
    seeds: int = SEEDS
    tuned: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """How many runs it has."""
        return len(self.workloads) * len(self.policies) * len(self.loads) * self.seeds

    @property
    def foreseeing(self) -> tuple[str, ...]:
        """Policies that say of themselves that they know what no real cluster does."""
        return tuple(written for written, spec in self.policies.items() if policy_named(spec).about.foresight)


def standard(
    jobs: int = JOBS, seeds: int = SEEDS, policies: Sequence[str] = (), real: Sequence[Workload] = ()
) -> Suite:
    """The standard suite, of all policies or those named; `real` workloads stand in for those of their names."""
    chosen = policies or tuple(NEEDS.get(name, name) for name in BUILTIN)
    instead = {workload.name: workload for workload in real}
    here = tuple(instead.get(workload.name, workload) for workload in workloads(jobs))
    return Suite(STANDARD, here, {written: resolve_policy(written) for written in chosen}, LOADS, seeds)


def workloads(jobs: int) -> tuple[Workload, ...]:
    """The workloads of the standard suite. Clusters are small, so that so many jobs keep them full."""
    small, large = racks(4), racks(8)
    return (
        Workload("philly", "Philly's sizes and durations", small, Dressed(Synthetic(jobs, small.gpus, 0.9))),
        Workload(
            "openb",
            "parts of GPUs, and models that jobs insist on",
            _openb(),
            Dressed(Synthetic(jobs, _openb().gpus, 0.9), "openb"),
        ),
        Workload(
            "heavy-tail", "from evaluations to pretraining", large, Dressed(Synthetic(jobs, large.gpus, 0.9, "llm"))
        ),
        Workload("mixed", "K80, P100 and V100", _mixed(), Dressed(Synthetic(jobs, _mixed().gpus, 0.9, "gavel"))),
        Workload("sweeps", "most jobs come in sweeps", small, Dressed(Synthetic(jobs, small.gpus, 0.9, sweeps=0.6))),
        Workload(
            "elastic",
            "jobs that may have half to four times their GPUs",
            small,
            Dressed(Synthetic(jobs, small.gpus, 0.9, elastic=1.0), "elastic"),
        ),
    )


def racks(nodes: int) -> Cluster:
    """Nodes of eight GPUs in racks of two."""
    return Cluster(
        tuple(Node(f"n{i}", (f"r{i // 2}",), 8) for i in range(nodes)), ("rack", "node"), name=f"{8 * nodes}-gpus"
    )


def _mixed() -> Cluster:
    return Cluster(tuple(Node(name.lower(), (), 8, name) for name in ("K80", "P100", "V100")), name="mixed")


def _openb() -> Cluster:
    """Nodes of the kinds and about the proportions of Alibaba's list of 2023."""
    kinds = (("T4", 2, 3), ("P100", 2, 1), ("V100", 8, 1), ("A10", 8, 3))
    nodes = [
        Node(f"{model.lower()}-{i}", (), gpus, model, cpus_milli=96_000, memory_mb=393_216)
        for model, gpus, count in kinds
        for i in range(count)
    ]
    return Cluster(tuple(nodes), name="openb-like")


def _in_parts(trace: Trace, rng: Random) -> Trace:
    """As in openb: four of ten jobs of one GPU do with a part of it, and a third insists on models."""
    return replace(trace, jobs=tuple(_openb_like(job, rng) for job in trace.jobs))


def _openb_like(job: TraceJob, rng: Random) -> TraceJob:
    part, insists = rng.random() < 0.4, rng.random() < 0.33
    milli = rng.choice((110, 200, 250, 330, 460, 500, 750)) if part and job.gpus == 1 else 0
    models = rng.choice(("T4", "P100", "V100", "V100|A10", "A10")) if insists and job.gpus == 1 else ""
    # Nodes have eight GPUs at most, and only these take more than two.
    models = models or ("V100|A10" if job.gpus > 2 else "")
    return replace(job, gpu_milli=milli, gpu_type=models, gpus=min(job.gpus, 32), cpus_milli=4_000, memory_mb=16_384)


def _tuning(trace: Trace, rng: Random) -> Trace:
    """Half of the jobs tune their batch to the GPUs they have; none takes more than a day."""
    return replace(
        trace,
        jobs=tuple(
            replace(
                job,
                batch="adaptive" if rng.random() < 0.5 else job.batch,
                duration_ms=min(job.duration_ms, ELASTIC_MAX_MS),
            )
            for job in trace.jobs
        ),
    )


DRESSES: Mapping[str, Dress] = {"openb": _in_parts, "elastic": _tuning}


class Folder:
    """Where results are kept, a file a run. A file of another version or another suite is passed over.

    `version` tells the code that a result is of from all other.
    """

    def __init__(self, path: Path, version: str) -> None:
        self.path = path
        self.version = version
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise SuiteError(f"{path}: {error.strerror or error}") from error

    def key(self, workload: Workload, case: Case) -> str:
        """What the run of a case is a function of, in few letters."""
        told = repr((SCHEMA, self.version, workload, case.spec, case.load, case.seed))
        return hashlib.sha256(told.encode()).hexdigest()[:16]

    def find(self, workload: Workload, case: Case) -> Cell | None:
        """What a run came to, if it is here and whole."""
        try:
            told = json.loads(self._file(workload, case).read_text("utf-8"))
        except (OSError, ValueError):
            return None
        if not isinstance(told, dict) or told.get("key") != self.key(workload, case):
            return None
        return Cell(
            workload.name, case.policy, case.load or 0.0, case.seed, told["summary"], told.get("advice_kept", 0)
        )

    def keep(self, workload: Workload, case: Case, summary: Mapping[str, Any], advice_kept: int = 0) -> Cell:
        """Writes what a run came to, as a whole or not at all."""
        file = self._file(workload, case)
        torn = file.with_suffix(".new")
        told = {"key": self.key(workload, case), "workload": workload.name, "load": case.load, "seed": case.seed}
        came_to = {"policy": case.policy, "summary": summary, "advice_kept": advice_kept}
        try:
            torn.write_text(json.dumps({**told, **came_to}), "utf-8")
            torn.replace(file)
        except OSError as error:
            raise SuiteError(f"{file}: {error.strerror or error}") from error
        return Cell(workload.name, case.policy, case.load or 0.0, case.seed, summary, advice_kept)

    def _file(self, workload: Workload, case: Case) -> Path:
        words = "".join(each if each.isalnum() or each in "-_." else "_" for each in case.policy)[:60]
        name = f"{workload.name}-{case.load}-{case.seed}-{words}-{self.key(workload, case)[:6]}.json"
        return self.path / name


def run_suite(suite: Suite, folder: Folder, workers: int | None = None) -> Generator[Cell, None, None]:
    """Every cell of a suite: first those that are in the folder, then the rest as they are done.

    Runs that fail leave the rest what they are: when these are there, `FailedSuiteError` tells of them.
    """
    todo: list[tuple[Workload, list[Case]]] = []
    for workload in suite.workloads:
        missing = []
        for case in _cases(suite):
            found = folder.find(workload, case)
            if found is None:
                missing.append(case)
            else:
                yield found
        todo.append((workload, missing))
    failures: list[Failure] = []
    for workload, cases in filter(itemgetter(1), todo):
        yield from _run(workload, cases, folder, workers, failures)
    if failures:
        raise FailedSuiteError(failures)


def _run(
    workload: Workload, cases: Sequence[Case], folder: Folder, workers: int | None, failures: list[Failure]
) -> Generator[Cell, None, None]:
    """Runs cases of a workload. What ended them all was the doing of one of them: those that are left are run again."""
    left = dict(enumerate(cases))
    again: list[list[Case]] = []
    try:
        with closing(
            run_cases(Study(workload.cluster, workload.source, window=workload.window), cases, workers)
        ) as runs:
            for number, result in runs:
                yield folder.keep(workload, left.pop(number), result.summary, result.setup["advice_kept"])
    except SuiteError:
        raise
    except FailedRunsError as error:
        failures.extend(_failures(workload, [(cases[number], each) for number, each in error.by_case.items()]))
    except DiedError as error:
        # Not again: where a run is the only one, it is run in this process.
        failures.extend(_failures(workload, [(case, error) for case in left.values() if case.policy == error.policy]))
        again = [[case for case in left.values() if case.policy != error.policy]]
    except Exception as error:
        again = _by_policy(left.values())
        if len(again) == 1:
            failures.extend(_failures(workload, [(case, error) for case in left.values()]))
            return
    for others in filter(None, again):
        yield from _run(workload, others, folder, workers, failures)


def _by_policy(cases: Iterable[Case]) -> list[list[Case]]:
    found: dict[str, list[Case]] = {}
    for case in cases:
        found.setdefault(case.policy, []).append(case)
    return list(found.values())


def _failures(workload: Workload, failed: Sequence[tuple[Case, Exception]]) -> Iterator[Failure]:
    errors: dict[str, list[Exception]] = {}
    for case, error in failed:
        errors.setdefault(case.policy, []).append(error)
    for policy, own in errors.items():
        # Of a mistake of ours there is all that led to it, and what it was in the last line.
        lines = str(own[0]).strip().splitlines() or [type(own[0]).__name__]
        yield Failure(workload.name, policy, len(own), lines[-1])


def _cases(suite: Suite) -> list[Case]:
    return [
        Case(policy, spec, seed, load)
        for load in suite.loads
        for seed in range(suite.seeds)
        for policy, spec in suite.policies.items()
    ]
