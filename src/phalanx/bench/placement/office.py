"""An office: a cluster with the engine, jobs waiting, and a backend that carries out every action at once."""

from __future__ import annotations

from random import Random

from phalanx.bench.clock import Patience, timed_us
from phalanx.bench.placement.fleet import Jobs, drained, fleet, take
from phalanx.cluster.cluster import Health
from phalanx.engine.state.journal import Journal
from phalanx.engine.state.records import Phase
from phalanx.engine.state.state import State
from phalanx.engine.turn import record, turn
from phalanx.protocol.event import AttemptEnded, ClusterDefined, Done, Event, JobSubmitted, NodeHealthChanged, Outcome
from phalanx.protocol.plan import Plan

BATCH = 50
"""Jobs submitted in one turn while the state is built up."""


class Office:
    """Submits jobs and ends others at random, and measures how long a Plan takes."""

    def __init__(self, nodes: int, policy: str) -> None:
        self.rng = Random(nodes)
        cluster = fleet(nodes, self.rng)
        self.state = State()
        self.journal = Journal()
        self.jobs = iter(Jobs.of(self.rng))
        self.gpus = cluster.gpus
        self._started: list[tuple[str, int]] = []
        record(self.state, self.journal, ClusterDefined(cluster, policy), 0)
        for name in drained(cluster, self.rng):
            record(self.state, self.journal, NodeHealthChanged(name, Health.DRAINING), 0)

    @property
    def load(self) -> float:
        """Share of the GPUs in use."""
        return sum(held.bit_count() for held in self.state.capacity.held) / self.gpus

    @property
    def waiting(self) -> int:
        """Jobs in line."""
        return sum(len(waiting.jobs) for waiting in self.state.classes.values())

    def churn_to(self, load: float, patience: Patience) -> None:
        """Submits until the load is reached, then has as many jobs end and come as run."""
        while self.load < load and not patience.is_over:
            self._take(self._submissions(BATCH))
        for _ in range(len(self._started) // BATCH):
            if patience.is_over:
                return
            self._take([self._end() for _ in range(BATCH)])
            while self.load < load and not patience.is_over:
                self._take(self._submissions(BATCH // 5))

    def queue_up(self, count: int, patience: Patience) -> bool:
        """Submits until so many jobs wait; False if that takes too long."""
        while (lacking := count - self.waiting) > 0:
            if patience.is_over:
                return False
            self._take(self._submissions(min(lacking, BATCH)))
        return True

    def time_end(self) -> float:
        """Milliseconds from the end of a job to the Plan."""
        return self._time(self._end())

    def time_submission(self) -> float:
        """Milliseconds from the submission of a job to the Plan."""
        return self._time(self._submissions(1)[0])

    def _time(self, event: Event) -> float:
        now = self.state.now + 1
        time_us, plan = timed_us(lambda: turn(self.state, self.journal, [event], now))
        self._carry_out(plan)
        return time_us / 1_000

    def _take(self, events: list[Event]) -> None:
        self._carry_out(turn(self.state, self.journal, events, self.state.now + 1))

    def _submissions(self, count: int) -> list[Event]:
        return [JobSubmitted(next(self.jobs)) for _ in range(count)]

    def _end(self) -> Event:
        while True:
            job, number = take(self._started, self.rng)
            attempt = self.state.attempt(job, number)
            if attempt is not None and attempt.phase is Phase.RUNNING:
                return AttemptEnded(job, number, Outcome.SUCCEEDED)

    def _carry_out(self, plan: Plan) -> None:
        """Answers every action with success, and those that follow from the answers."""
        self._started.extend((claim.job, claim.attempt) for claim in plan.claims)
        while plan.actions:
            plan = turn(self.state, self.journal, [Done(action.id) for action in plan.actions], self.state.now)
            self._started.extend((claim.job, claim.attempt) for claim in plan.claims)
