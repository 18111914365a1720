"""Studies: runs that differ in their policy, seed or load, and are otherwise the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from sys import intern

from phalanx.cluster.cluster import Cluster
from phalanx.errors import PhalanxError
from phalanx.faults.generate.draw import Site, draw
from phalanx.faults.generate.occurrence import Occurrence
from phalanx.faults.generate.plan import DAY_MS, Plan
from phalanx.simulate.estimates import Estimates
from phalanx.simulate.figures.result import Result
from phalanx.simulate.figures.window import Window
from phalanx.simulate.health_loop import HealthLoop
from phalanx.simulate.simulation import COUNT, Setup
from phalanx.simulate.studies.nodes import with_nodes
from phalanx.simulate.studies.source import Source
from phalanx.simulate.studies.vary import LOAD, NODES, Curve, Variation, VariationError, curves
from phalanx.simulate.trace import Trace
from phalanx.simulate.world.costs import Costs
from phalanx.simulate.world.faults import NodeFault
from phalanx.workload.throughputs import Throughputs


class StudyError(PhalanxError):
    """Runs that were asked for and cannot be made."""


@dataclass(frozen=True, slots=True)
class Case:
    """One run of a study. `policy` is as its user wrote it, `spec` as the engine takes it.

    `nodes` is how many nodes the cluster has; None leaves it as it is.
    """

    policy: str
    spec: str
    seed: int
    load: float | None = None
    nodes: int | None = None

    def at(self, own: float) -> float:
        """The value of what is varied: nodes, or the load, which is its `own` where it was brought to none."""
        if self.nodes is not None:
            return float(self.nodes)
        return own if self.load is None else self.load


@dataclass(frozen=True, slots=True)
class Study:
    """What all runs have in common. A load of None leaves the source at its own.

    Loads, and the GPUs of synthetic traces, are of the cluster as it is given here: they stay when its nodes vary.
    `like` names the node of whose kind there are more or fewer then. Failures are given, as `faults` of nodes or as
    `occurrences`, or drawn by a `plan` for each seed anew. Every job is saved `every_ms`, if that is not 0.
    """

    cluster: Cluster
    source: Source
    placement: str = "topology"
    costs: Costs = field(default_factory=Costs)
    seed: int = 0
    load: float | None = None
    faults: tuple[NodeFault, ...] = ()
    until_ms: int | None = None
    throughputs: Throughputs | None = None
    estimates: Estimates | None = None
    like: str = ""
    window: Window | None = None
    occurrences: tuple[Occurrence, ...] = ()
    plan: Plan | None = None
    every_ms: int = 0
    health: HealthLoop | None = None

    def __post_init__(self) -> None:
        if (self.faults or self.occurrences or self.plan) and self.placement == COUNT:
            raise StudyError("placement count takes the cluster as one number of GPUs: it has no nodes that could fail")

    def cases(self, policies: Mapping[str, str], seeds: int = 1, variation: Variation | None = None) -> list[Case]:
        """A case for every value, seed and policy; policies are given as written, with what the engine takes."""
        if seeds < 1:
            raise StudyError(f"expected 1 seed or more, got {seeds}")
        loads: Sequence[float | None] = (self.load,)
        nodes: Sequence[int | None] = (None,)
        if variation is not None and variation.key == NODES:
            nodes = tuple(int(value) for value in variation.values)
            for count in (nodes[0], nodes[-1]):
                with_nodes(self.cluster, count or 0, self.like)
        elif variation is not None:
            loads = variation.values
            self._refuse_two_loads(variation)
        return [
            Case(policy, spec, seed, load, count)
            for load in loads
            for count in nodes
            for seed in range(self.seed, self.seed + seeds)
            for policy, spec in policies.items()
        ]

    def _refuse_two_loads(self, variation: Variation) -> None:
        if self.load is not None:
            first, last = variation.values[0], variation.values[-1]
            raise VariationError(
                f"the load is {self.load:g} (--load) and is to vary from {first:g} to {last:g} (--vary): give only one"
            )

    def setup(self, case: Case) -> Setup:
        """What the run of a case is a function of."""
        trace = self.source.at(self.cluster.gpus, case.load, case.seed, self.seed)
        if self.estimates is not None:
            trace = self.estimates.of(trace, case.seed)
        # A record leaves out a field that holds the very object that is its default: a copy from another process is
        # equal to it and would still be written, and give another digest.
        placement = intern(self.placement)
        cluster, faults = self.cluster, self.faults
        if case.nodes is not None:
            cluster = with_nodes(cluster, case.nodes, self.like)
            names = frozenset(node.name for node in cluster.nodes)
            faults = tuple(fault for fault in faults if fault[1] in names)
        return Setup(
            cluster,
            trace,
            case.spec,
            placement,
            self.costs,
            case.seed,
            faults,
            self.throughputs,
            self._occurrences(cluster, trace, case.seed),
            self.every_ms,
            self.health,
        )

    def _occurrences(self, cluster: Cluster, trace: Trace, seed: int) -> tuple[Occurrence, ...]:
        if self.plan is not None:
            # Not until where this run stops: it may be saved there and go on.
            until_ms = int(self.plan.days * DAY_MS) or span_ms(trace, cluster.gpus)
            return draw(self.plan, Site.of(cluster, self.plan.level), until_ms, seed)
        names = {node.name for node in cluster.nodes}
        kept = (replace(each, nodes=tuple(name for name in each.nodes if name in names)) for each in self.occurrences)
        return tuple(each for each in kept if each.nodes)

    def curves(self, runs: Sequence[tuple[Case, Result]]) -> list[Curve]:
        """Every figure against the load or the nodes, with how sure the seeds make it."""
        own = self.own_load([case for case, _ in runs])
        key = NODES if any(case.nodes is not None for case, _ in runs) else LOAD
        return curves(key, [(case.at(own), result.summary) for case, result in runs])

    def own_load(self, cases: Sequence[Case]) -> float:
        """The offered load of cases that are not brought to one; 0 if there are none."""
        return (
            self.source.load(self.cluster.gpus)
            if any(case.load is None and case.nodes is None for case in cases)
            else 0.0
        )


def span_ms(trace: Trace, gpus: int) -> int:
    """For how long failures are drawn where nothing is said of it: longer than a run usually lasts."""
    last_ms = max((job.submit_ms for job in trace.jobs), default=0)
    longest_ms = max((job.duration_ms for job in trace.jobs), default=0)
    work_ms = sum(job.gpus * job.duration_ms for job in trace.jobs) // max(gpus, 1)
    return last_ms + 2 * (longest_ms + work_ms) + 7 * DAY_MS
