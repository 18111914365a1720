"""Quality: what packing does to waiting. The same streams of jobs through the same engine with different packings.

*Stranded* GPU time is time of GPUs that are free while jobs wait which would need no more GPUs than are free: at every
moment the smaller of the free GPUs and the sum of what such jobs ask for, added up over time. Were the free GPUs in
one piece, these jobs would run on them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from math import inf, isfinite, log, prod, sqrt
from multiprocessing import get_context
from statistics import fmean, pvariance

from phalanx.bench.placement.baselines import AnyFit, BestFit, FirstFit, WholeFromLast
from phalanx.bench.placement.fleet import GPUS, NODES_PER_RACK
from phalanx.bench.placement.streams import HOUR_MS, MIXES, Mix, Stream, stream
from phalanx.bench.row import Row, Tell, ratio, row
from phalanx.cluster.cluster import Cluster, Node
from phalanx.engine.state.state import State
from phalanx.placement.pack import Packing
from phalanx.simulate.run import Run, submissions
from phalanx.simulate.world.virtual import VirtualBackend
from phalanx.simulate.world.work import Work

OURS, THEIRS, TWIN = "phalanx", "best-fit", "best-fit, whole nodes from the last"
PACKINGS: Mapping[str, Callable[[], Packing]] = {
    OURS: Packing,
    THEIRS: BestFit,
    TWIN: WholeFromLast,
    "first-fit": FirstFit,
    "random": AnyFit,
}
COMPARED = (OURS, TWIN)
"""What is measured by best-fit on all streams. Best-fit's twin is as good as it is: how far its ratios are from 1 shows
what so many streams can tell.
"""

LOADS = (0.8, 0.95)
WAITS = (8, 64)
"""Sizes in GPUs of the jobs whose waits are compared: a whole node, and half a rack."""

WARM_UP = 0.2
"""Share of the jobs that only fill the cluster: nothing is counted before the first of the others arrives."""


@dataclass(frozen=True, slots=True)
class Size:
    """How much is simulated: nodes of the cluster, jobs of a stream, and streams of every mix and load.

    Waits vary much from stream to stream, so what is compared needs many; the others only stand beside.
    """

    nodes: int
    jobs: int
    streams: int
    streams_beside: int


FULL = Size(nodes=64, jobs=4_000, streams=20, streams_beside=3)
QUICK = Size(nodes=16, jobs=60, streams=1, streams_beside=1)


@dataclass(slots=True)
class Outcome:
    """What one run came to."""

    stranded_gpu_h: float = 0.0
    waits_h: dict[int, list[float]] = field(default_factory=lambda: {size: [] for size in WAITS})


Results = Mapping[tuple[str, float, str], list[Outcome]]
"""By name of the mix, load and name of the packing."""

Trial = tuple[Size, Mix, float, str, int]
"""A size, a mix, a load, the name of a packing and a seed."""


def run(size: Size, tell: Tell) -> list[Row]:
    """All rows of the quality benchmarks."""
    return rows_of(results(size, tell))


def results(size: Size, tell: Tell) -> Results:
    """The outcomes by mix, load and packing, one for each seed."""
    trials = [
        (size, mix, load, packing, seed)
        for mix in MIXES
        for load in LOADS
        for seed in range(size.streams)
        for packing in PACKINGS
        if packing in (*COMPARED, THEIRS) or seed < size.streams_beside
    ]
    found: dict[tuple[str, float, str], list[Outcome]] = {}
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as processes:
        for (_, mix, load, packing, seed), outcome in zip(trials, processes.map(simulate, trials), strict=True):
            found.setdefault((mix.name, load, packing), []).append(outcome)
            if packing == OURS:
                tell(f"quality: {mix.name}, load {load}, stream {seed + 1} of {size.streams}")
    return found


def simulate(trial: Trial) -> Outcome:
    """One stream through the engine with one packing."""
    size, mix, load, packing, seed = trial
    cluster = racks(size.nodes)
    jobs = stream(mix, load, cluster.gpus, size.jobs, seed)
    works = {job: Work(duration_ms) for job, duration_ms in jobs.durations_ms.items()}
    run = Run.of(cluster, "fifo:skip=true", VirtualBackend(works), submissions(jobs.jobs))
    run.state.packing = PACKINGS[packing]()
    outcome = Outcome(_stranded_gpu_h(run, jobs))
    records = list(run.state.jobs.values())
    for record in records[int(len(records) * WARM_UP) :]:
        gpus = record.job.gang.gpus_min
        if gpus in outcome.waits_h and record.first_start_ms is not None:
            outcome.waits_h[gpus].append((record.first_start_ms - record.submitted_ms) / HOUR_MS)
    return outcome


def racks(nodes: int) -> Cluster:
    """Nodes of 8 GPUs in racks of 16: nothing but GPUs binds."""
    return Cluster(
        tuple(Node(f"n{i}", (f"r{i // NODES_PER_RACK}",), GPUS) for i in range(nodes)),
        ("rack", "node"),
    )


def _stranded_gpu_h(run: Run, jobs: Stream) -> float:
    """Runs to the end; GPU-hours stranded from the end of the warm-up to the last arrival."""
    first_ms, last_ms = jobs.jobs[int(len(jobs.jobs) * WARM_UP)][0], jobs.jobs[-1][0]
    stranded_gpu_ms = before = 0
    rate = 0
    while run.step() is not None:
        now = run.state.now
        stranded_gpu_ms += rate * max(0, min(now, last_ms) - max(before, first_ms))
        before = now
        rate = stranded(run.state)
    return stranded_gpu_ms / HOUR_MS


def stranded(state: State) -> int:
    """GPUs that are free now though jobs wait that ask for no more than are free."""
    free = state.capacity.free_gpus(state.capacity.open)
    wanted = 0
    for waiting in state.classes.values():
        gpus = state.jobs[waiting.head[1]].job.gang.gpus_min
        if gpus <= free:
            wanted += gpus * len(waiting.jobs)
    return min(free, wanted)


def _mean_stranded(outcomes: Sequence[Outcome]) -> float:
    return fmean(outcome.stranded_gpu_h for outcome in outcomes)


def _mean_wait(gpus: int) -> Callable[[Sequence[Outcome]], float]:
    def mean(outcomes: Sequence[Outcome]) -> float:
        return fmean([wait for outcome in outcomes for wait in outcome.waits_h[gpus]] or [0.0])

    return mean


FIGURES: Mapping[str, Callable[[Sequence[Outcome]], float]] = {
    "stranded GPU-hours": _mean_stranded,
    **{f"wait of {gpus}-GPU jobs": _mean_wait(gpus) for gpus in WAITS},
}
"""What is compared: means over the streams of a mix and load."""


def rows_of(found: Results) -> list[Row]:
    """Every figure of ours beside best-fit's, the other baselines beside it, and on how many mixes it is worse."""
    rows: list[Row] = []
    for figure, measure in FIGURES.items():
        of_mix: list[float] = []
        for mix in MIXES:
            for load in LOADS:
                outcomes = {packing: found[mix.name, load, packing] for packing in PACKINGS}
                rows += _compared(f"{figure}, {mix.name}, load {load}", measure, outcomes)
            for packing in COMPARED:
                value, error = _both_loads(measure, mix, packing, found)
                name = f"{figure}, {mix.name}, both loads: {packing} / {THEIRS}"
                rows.append(row(name, value if isfinite(value) else None, "ratio", 1 if packing == OURS else None))
                rows.append(row(f"{name}, standard error", error if isfinite(error) else None, "ratio"))
                if packing == OURS:
                    of_mix.append(value)
        rows += _summed_up(figure, of_mix)
    return rows


def _both_loads(
    measure: Callable[[Sequence[Outcome]], float], mix: Mix, packing: str, found: Results
) -> tuple[float, float]:
    """The mean of a packing's ratios at the loads, and its standard error."""
    pairs = [(found[mix.name, load, packing], found[mix.name, load, THEIRS]) for load in LOADS]
    value = _geometric_mean([ratio(measure(own), measure(theirs)) for own, theirs in pairs])
    return value, value * sqrt(sum(_variance(measure, own, theirs) for own, theirs in pairs)) / len(LOADS)


def _compared(
    name: str, measure: Callable[[Sequence[Outcome]], float], outcomes: Mapping[str, list[Outcome]]
) -> list[Row]:
    """Ours first. A packing that ran on fewer streams is compared on those."""
    rows = []
    for packing, own in outcomes.items():
        if packing != THEIRS:
            value = ratio(measure(own), measure(outcomes[THEIRS][: len(own)]))
            rows.append(row(f"{name}: {packing} / {THEIRS}", value, "ratio", 1 if packing == OURS else None))
    return [*rows, row(f"{name}: {THEIRS}", measure(outcomes[THEIRS]), "h")]


def _variance(
    measure: Callable[[Sequence[Outcome]], float], ours: Sequence[Outcome], theirs: Sequence[Outcome]
) -> float:
    """The variance of the logarithm of a ratio, by the jackknife: as one stream after the other is left out."""
    streams = len(ours)
    without = [
        ratio(measure([*ours[:i], *ours[i + 1 :]]), measure([*theirs[:i], *theirs[i + 1 :]]))
        for i in range(streams)
        if streams > 1
    ]
    logarithms = [log(each) if each else inf for each in without]
    return pvariance(logarithms) * (streams - 1) if logarithms and all(map(isfinite, logarithms)) else inf


def _geometric_mean(ratios: Sequence[float | None]) -> float:
    """Infinite where something stands beside nothing."""
    return prod(inf if each is None else each for each in ratios) ** (1 / len(ratios))


def _summed_up(figure: str, of_mix: Sequence[float]) -> list[Row]:
    worse = sum(each > 1 for each in of_mix)
    not_better = sum(each >= 1 for each in of_mix)
    return [
        row(f"{figure}: mixes where {OURS} is worse than {THEIRS}", worse, "mixes", 0),
        row(f"{figure}: mixes where {OURS} is not better than {THEIRS}", not_better, "mixes", len(of_mix) - 2),
    ]
