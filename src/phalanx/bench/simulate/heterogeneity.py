"""Gavel's figure again: mean completion times heterogeneity-aware and agnostic, at several rates of arrival.

The set-up is that of figure 8 of the paper (Narayanan et al., OSDI 2020, §7.3), as the authors' simulator has it: 36
GPUs each of V100, P100 and K80; jobs of one GPU, whose model is any of 26 with equal chances; durations on a V100 of
10^x minutes, x even from 1.5 to 3 for four of five and from 3 to 4 for the rest; arrivals at random. 1,000 jobs are
counted that come after 4,000 others, and others go on to come until the last of them is done: where a policy cannot
keep up, what waits grows for as long. Nothing is lost between rounds. The same program is solved twice: by the speeds
of the models on each type, and as if all types were alike. docs/results/gavel.md says what is assumed.
"""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import cpu_count, get_context
from random import Random

from phalanx.advice.allocation import Demand, Goal
from phalanx.advice.gavel import Gavel
from phalanx.advice.rounds import Contender
from phalanx.bench.row import Row, Tell, row
from phalanx.cluster.cluster import Cluster, Node
from phalanx.engine.state.state import State
from phalanx.protocol.event import Advice
from phalanx.simulate.figures.confidence import interval
from phalanx.simulate.simulation import Setup, Simulation
from phalanx.simulate.trace import Trace, TraceJob
from phalanx.simulate.world.costs import NO_COSTS
from phalanx.workload.throughputs import Throughput, Throughputs

TYPES = ("V100", "P100", "K80")
NODES = 36
"""Of each type, of one GPU each."""
MODELS = (
    *(f"ResNet-18 (batch size {batch})" for batch in (16, 32, 64, 128, 256)),
    *(f"ResNet-50 (batch size {batch})" for batch in (16, 32, 64, 128)),
    *(f"Transformer (batch size {batch})" for batch in (16, 32, 64, 128, 256)),
    *(f"LM (batch size {batch})" for batch in (5, 10, 20, 40, 80)),
    *(f"Recommendation (batch size {batch})" for batch in (512, 1024, 2048, 4096, 8192)),
    *("A3C", "CycleGAN"),
)
SHORT, LONG, SHORT_SHARE = (1.5, 3.0), (3.0, 4.0), 0.8
SEEDS = (0, 1, 2)
"""As many as the authors take."""
MINUTE_MS, HOUR_MS, DAY_MS = 60_000, 3_600_000, 86_400_000

PUBLISHED = 3.5
"""Up to so many times better mean completion times (the paper's abstract)."""


@dataclass(frozen=True, slots=True)
class Size:
    """Which jobs are counted, from one to before another; the rates of arrival, in jobs an hour; how long rounds are.

    `drawn` jobs come in all: so many that the last of those that count is done before the last one comes.
    """

    first: int
    last: int
    drawn: int
    per_hour: tuple[float, ...]
    round_s: int
    seeds: tuple[int, ...] = SEEDS


FULL = Size(first=4000, last=5000, drawn=25_000, per_hour=(4.0, 4.8, 5.6), round_s=3600)
QUICK = Size(first=10, last=15, drawn=500, per_hour=(6.0,), round_s=3600, seeds=(0, 1))


def run(size: Size, tell: Tell) -> list[Row]:
    """Mean completion times blind to types over those with an eye for them, and the largest beside the paper's."""
    rates = ", ".join(f"{per_hour:g}" for per_hour in size.per_hour)
    tell(f"heterogeneity: jobs {size.first:,} to {size.last:,}, at {rates} an hour")
    # The longest runs first, so that none is left to run alone at the end.
    cases = [
        (size, per_hour, blind, seed)
        for per_hour in reversed(size.per_hour)
        for blind in (True, False)
        for seed in size.seeds
    ]
    with ProcessPoolExecutor(min(len(cases), cpu_count() or 1), mp_context=get_context("spawn")) as pool:
        found = dict(zip(cases, pool.map(mean_jct_s, *zip(*cases, strict=True)), strict=True))
    rows: list[Row] = []
    ratios: list[float] = []
    for per_hour in size.per_hour:
        aware_s = [found[size, per_hour, False, seed] for seed in size.seeds]
        blind_s = [found[size, per_hour, True, seed] for seed in size.seeds]
        # Of one seed both have the same jobs: their ratio varies less than the ratio of means would.
        own = [blind / aware for blind, aware in zip(blind_s, aware_s, strict=True)]
        ratios.append(interval(own).mean)
        name = f"heterogeneity: {per_hour:g} jobs an hour: mean JCT"
        rows += _with_bounds(f"{name}, gavel", [each / 3600 for each in aware_s], "h")
        rows += _with_bounds(f"{name}, gavel blind to types / gavel", own, "ratio")
    beside = f"heterogeneity: largest mean ratio / the paper's (up to {PUBLISHED:g})"
    return [*rows, row(beside, max(ratios) / PUBLISHED, "ratio")]


def _with_bounds(name: str, values: list[float], unit: str) -> list[Row]:
    """The mean over seeds, and the bounds of its 95 % interval."""
    found = interval(values)
    seeds = f"{len(values)} seeds"
    bounds = [row(f"{name}, 95 % from", found.low, unit), row(f"{name}, 95 % to", found.high, unit)]
    return [row(f"{name}, mean of {seeds}", found.mean, unit), *bounds]


def cluster() -> Cluster:
    """36 GPUs of each type."""
    return Cluster(
        tuple(Node(f"{name.lower()}-{i}", (), 1, name) for name in TYPES for i in range(NODES)),
        name="heterogeneity",
    )


def drawn(jobs: int, per_hour: float, seed: int) -> Trace:
    """Jobs as the authors draw them."""
    chance = Random(seed)
    at_ms, found = 0.0, []
    for number in range(jobs):
        at_ms += chance.expovariate(per_hour) * HOUR_MS
        exponent = chance.uniform(*(SHORT if chance.random() < SHORT_SHARE else LONG))
        duration_ms = round(10**exponent * MINUTE_MS)
        found.append(TraceJob(str(number), round(at_ms), duration_ms, 1, model=chance.choice(MODELS)))
    return Trace(f"{per_hour:g} jobs an hour", tuple(found))


def mean_jct_s(size: Size, per_hour: float, blind: bool, seed: int) -> float:
    """The mean completion time of the jobs that are counted."""
    trace = drawn(size.drawn, per_hour, seed)
    simulation = Simulation(Setup(cluster(), trace, f"gavel:round={size.round_s}", costs=NO_COSTS))
    simulation.begin()
    if blind:
        simulation.run.adviser = Blind()
    jobs, counted = simulation.run.state.jobs, [job.id for job in trace.jobs[size.first : size.last]]
    while any(job not in jobs or jobs[job].ended_ms is None for job in counted):
        simulation.go(until_ms=simulation.now_ms + DAY_MS)
    if trace.jobs[-1].id in jobs:
        raise ValueError(f"all {size.drawn:,} jobs have come before those that count were done: expected more")
    records = [jobs[job] for job in counted]
    return sum((record.ended_ms or 0) - record.submitted_ms for record in records) / len(records) / 1000


ALIKE = Throughputs(
    "all types alike", tuple(Throughput(model, 0, 1, tuple((name, 1.0) for name in TYPES)) for model in MODELS)
)


class Blind(Gavel):
    """The same adviser with nothing known of speeds, as the authors have it: types are given out by chance.

    Every job is due as much of its time on one type as on another, and in each round takes the first that is to be had
    in an order drawn for it, whether it lies elsewhere or not.
    """

    def __init__(self) -> None:
        super().__init__(ALIKE)

    def __call__(self, state: State, now: int) -> Advice:
        """The round that begins now. Another always follows: a job that keeps what was drawn may draw otherwise."""
        advice = super().__call__(state, now)
        return Advice(advice.policy, {entry: value for entry, value in advice.body.items() if entry != "rest"})

    def _contenders(
        self, state: State, columns: tuple[str, ...], capacity: tuple[float, ...], goal: Goal
    ) -> tuple[list[Contender], dict[str, Demand]]:
        found, outcasts = super()._contenders(state, columns, capacity, goal)
        return [_by_lot(contender, state.memory["round"]) for contender in found], outcasts


@dataclass(slots=True)
class ByLot(Contender):
    """A contender that moves to the first of its types, which is as good as any."""

    def gains_on(self, gpu_type: int) -> bool:
        """Only on the one that was drawn."""
        return gpu_type == next(iter(self.places)) != self.lies_on


def _by_lot(contender: Contender, round_number: int) -> ByLot:
    share = sum(place.share for place in contender.places.values()) / len(contender.places)
    types = sorted(contender.places)
    Random(round_number * 1_000_003 + contender.number).shuffle(types)
    places = {gpu_type: contender.places[gpu_type]._replace(share=share) for gpu_type in types}
    return ByLot(contender.job, contender.number, places, contender.lies_on)
