"""Studies: runs that differ in their policy, seed or load, and are otherwise the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from sys import intern

from phalanx.cluster.cluster import Cluster
from phalanx.errors import PhalanxError
from phalanx.simulate.estimates import Estimates
from phalanx.simulate.figures.result import Result
from phalanx.simulate.simulation import COUNT, Setup
from phalanx.simulate.studies.source import Source
from phalanx.simulate.studies.vary import Curve, Variation, VariationError, curves
from phalanx.simulate.world.costs import Costs
from phalanx.simulate.world.faults import NodeFault
from phalanx.workload.throughputs import Throughputs


class StudyError(PhalanxError):
    """Runs that were asked for and cannot be made."""


@dataclass(frozen=True, slots=True)
class Case:
    """One run of a study. `policy` is as its user wrote it, `spec` as the engine takes it."""

    policy: str
    spec: str
    seed: int
    load: float | None = None


@dataclass(frozen=True, slots=True)
class Study:
    """What all runs have in common. A load of None leaves the source at its own."""

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

    def __post_init__(self) -> None:
        if self.faults and self.placement == COUNT:
            raise StudyError("placement count takes the cluster as one number of GPUs: it has no nodes that could fail")

    def cases(self, policies: Mapping[str, str], seeds: int = 1, variation: Variation | None = None) -> list[Case]:
        """A case for every value, seed and policy; policies are given as written, with what the engine takes."""
        if seeds < 1:
            raise StudyError(f"expected 1 seed or more, got {seeds}")
        if variation is not None and self.load is not None:
            first, last = variation.values[0], variation.values[-1]
            raise VariationError(
                f"the load is {self.load:g} (--load) and is to vary from {first:g} to {last:g} (--vary): give only one"
            )
        loads: Sequence[float | None] = (self.load,) if variation is None else variation.values
        return [
            Case(policy, spec, seed, load)
            for load in loads
            for seed in range(self.seed, self.seed + seeds)
            for policy, spec in policies.items()
        ]

    def setup(self, case: Case) -> Setup:
        """What the run of a case is a function of."""
        trace = self.source.at(self.cluster.gpus, case.load, case.seed, self.seed)
        if self.estimates is not None:
            trace = self.estimates.of(trace, case.seed)
        # A record leaves out a field that holds the very object that is its default: a copy from another process is
        # equal to it and would still be written, and give another digest.
        placement = intern(self.placement)
        return Setup(self.cluster, trace, case.spec, placement, self.costs, case.seed, self.faults, self.throughputs)

    def curves(self, runs: Sequence[tuple[Case, Result]]) -> list[Curve]:
        """Every figure against the load, with how sure the seeds make it."""
        own = self.own_load([case for case, _ in runs])
        return curves("load", [(own if case.load is None else case.load, result.summary) for case, result in runs])

    def own_load(self, cases: Sequence[Case]) -> float:
        """The offered load of cases that are not brought to one; 0 if there are none."""
        return self.source.load(self.cluster.gpus) if any(case.load is None for case in cases) else 0.0
