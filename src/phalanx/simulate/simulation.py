"""A simulation: a trace on a cluster under a policy, in virtual time, by the turns that also run live clusters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from sys import intern
from typing import Any

from phalanx.advice.registry import adviser
from phalanx.cluster.cluster import Cluster, Health, commonest_type
from phalanx.cluster.topology import Topology
from phalanx.engine.state.journal import Count, Journal
from phalanx.engine.state.state import State
from phalanx.engine.turn import record
from phalanx.faults.generate.occurrence import Occurrence
from phalanx.protocol.event import (
    ClusterChanged,
    ClusterDefined,
    Event,
    JobCancelled,
    JobSubmitted,
    NodeHealthChanged,
    PolicyChanged,
)
from phalanx.simulate.calm import calm
from phalanx.simulate.figures.sampler import STRETCHES_MAX, Sampler, Stretch, mix_of
from phalanx.simulate.health_loop import HealthLoop
from phalanx.simulate.run import Run
from phalanx.simulate.strife import Strife
from phalanx.simulate.submission import Submitter, as_pool, check_queues
from phalanx.simulate.trace import Trace
from phalanx.simulate.world.breaking import Struck
from phalanx.simulate.world.costs import Costs
from phalanx.simulate.world.locality import CURVES, FLAT_CURVES
from phalanx.simulate.world.speed import NEUTRAL, SpeedModel
from phalanx.simulate.world.virtual import VirtualBackend
from phalanx.simulate.world.work import Work
from phalanx.workload.throughputs import Throughputs
from phalanx.workload.tier import Tier, tier_of

COUNT = "count"
"""The placement that takes the cluster as one number of GPUs."""

Watch = Callable[[State], None]


@dataclass(frozen=True, slots=True)
class Setup:
    """What a run is a pure function of."""

    cluster: Cluster
    trace: Trace
    policy: str = "fifo"
    placement: str = "topology"
    costs: Costs = field(default_factory=Costs)
    seed: int = 0
    faults: tuple[tuple[int, str, str, str], ...] = ()
    throughputs: Throughputs | None = None
    occurrences: tuple[Occurrence, ...] = ()
    every_ms: int = 0
    health: HealthLoop | None = None


class Arrivals:
    """What is still to arrive, in order, from a position on: it can be saved and gone on with."""

    def __init__(self, arrivals: list[tuple[int, Event]]) -> None:
        self._arrivals = arrivals
        self._at = 0

    def __iter__(self) -> Arrivals:
        return self

    def __next__(self) -> tuple[int, Event]:
        if self._at == len(self._arrivals):
            raise StopIteration
        self._at += 1
        return self._arrivals[self._at - 1]


class Simulation:
    """One run in virtual time, from its beginning to any moment."""

    def __init__(self, setup: Setup, journal: Journal | None = None) -> None:
        check_queues(setup.cluster, setup.trace)
        self.setup = setup
        self.cluster = as_pool(setup.cluster) if setup.placement == COUNT else setup.cluster
        submitter = Submitter(self.cluster, setup.throughputs)
        self.works: dict[str, Work] = {}
        self.canaries: list[str] = []
        self.jobs = [setup.costs.charge(submitter.job(traced)) for traced in setup.trace.jobs]
        for traced, job in zip(setup.trace.jobs, self.jobs, strict=True):
            self.works[job.id] = Work(traced.duration_ms, traced.ending, job, setup.every_ms)
        self.backend = VirtualBackend(self.works, setup.costs, self._speed())
        for job in self.jobs:
            if tier_of(job) is not Tier.BASIC and job.gang.gpus_max:
                self.backend.ledger.follow(job.id)
        for occurrence in setup.occurrences:
            self.backend.at(max(occurrence.at_ms - occurrence.notice_ms, 0), Struck(occurrence))
        self.run = Run(self.backend, self._arrivals(), journal=journal if journal is not None else Count())
        self.sampler = self._sampler()
        self.strife = Strife((*(fault[0] for fault in setup.faults), *(each.at_ms for each in setup.occurrences)))
        self._reached_ms = 0
        self._capacity: list[tuple[int, int]] = [(0, self.cluster.gpus)]

    def _speed(self) -> SpeedModel:
        curves = CURVES if self.setup.costs.locality else FLAT_CURVES
        return SpeedModel(
            Topology(self.cluster),
            curves,
            measured_on=commonest_type(self.cluster),
            throughputs=self.setup.throughputs,
        )

    def __getstate__(self) -> dict[str, Any]:
        """What is saved: all but speeds, which are worked out again."""
        backend = replace(self.backend, speed=NEUTRAL)
        return {
            **self.__dict__,
            "backend": backend,
            "run": replace(self.run, backend=backend, adviser=None, take_id=None),
        }

    def __setstate__(self, saved: dict[str, Any]) -> None:
        self.__dict__.update(saved)
        self.backend.speed = self._speed()
        self.run.backend = self.backend
        self.run.take_id = self._next_canary
        self._ask_for_advice()

    def begin(self) -> None:
        """Defines the cluster: the first record."""
        # Interned, since records leave out only defaults that are the very same object.
        placement = intern(self.setup.placement if self.setup.placement != COUNT else "pack")
        if placement == "random":
            placement = f"random:{self.setup.seed}"
        first = ClusterDefined(self.cluster, self.setup.policy, placement=placement, suspend=self.setup.costs.suspend)
        record(self.run.state, self.run.journal, first, 0)
        self._have_reports()
        self._ask_for_advice()
        if self.setup.health is not None:
            self.run.watch = self.setup.health.watch(self.run.state)
            self.run.take_id = self._next_canary
        self.run.begin()

    def _next_canary(self) -> str:
        """The id of another canary, which has its length to do."""
        name = f"canary-{len(self.canaries) + 1}"
        self.canaries.append(name)
        self.works[name] = Work(self.setup.health.canary_ms if self.setup.health is not None else 0)
        return name

    def _have_reports(self) -> None:
        """Has jobs report as often as the policy wants to know how far they are."""
        policy = self.run.state.policy
        self.backend.reports_ms = policy.reports_ms
        unlike = len(dict.fromkeys(node.gpu_type for node in self.cluster.nodes if node.gpus)) > 1
        self.backend.paces_ms = policy.paces_ms if unlike else None

    def _ask_for_advice(self) -> None:
        """Has the policy's solver asked, if it has one."""
        name = self.run.state.policy.adviser
        self.run.adviser = adviser(name, self.setup.throughputs) if name else None

    def happen(self, *events: Event) -> None:
        """Has events happen at the moment the run has reached: other nodes, another policy, jobs, failures."""
        run, now = self.run, self.now_ms
        self.sampler.pass_time(run.state, self.backend.ledger.held_now, now)
        run.fold(events, now)
        for event in events:
            if isinstance(event, ClusterChanged):
                self.cluster = event.cluster
                self.backend.speed = self._speed()
                self._have_reports()
                self._capacity.append((now, self.cluster.gpus))
                self.sampler.gpus = self.cluster.gpus
            elif isinstance(event, PolicyChanged):
                self.setup = replace(self.setup, policy=event.policy)
                self._have_reports()
                self._ask_for_advice()
        run.decide(now)

    @property
    def now_ms(self) -> int:
        """The moment the run has reached: that of the last turn, or a later one up to which it was let go."""
        return max(self.run.state.now, self._reached_ms)

    def capacity_gpu_s(self, begin_s: float, end_s: float) -> float:
        """GPU time that the cluster had from one moment to another, as it was at each."""
        ends = [at_ms / 1000 for at_ms, _ in self._capacity[1:]]
        spans = zip(self._capacity, (*ends, end_s), strict=True)
        return sum(
            gpus * max(min(until_s, end_s) - max(since_ms / 1000, begin_s), 0.0) for (since_ms, gpus), until_s in spans
        )

    def go(self, until_ms: int | None = None, watch: Watch | None = None) -> None:
        """Steps to the end, or until a moment; `watch` is shown the State after every turn."""
        run, sampler, ledger, state = self.run, self.sampler, self.backend.ledger, self.run.state
        with calm():
            while True:
                at = run.next_moment()
                if at is None or (until_ms is not None and at > until_ms) or self._is_over():
                    self._reached_ms = max(self._reached_ms, until_ms or 0)
                    return
                sampler.pass_time(state, ledger.held_now, at)
                plan = run.turn(at)
                if plan.actions:
                    self.strife.look(plan, state, self.backend)
                if watch is not None:
                    watch(state)

    def _is_over(self) -> bool:
        """Whether nothing but failures is still to come: they hit no job any more."""
        due = self.backend.due
        return bool(due) and isinstance(due[0][2], Struck) and self.run.is_over()

    def _arrivals(self) -> Arrivals:
        arrivals: list[tuple[int, Event]] = [
            (traced.submit_ms, JobSubmitted(job)) for traced, job in zip(self.setup.trace.jobs, self.jobs, strict=True)
        ]
        cancels = [(job.cancel_ms, JobCancelled(job.id)) for job in self.setup.trace.jobs if job.cancel_ms is not None]
        health = [(at_ms, NodeHealthChanged(node, Health(to), why)) for at_ms, node, to, why in self.setup.faults]
        if cancels or health:
            arrivals = sorted([*health, *arrivals, *cancels], key=lambda arrival: arrival[0])
        return Arrivals(arrivals)

    def stretches(self, end_ms: int) -> list[Stretch]:
        """The cluster over time, from the first submission to an end."""
        return self.sampler.seen(self.run.state, self.backend.ledger.held_now, end_ms)

    def _sampler(self) -> Sampler:
        jobs = self.jobs
        times = [job.submit_ms for job in self.setup.trace.jobs]
        first_ms = min(times, default=0)
        # A short trace begins with a stretch for every turn; a long one with about those that it will have.
        every_ms = (max(times) - first_ms) // (STRETCHES_MAX // 2) if len(times) > STRETCHES_MAX else 1
        lender = jobs[0] if jobs and self.setup.placement != COUNT else None
        return Sampler(self.cluster.gpus, max(every_ms, 1), mix_of(jobs), lender, first_ms)
