"""A run in virtual time: the same turns as live, with a clock that jumps from event to event."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from phalanx.cluster.cluster import Cluster, Health
from phalanx.engine.backend import Backend
from phalanx.engine.state.errors import NeverFitsError
from phalanx.engine.state.journal import Journal
from phalanx.engine.state.state import State
from phalanx.engine.turn import record, turn
from phalanx.faults.health.watch import NodeWatch
from phalanx.policy.guarded import PolicyError
from phalanx.protocol.event import Advice, ClusterDefined, Event, JobCancelled, JobSubmitted, NodeHealthChanged
from phalanx.protocol.plan import Plan
from phalanx.workload.job import Job

Adviser = Callable[[State, int], Advice]

IDLE_WAKES_MAX = 10_000
"""Wake-ups in a row that may lead to nothing while there is nothing else to come: a job pending then is so for ever."""


CREEPING_WAKES, CREEPING_MS = 100_000, 100
"""So many wake-ups in a row that lead to nothing, and on average less than so long apart, are a mistake of a policy."""


class Refused(NamedTuple):
    """A job that was not taken on, since its queue or virtual cluster could never have what it asks for, and why."""

    at_ms: int
    job: Job
    why: str


@dataclass(slots=True)
class Run:
    """One run: a state, its journal, and what is still to arrive, as (milliseconds, event) in order of time.

    Jobs that can never fit their queue or virtual cluster are `refused`, and the run goes on without them.
    """

    backend: Backend
    arrivals: Iterator[tuple[int, Event]]
    state: State = field(default_factory=State)
    journal: Journal = field(default_factory=Journal)
    adviser: Adviser | None = None
    refused: dict[str, Refused] = field(default_factory=dict)
    health: list[tuple[int, str, Health]] = field(default_factory=list)
    """What became of nodes, and when."""
    watch: NodeWatch | None = None
    take_id: Callable[[], str] | None = None
    """The watch over nodes, if there is one, and the ids of its canaries."""
    quarantined: list[str] = field(default_factory=list)
    """Nodes that came into quarantine, each as often as it did."""
    _next: tuple[int, Event] | None = None
    _idle_wakes: int = 0
    _idle_since_ms: int = 0
    _unfinished: str = ""

    @classmethod
    def of(cls, cluster: Cluster, policy: str, backend: Backend, arrivals: Iterable[tuple[int, Event]]) -> Run:
        """A run from the beginning."""
        run = cls(backend, iter(arrivals))
        record(run.state, run.journal, ClusterDefined(cluster, policy), 0)
        run.begin()
        return run

    def begin(self) -> None:
        """Looks for the first arrival."""
        self._next = next(self.arrivals, None)

    def step(self) -> Plan | None:
        """Jumps to the next moment at which something happens and takes one turn; None if nothing ever will."""
        now = self.next_moment()
        return self.turn(now) if now is not None else None

    def turn(self, now: int) -> Plan:
        """Takes the turn of a moment, and has its plan carried out."""
        # Ends before arrivals, as in the simulators of the field.
        events = self.backend.events(now)
        self._idle_wakes = 0 if events else self._idle_wakes + 1
        if self._idle_wakes % CREEPING_WAKES == 1:
            self._note_creeping(now)
        self.fold(events, now)
        self._arrive(now)
        if self.watch is not None:
            self._look_after_nodes(self.watch, now)
        if self.adviser is not None:
            due = self.state.policy.next_wakeup(self.state.memory, self.state.now)
            if due is not None and due <= now:
                self.fold((self.adviser(self.state, now),), now)
        return self.decide(now)

    def _note_creeping(self, now: int) -> None:
        """Ends a run whose policy has itself woken without end for nothing: it would take for ever, without a word."""
        if self._idle_wakes > 1 and now - self._idle_since_ms < CREEPING_WAKES * CREEPING_MS:
            raise PolicyError(
                f"policy {self.state.policy.spec}: next_wakeup had it woken {CREEPING_WAKES:,} times in a row between "
                f"{self._idle_since_ms:,} ms and {now:,} ms, and nothing came of it: expected the next moment at which "
                "its order changes, or None"
            )
        self._idle_since_ms = now

    def decide(self, now: int) -> Plan:
        """Decides, and has the plan carried out."""
        plan = turn(self.state, self.journal, (), now)
        for action in plan.actions:
            self.backend.carry_out(action, now)
        if plan.actions:
            self._idle_wakes = 0
        return plan

    def _look_after_nodes(self, watch: NodeWatch, now: int) -> None:
        """Has nodes on which too much fails take no new work, and lets them prove themselves, as a server does."""
        assert self.take_id is not None, "who has a watch names its canaries"
        for event in watch.events(now, self.take_id):
            if isinstance(event, NodeHealthChanged) and event.health is Health.SUSPECT and self._is_well(event.node):
                self.quarantined.append(event.node)
            # A canary that the cluster refuses leaves nothing that could be held or placed.
            with suppress(ValueError):
                self.fold((event,), now)

    def _is_well(self, node: str) -> bool:
        return self.state.capacity.health[self.state.topology.number[node]] is Health.HEALTHY

    def _arrive(self, now: int) -> None:
        while self._next is not None and self._next[0] <= now:
            event, self._idle_wakes = self._next[1], 0
            if not isinstance(event, JobCancelled) or not self._is_over(event.job):
                self.fold((event,), now)
            self._next = next(self.arrivals, None)

    def _is_over(self, job: str) -> bool:
        return job in self.refused or self.state.record(job).final is not None

    def fold(self, events: Iterable[Event], now: int) -> None:
        """Takes note of events; a job that can never fit is refused."""
        for event in events:
            if self.watch is not None:
                self.watch.note(event, now)
            try:
                record(self.state, self.journal, event, now)
                if isinstance(event, NodeHealthChanged):
                    self.health.append((now, event.node, event.health))
            except NeverFitsError as error:
                if not isinstance(event, JobSubmitted):
                    raise
                self.refused[event.job.id] = Refused(now, event.job, str(error))

    def finish(self, steps_max: int = 10_000_000) -> State:
        """Steps until nothing happens any more."""
        for _ in range(steps_max):
            if self.step() is None:
                return self.state
        raise RuntimeError(f"the run did not come to an end within {steps_max} steps")

    def next_moment(self) -> int | None:
        """When something happens next; None if nothing ever will, or nothing but wake-ups that lead to nothing."""
        soonest = self._next[0] if self._next is not None else None
        at_ms = self.backend.next_event_ms()
        if at_ms is not None and (soonest is None or at_ms < soonest):
            soonest = at_ms
        wake_ms = self._wakes_ms()
        if wake_ms is not None and (soonest is None or wake_ms < soonest):
            if soonest is None and self._is_idle():
                return None
            soonest = wake_ms
        now = self.state.now
        return now if soonest is not None and soonest < now else soonest

    def _wakes_ms(self) -> int | None:
        """When the State, or the watch over nodes, is to be looked at though nothing happens."""
        wake_ms = self.state.next_wakeup()
        due_ms = self.watch.next_ms() if self.watch is not None else None
        return wake_ms if due_ms is None or (wake_ms is not None and wake_ms < due_ms) else due_ms

    def is_over(self) -> bool:
        """Whether every job has arrived and ended, or none gets on by itself."""
        return self._next is None and self._is_idle()

    def _is_idle(self) -> bool:
        """Whether wake-ups, the only thing to come, are of no use: every job has ended, or none gets on by them."""
        if self._idle_wakes > IDLE_WAKES_MAX and not self.state.timers:
            return True
        jobs = self.state.jobs
        if self._unfinished in jobs and jobs[self._unfinished].final is None:
            return False
        self._unfinished = next((name for name, record in jobs.items() if record.final is None), "")
        return not self._unfinished


def submissions(jobs: Iterable[tuple[int, Job]]) -> Iterator[tuple[int, Event]]:
    """Jobs and the times of their submission, as arrivals."""
    for at_ms, job in jobs:
        yield at_ms, JobSubmitted(job)
