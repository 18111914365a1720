"""How fast virtual time is: jobs of Philly's shape on Philly's cluster, through the same turns as everything."""

from __future__ import annotations

import resource
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context
from typing import NamedTuple, TypeVar

from phalanx.bench.clock import timed_us
from phalanx.bench.philly import PHILLY
from phalanx.bench.row import Row, Tell, ratio, row
from phalanx.bench.simulate.heap import SIMULATORS
from phalanx.cluster.cluster import Cluster, Node
from phalanx.simulate.simulation import COUNT, Setup, Simulation
from phalanx.simulate.trace import Trace
from phalanx.simulate.traces.load import moved
from phalanx.simulate.traces.open import read_trace
from phalanx.simulate.traces.synthetic import Synthetic, synthesize
from phalanx.simulate.world.costs import NO_COSTS

Found = TypeVar("Found")

SEED = 1
LOADS = (0.9, 1.1)
TARGET_S = {"fifo": 20.0, "tiresias-las": 90.0, "backfill": 120.0}
MEMORY_TARGET_MB = 1_500.0
GAVEL_TARGET_S = 300.0
GROWTH_TARGET = 2.0
HEAP_TARGET_S = {"fifo": 1.0, "tiresias-las": 2.5, "srtf:by=time": 3.0}
HEAP_LOAD = 0.9


@dataclass(frozen=True, slots=True)
class Size:
    """How many jobs each part runs."""

    jobs: int
    few: int
    many: int
    many_gpus: int
    gavel_jobs: int
    heap_jobs: int


FULL = Size(jobs=100_000, few=10_000, many=1_000_000, many_gpus=100_000, gavel_jobs=10_000, heap_jobs=10_000)
QUICK = Size(jobs=500, few=200, many=1_000, many_gpus=2_000, gavel_jobs=60, heap_jobs=100)


class Measured(NamedTuple):
    """What one run took."""

    time_s: float
    events: int
    peak_queue: int
    peak_mb: float
    ended: int


class Beside(NamedTuple):
    """What ours and the heap simulator took for the same jobs, and the mean completion times that they found."""

    time_s: float
    heap_s: float
    mean_ms: float
    heap_mean_ms: float


def philly() -> Cluster:
    """The machines of Philly's trace: 231 nodes of 8 GPUs and 321 of 2, 2,490 in all (Jeon et al., ATC 2019)."""
    large = tuple(Node(f"l{i}", (), 8) for i in range(231))
    return Cluster((*large, *(Node(f"s{i}", (), 2) for i in range(321))))


def mixed() -> Cluster:
    """A third of Philly's GPUs each of K80, P100 and V100, for policies that tell them apart."""
    types = ("K80", "P100", "V100")
    return Cluster(tuple(Node(f"{types[i % 3]}-{i}", (), 8, types[i % 3]) for i in range(312)))


def large(gpus: int) -> Cluster:
    """Nodes of 8 GPUs in racks of 16."""
    return Cluster(tuple(Node(f"n{i}", (f"r{i // 16}",), 8) for i in range(gpus // 8)), ("rack", "node"))


def speed(size: Size, tell: Tell) -> list[Row]:
    """Whole runs under three policies at two loads."""
    rows: list[Row] = []
    for policy, target_s in TARGET_S.items():
        for load in LOADS:
            name = f"{policy}, {size.jobs} jobs, load {load}"
            tell(f"simulate: {name}")
            measured = _apart(_run, policy, philly(), size.jobs, load)
            rows.append(row(name, measured.time_s, "s", target_s))
            rows.append(row(f"{name}: time per event", 1e6 * measured.time_s / measured.events, "us"))
            rows.append(row(f"{name}: peak queue", measured.peak_queue, "jobs"))
            rows.append(row(f"{name}: peak memory", measured.peak_mb, "MB", MEMORY_TARGET_MB))
    return rows


def scale(size: Size, tell: Tell) -> list[Row]:
    """What an event costs in a run of many jobs beside one of few, and a large cluster."""
    tell(f"simulate: fifo, {size.few} jobs")
    few = _apart(_run, "fifo", philly(), size.few, LOADS[0])
    tell(f"simulate: fifo, {size.many} jobs")
    many = _apart(_run, "fifo", philly(), size.many, LOADS[0])
    tell(f"simulate: fifo, {size.many} jobs on {size.many_gpus} GPUs")
    huge = _apart(_run, "fifo", large(size.many_gpus), size.many, LOADS[0])
    grown = ratio(many.time_s / many.events, few.time_s / few.events)
    name = f"fifo, load {LOADS[0]}: time per event, {size.many} jobs / {size.few} jobs"
    on_large = f"fifo, {size.many} jobs on {size.many_gpus} GPUs"
    return [
        row(name, grown, "ratio", GROWTH_TARGET),
        row(f"fifo, {size.many} jobs", many.time_s, "s"),
        row(f"fifo, {size.many} jobs: peak memory", many.peak_mb, "MB"),
        row(f"{on_large}", huge.time_s, "s"),
        row(f"{on_large}: peak memory", huge.peak_mb, "MB"),
        row(f"{on_large}: jobs that did not end", size.many - huge.ended, "jobs", 0),
    ]


def heap(size: Size, tell: Tell) -> list[Row]:
    """Runs on one pool of GPUs, without costs, beside a simulator that does nothing else."""
    rows: list[Row] = []
    for policy, target_s in HEAP_TARGET_S.items():
        name = f"{policy}, {size.heap_jobs} jobs on one pool"
        tell(f"simulate: {name}")
        beside = _apart(_beside_heap, policy, size.heap_jobs)
        rows += [
            row(name, beside.time_s, "s", target_s),
            row(f"{name}: a heap simulator", beside.heap_s, "s"),
            row(f"{name}: ours / a heap simulator", ratio(beside.time_s, beside.heap_s), "ratio"),
            row(f"{name}: mean JCT", beside.mean_ms / 3_600_000, "h"),
            row(f"{name}: mean JCT of a heap simulator", beside.heap_mean_ms / 3_600_000, "h"),
        ]
    return rows


def gavel(size: Size, tell: Tell) -> list[Row]:
    """The joint policy with a solver, in rounds of six minutes."""
    name = f"gavel, {size.gavel_jobs} jobs, load {LOADS[0]}"
    tell(f"simulate: {name}")
    measured = _apart(_run, "gavel", mixed(), size.gavel_jobs, LOADS[0])
    return [
        row(f"{name}", measured.time_s, "s", GAVEL_TARGET_S),
        row(f"{name}: time per event", 1e6 * measured.time_s / measured.events, "us"),
        row(f"{name}: peak queue", measured.peak_queue, "jobs"),
    ]


def _apart(work: Callable[..., Found], *arguments: object) -> Found:
    """In a process of its own, so that memory is that of the run alone."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(work, *arguments).result()


def _run(policy: str, cluster: Cluster, jobs: int, load: float) -> Measured:
    trace = synthesize(Synthetic(jobs=jobs, gpus=cluster.gpus, load=load), SEED)
    simulation = Simulation(Setup(cluster, trace, policy))

    def whole() -> None:
        simulation.begin()
        simulation.go()

    time_us, _ = timed_us(whole)
    state = simulation.run.state
    ended = sum(record.final is not None for record in state.jobs.values())
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return Measured(time_us / 1e6, state.seq + 1, simulation.sampler.waiting_peak, peak_mb, ended)


def _beside_heap(policy: str, jobs: int) -> Beside:
    cluster = Cluster(tuple(Node(f"n{i}", (), 8) for i in range(64)))
    trace = philly_jobs(jobs, cluster.gpus)
    simulation = Simulation(Setup(cluster, trace, policy, placement=COUNT, costs=NO_COSTS))

    def whole() -> None:
        simulation.begin()
        simulation.go()

    time_us, _ = timed_us(whole)
    records = simulation.run.state.jobs.values()
    mean_ms = sum((each.ended_ms or 0) - each.submitted_ms for each in records) / len(records)
    heap_us, heap_mean_ms = timed_us(lambda: SIMULATORS[policy](list(trace.jobs), cluster.gpus))
    return Beside(time_us / 1e6, heap_us / 1e6, mean_ms, heap_mean_ms)


def philly_jobs(count: int, gpus: int) -> Trace:
    """The first jobs of the real trace where it lies beside the repository, else as many of its shape."""
    if PHILLY.is_file():
        whole = read_trace(str(PHILLY))
        taken = [job for job in whole.jobs if job.gpus <= gpus][:count]
        return replace(whole, jobs=tuple(moved(job, job.submit_ms - taken[0].submit_ms) for job in taken))
    return synthesize(Synthetic(jobs=count, gpus=gpus, load=HEAP_LOAD), SEED)
