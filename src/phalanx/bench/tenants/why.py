"""How long `why` takes where 50,000 jobs wait in 1,000 queues, and how often its forecasts come true."""

from __future__ import annotations

import resource
from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import TypeVar

from phalanx.bench.clock import timed_us
from phalanx.bench.collector import as_in_a_server
from phalanx.bench.philly import PHILLY
from phalanx.bench.row import Row, Tell, quantile, row
from phalanx.bench.tenants.borrowing import tree
from phalanx.bench.tenants.calibration import calibrate
from phalanx.bench.tenants.held_out import Held, held_out
from phalanx.cluster.cluster import Cluster, Node
from phalanx.engine.state.journal import Count
from phalanx.engine.state.order import whole_key
from phalanx.engine.state.state import State
from phalanx.engine.turn import record, turn
from phalanx.engine.why.why import why
from phalanx.protocol.event import ClusterDefined, Done, JobSubmitted
from phalanx.simulate.estimates import estimates_of
from phalanx.simulate.forecasts.forecast import Forecast, Outlook, Point, point_forecast, span
from phalanx.simulate.trace import Trace, TraceJob
from phalanx.simulate.traces.load import at_load, moved
from phalanx.simulate.traces.open import read_trace
from phalanx.simulate.traces.synthetic import Synthetic, synthesize
from phalanx.workload.gang import Gang, Role, Task, Topology
from phalanx.workload.job import Job

Answer = TypeVar("Answer")

SEED = 1
NODES, NODES_PER_RACK, GPUS = 640, 16, 8
QUEUES = 1_000
BRANCHES = (10, 5, 4, 4)
POLICIES = ("fifo:skip=true", "priority", "fair")
"""Under the first queues do not matter, under the second only priorities do; under the last there is a tree of queues
with quotas, as where gangs are admitted."""

HOUR_MS = 3_600_000
WHY_TARGET_MS = 100.0
POINT_TARGET_S = 2.0
COVERAGE_PERCENT, COVERAGE_TARGET_POINTS = 80.0, 10.0
HELD_PERCENT = (75.0, 90.0)
HELD_SEED = 201
"""Of the first trace whose intervals are counted: the rules by which they are corrected were chosen on others."""

HELD_POLICIES = ("phalanx", "fair", "fifo", "priority", "srtf", "backfill")
HELD_NODES, HELD_LOAD, HELD_ESTIMATES = 2, 1.0, "round"
HELD_OUTLOOK = Outlook(runs=9, turns_max=5_000, workers=2)
"""As many runs as a server makes for one forecast, and as far ahead."""

"""A real trace, where it lies beside this repository."""

ESTIMATES = {"durations said within a factor of 2": 2.0, "no durations said": 0.0}


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured."""

    waiting: int
    asked: int
    points: int
    jobs: int
    nodes: int
    moments: int
    traces: int
    held_jobs: int
    each: int


FULL = Size(waiting=50_000, asked=200, points=5, jobs=1_200, nodes=8, moments=12, traces=24, held_jobs=480, each=2)
QUICK = Size(waiting=300, asked=5, points=1, jobs=60, nodes=2, moments=1, traces=1, held_jobs=60, each=1)


def answers(size: Size, tell: Tell) -> list[Row]:
    """Why, for jobs all over a long line, with the newest forecast at hand; and a point forecast made on the spot."""
    rows: list[Row] = []
    for policy in POLICIES:
        tell(f"why: {policy}, {size.waiting} waiting")
        state = crowded(size.waiting, policy)
        name = f"{policy}, {size.waiting} waiting, {len(state.cluster.queues) or QUEUES} queues"
        with as_in_a_server():
            rows += _asked(state, size, name)
    return rows


def _asked(state: State, size: Size, name: str) -> list[Row]:
    line = _in_line(state)
    newest = Forecast(state.now, 1, 1, {job: span([state.now + 1]) for job in line})
    rng = Random(SEED)
    took_ms = [
        timed_us(lambda: (why(state, job), newest.spans[job]))[0] / 1000  # noqa: B023
        for job in rng.sample(line, min(size.asked, len(line)))
    ]
    first = rng.sample(line[:500], min(size.points, len(line)))
    told: list[Point] = []
    took_s = [_with_forks(lambda: told.append(point_forecast(state, job, Outlook()))) for job in first]  # noqa: B023
    known = sum(point.start_ms is not None for point in told)
    return [
        row(f"{name}: why, median", quantile(took_ms, 0.5), "ms"),
        row(f"{name}: why, 95 of 100 within", quantile(took_ms, 0.95), "ms", WHY_TARGET_MS),
        row(f"{name}: fresh point forecast, longest of {len(first)}", max(took_s), "s", POINT_TARGET_S),
        row(f"{name}: fresh point forecasts that tell a time", known, "forecasts"),
    ]


def _in_line(state: State) -> list[str]:
    """All pending jobs, as the policy orders them now; where it orders queues, first the first of each."""
    keys = sorted((whole_key(state, each), job) for job, each in state.jobs.items() if each.queued is not None)
    if not state.policy.orders_queues:
        return [job for _, job in keys]
    before: dict[str, int] = {}
    places: dict[str, int] = {}
    for _, job in keys:
        queue = state.jobs[job].job.queue
        places[job] = before[queue] = before.get(queue, 0) + 1
    return sorted(places, key=places.__getitem__)


def calibration(size: Size, tell: Tell) -> list[Row]:
    """How often real starts lie in the interval of eight in ten."""
    rows: list[Row] = []
    cluster = Cluster(tuple(Node(f"n{i}", (), GPUS) for i in range(size.nodes)))
    trace = synthesize(Synthetic(jobs=size.jobs, gpus=cluster.gpus, load=1.1), SEED)
    outlook = Outlook(horizon_ms=2 * 86_400_000, grain_ms=60_000, workers=2)
    for estimates, rough in ESTIMATES.items():
        name = f"fifo, {trace.name}, {estimates}"
        tell(f"why: {name}")
        found = calibrate(cluster, trace, "fifo", size.moments, outlook, rough)
        percent = None if found.coverage is None else 100 * found.coverage
        apart = None if percent is None else abs(percent - COVERAGE_PERCENT)
        rows.append(row(f"{name}: starts forecast in the second half", found.starts, "starts"))
        rows.append(row(f"{name}: real starts within the 80 % interval", percent, "%"))
        rows.append(row(f"{name}: that part apart from 80 %", apart, "points", COVERAGE_TARGET_POINTS))
    return rows


def forecasts(size: Size, tell: Tell) -> list[Row]:
    """How often intervals held that are told at submission, by policy, on halves of traces that were not seen."""
    rows: list[Row] = []
    cluster = Cluster(tuple(Node(f"n{i}", (), GPUS) for i in range(HELD_NODES)))
    says = estimates_of(HELD_ESTIMATES)
    for name, traces in _held_traces(cluster, size).items():
        told = [says.of(trace, HELD_SEED + number) for number, trace in enumerate(traces)]
        for policy in HELD_POLICIES:
            tell(f"forecasts: {policy}, {len(told)} traces like {name}")
            held = held_out(cluster, told, policy, size.each, HELD_OUTLOOK)
            rows += _held_rows(f"forecasts under {policy}, {name}", held)
    return rows


def _held_traces(cluster: Cluster, size: Size) -> dict[str, list[Trace]]:
    spec = Synthetic(jobs=size.held_jobs, gpus=cluster.gpus, load=HELD_LOAD)
    found = {"synthetic": [synthesize(spec, HELD_SEED + number) for number in range(size.traces)]}
    if PHILLY.is_file():
        whole = read_trace(str(PHILLY))
        jobs = [job for job in whole.jobs if job.gpus <= cluster.gpus]
        found["Philly"] = [_piece(whole, jobs, number, size, cluster.gpus) for number in range(size.traces)]
    return found


def _piece(whole: Trace, jobs: list[TraceJob], number: int, size: Size, gpus: int) -> Trace:
    """Jobs in a row, from one of as many places of a trace as there are pieces, at the load."""
    first = number * (len(jobs) - size.held_jobs) // size.traces
    taken = jobs[first : first + size.held_jobs]
    piece = replace(whole, jobs=tuple(moved(job, job.submit_ms - taken[0].submit_ms) for job in taken))
    return at_load(piece, gpus, HELD_LOAD)


def _held_rows(name: str, held: Held) -> list[Row]:
    """Beside how many held stands how much they say: one without an end holds more easily, and so does a wide one."""
    low, high = HELD_PERCENT
    percent = _percent(held.told.coverage)
    beyond = None if percent is None else max(low - percent, percent - high, 0.0)
    width_ms = quantile(held.told.widths_ms, 0.5)
    return [
        row(f"{name}: starts forecast", held.told.starts, "starts"),
        row(f"{name}: 80 % intervals that held before correction", _percent(held.drawn.coverage), "%"),
        row(f"{name}: 80 % intervals that held without experience", _percent(held.unproven.coverage), "%"),
        row(f"{name}: starts before their interval, without experience", _percent(held.unproven.early_part), "%"),
        row(f"{name}: of these without an end", _percent(held.unproven.endless_part), "%"),
        row(f"{name}: 80 % intervals that held", percent, "%"),
        row(f"{name}: of these without an end, as told", _percent(held.told.endless_part), "%"),
        row(f"{name}: median width of those with an end", None if width_ms is None else width_ms / HOUR_MS, "h"),
        row(f"{name}: that width as a part of their median wait", held.told.width_part, "×"),
        row(f"{name}: that part beyond 75 to 90 %", beyond, "points", 0.0),
    ]


def _percent(part: float | None) -> float | None:
    return None if part is None else 100 * part


def crowded(waiting: int, policy: str) -> State:
    """A full cluster, and so many jobs of 1 to 64 GPUs waiting in a thousand queues; half of the large want a rack."""
    rng, state, journal = Random(SEED), State(), Count()
    nodes = tuple(Node(f"n{i}", (f"r{i // NODES_PER_RACK}",), GPUS) for i in range(NODES))
    queues = tree(BRANCHES, GPUS * NODES) if policy == "fair" else ()
    record(state, journal, ClusterDefined(Cluster(nodes, ("rack", "node"), queues=queues), policy), 0)
    names = state.quotas.leaves() or [f"q{i}" for i in range(QUEUES)]
    small = [_gang(1, gpus, "") for gpus in (1, 2, 4)]
    gangs = [*small, *(_gang(count, GPUS, level) for count in (1, 2, 4, 8) for level in ("", "rack"))]
    number = 0
    while state.in_line < waiting:
        jobs = [_job(number + i, gangs, names, rng) for i in range(min(1_000, waiting))]
        number += len(jobs)
        turn(state, journal, [JobSubmitted(job) for job in jobs], 0)
    begun = [action.id for attempt in state.attempts() for action in attempt.in_flight.values()]
    turn(state, journal, [Done(action) for action in begun], 1_000)
    return state


def _gang(count: int, gpus: int, level: str) -> Gang:
    return Gang((Role("worker", count, count, Task(gpus)),), Topology(level))


def _job(number: int, gangs: list[Gang], queues: list[str], rng: Random) -> Job:
    minutes = 1 + int(rng.expovariate(1 / 60))
    return Job(str(number), rng.choice(gangs), queue=rng.choice(queues), duration_ms=60_000 * minutes)


def _with_forks(work: Callable[[], Answer]) -> float:
    """Seconds of processor time that some work takes, here and in the processes it forks."""

    def children_s() -> float:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime

    before_s = children_s()
    took_us, _ = timed_us(work)
    return took_us / 1e6 + children_s() - before_s
