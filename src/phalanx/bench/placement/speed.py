"""Speed: placing gangs, refusing gangs, and going from an event to a Plan, on clusters of three sizes.

Everything that a user would wait for is measured once the churn that builds a state has warmed it up: the journal and
the garbage collector, set as a server sets it, included. Only CPU time counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from phalanx.bench.clock import Patience
from phalanx.bench.collector import as_in_a_server
from phalanx.bench.placement.floor import Floor
from phalanx.bench.placement.office import Office
from phalanx.bench.row import Row, Tell, quantile, ratio, row

LOAD, LOAD_LARGE = 0.7, 0.3
"""Share of the GPUs in use, and the same where a very large gang is placed."""

WARM_UP_SHAPES = 6
"""Shapes refused before refusals are measured: what is worked out once for a cluster is not what a new shape costs."""

GROWTH_MAX = 3
"""How many times the smallest cluster's median the largest one's may be."""

POLICIES = ("fifo:skip=true", "priority")


@dataclass(frozen=True, slots=True)
class Figure:
    """Something that takes time, and the most that its median and its 99th percentile may be on the largest cluster."""

    name: str
    unit: str
    median: float
    p99: float
    grows_slowly: bool = False


PLACE = Figure("place a gang", "µs", 100, 1_000, grows_slowly=True)
REFUSE = Figure("refuse a gang with counts, shape seen before", "ms", 5, 5)
REFUSE_NEW = Figure("refuse a gang with counts, new shape", "ms", 5, 5)


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured. `nodes` runs from the smallest cluster to the one that the targets are for.

    Events are measured for `patience_s` at most, and not at all if building the state takes longer.
    """

    nodes: tuple[int, ...]
    placings: int
    waiting: int
    turns: int
    large_nodes: int
    repeats: int
    patience_s: float


FULL = Size(
    nodes=(125, 1_250, 12_500),
    placings=10_000,
    waiting=10_000,
    turns=1_500,
    large_nodes=1_024,
    repeats=40,
    patience_s=90,
)
QUICK = Size(nodes=(32, 64), placings=50, waiting=50, turns=10, large_nodes=8, repeats=2, patience_s=20)


def run(size: Size, tell: Tell) -> list[Row]:
    """All rows of the speed benchmarks."""
    rows: list[Row] = []
    medians: dict[Figure, list[float | None]] = {}
    for nodes in size.nodes:
        is_largest = nodes == size.nodes[-1]
        for figure, times in (*placing(size, nodes, tell), *deciding(size, nodes, tell)):
            rows += _spread(figure, nodes, times, is_largest)
            medians.setdefault(figure, []).append(quantile(times, 0.5))
    for figure, each in medians.items():
        if figure.grows_slowly:
            name = f"{figure.name}: median at {size.nodes[-1]:,} nodes / at {size.nodes[0]:,} nodes"
            rows.append(row(name, ratio(each[-1], each[0]), "ratio", GROWTH_MAX))
    return [*rows, *placing_large(size, tell)]


def _spread(figure: Figure, nodes: int, times: list[float], has_targets: bool) -> list[Row]:
    median, p99 = (figure.median, figure.p99) if has_targets else (None, None)
    return [
        row(f"{figure.name}: median at {nodes:,} nodes", quantile(times, 0.5), figure.unit, median),
        row(f"{figure.name}: p99 at {nodes:,} nodes", quantile(times, 0.99), figure.unit, p99),
    ]


def placing(size: Size, nodes: int, tell: Tell) -> Iterator[tuple[Figure, list[float]]]:
    """Times to place and to refuse a gang."""
    tell(f"speed: gangs on {nodes:,} nodes")
    floor = Floor(nodes, LOAD)
    floor.place(size.placings // 2)
    floor.refuse(range(-WARM_UP_SHAPES, 0))
    with as_in_a_server():
        placed = floor.place(size.placings)
        first, again = floor.refuse(range(size.repeats))
    yield PLACE, placed
    yield REFUSE, again
    yield REFUSE_NEW, first


def placing_large(size: Size, tell: Tell) -> list[Row]:
    """Times to place a very large gang on the largest cluster, with some churn before each."""
    nodes = size.nodes[-1]
    name = f"place a gang of {size.large_nodes:,} nodes at {LOAD_LARGE:.0%} load"
    tell(f"speed: {name}")
    floor = Floor(nodes, LOAD_LARGE)
    times_ms = []
    with as_in_a_server():
        for _ in range(size.repeats):
            floor.place(20)
            times_ms.append(floor.place_large(size.large_nodes))
    return _spread(Figure(name, "ms", 20, 20), nodes, times_ms, has_targets=True)


def deciding(size: Size, nodes: int, tell: Tell) -> Iterator[tuple[Figure, list[float]]]:
    """Times from an event to the Plan with jobs waiting, for every policy and kind of event."""
    for policy in POLICIES:
        tell(f"speed: events on {nodes:,} nodes, {size.waiting:,} jobs waiting, {policy}")
        office = Office(nodes, policy)
        ends: list[float] = []
        submissions: list[float] = []
        setting_up = Patience(size.patience_s)
        office.churn_to(LOAD, setting_up)
        if office.queue_up(size.waiting, setting_up):
            measuring = Patience(size.patience_s)
            with as_in_a_server():
                while len(ends) < size.turns and not measuring.is_over:
                    ends.append(office.time_end())
                    submissions.append(office.time_submission())
            tell(f"speed: measured {len(ends):,} of each; {office.load:.0%} of the GPUs in use")
        else:
            tell(f"speed: given up after {size.patience_s:g} s with {office.waiting:,} jobs waiting")
        yield (
            Figure(
                f"from the end of a job to the plan, {policy}, {size.waiting:,} waiting", "ms", 1, 20, grows_slowly=True
            ),
            ends,
        )
        yield (
            Figure(
                f"from a submission to the plan, {policy}, {size.waiting:,} waiting", "ms", 1, 20, grows_slowly=True
            ),
            submissions,
        )
