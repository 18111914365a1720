"""What policies cost: microseconds an event, each on the same trace, and the time of solvers apart."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.util import find_spec
from time import thread_time
from typing import Any

from phalanx.bench.row import Row, Tell, ratio, row
from phalanx.cluster.cluster import Cluster, flat
from phalanx.engine.state.state import State
from phalanx.policy.registry import BUILTIN
from phalanx.simulate.plugins import resolve_policy
from phalanx.simulate.simulation import Setup, Simulation
from phalanx.simulate.studies.batch import Stopped
from phalanx.simulate.studies.suite import NEEDS
from phalanx.simulate.trace import Trace
from phalanx.simulate.traces.synthetic import Synthetic, synthesize

TIMES_FIFO_MAX = 20
"""How many times what `fifo` takes a policy may take, but for those that ask a solver."""

SOLVING = ("gavel", "optimus", "pollux", "themis")
"""Those: a linear program, the division by gains, a genetic search, an auction. Whoever else sets sizes, does so by a
rule, and that is part of what it costs.
"""

GIVEN = {"tiresias-gittins": NEEDS["tiresias-gittins"]}
"""Policies are measured as they are by default, but for this one, which cannot be had without samples."""

FIRST = "fifo"


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured. A policy that takes longer than its patience is measured as far as it came by then."""

    jobs: int
    nodes: int
    load: float
    patience_s: float


FULL = Size(jobs=20_000, nodes=312, load=0.9, patience_s=60)
QUICK = Size(jobs=60, nodes=4, load=0.9, patience_s=2)


@dataclass(frozen=True, slots=True)
class Cost:
    """CPU time of a run, what of it went into a solver, and how many events it came by."""

    seconds: float
    solver_s: float
    solver_calls: int
    events: int
    whole: bool

    @property
    def us_per_event(self) -> float:
        """Without the solver."""
        return 1e6 * (self.seconds - self.solver_s) / max(self.events, 1)


def run(size: Size, tell: Tell) -> list[Row]:
    """All rows: those of `fifo` first, since the others are measured by it."""
    cluster = flat(size.nodes, 8)
    trace = synthesize(Synthetic(size.jobs, cluster.gpus, size.load), 1)
    names = [FIRST, *(name for name in BUILTIN if name != FIRST and _can_run(name))]
    rows: list[Row] = []
    first: float | None = None
    for name in names:
        tell(f"policies: {name}")
        cost = measured(cluster, trace, GIVEN.get(name, name), size.patience_s)
        first = cost.us_per_event if first is None else first
        part = "" if cost.whole else f", first {cost.events:,} events"
        rows.append(row(f"policies: an event under {name}{part}", cost.us_per_event, "µs"))
        if name != FIRST:
            target = None if name in SOLVING else float(TIMES_FIFO_MAX)
            rows.append(row(f"policies: an event under {name} / {FIRST}", ratio(cost.us_per_event, first), "", target))
        if cost.solver_calls:
            rows.append(row(f"policies: solver of {name}, a call", 1e3 * cost.solver_s / cost.solver_calls, "ms"))
            rows.append(row(f"policies: solver of {name}, calls", float(cost.solver_calls), ""))
    return rows


def measured(cluster: Cluster, trace: Trace, policy: str, patience_s: float) -> Cost:
    """Runs a trace under a policy, for as long as patience lasts."""
    simulation = Simulation(Setup(cluster, trace, resolve_policy(policy)))
    simulation.begin()
    solver = _Solver()
    solver.watch(simulation)
    begun_s = thread_time()
    patience = _Patience(begun_s + patience_s)
    with suppress(Stopped):
        simulation.go(watch=patience)
    state = simulation.run.state
    return Cost(thread_time() - begun_s, solver.seconds, solver.calls, state.seq + 1, not patience.is_over)


class _Patience:
    def __init__(self, end_s: float) -> None:
        self._end_s = end_s
        self.is_over = False

    def __call__(self, state: State) -> None:
        if thread_time() > self._end_s:
            self.is_over = True
            raise Stopped


class _Solver:
    """Counts what a policy's solver takes, if it has one: its adviser, or what works out its sizes."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.calls = 0

    def watch(self, simulation: Simulation) -> None:
        run, state = simulation.run, simulation.run.state
        if state.policy.name not in SOLVING:
            return
        if run.adviser is not None:
            run.adviser = self._timed(run.adviser)
        if state.policy.sets_sizes:
            state.policy = replace(state.policy, sizes=self._timed(state.policy.sizes))

    def _timed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*arguments: Any) -> Any:
            begun_s = thread_time()
            try:
                return function(*arguments)
            finally:
                self.seconds += thread_time() - begun_s
                self.calls += 1

        return timed


def _can_run(name: str) -> bool:
    return name != "gavel" or find_spec("highspy") is not None
