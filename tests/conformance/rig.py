"""The rig: the real engine, a bad line, and a backend under test at the other end."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from hosted import CLUSTER
from programs import Program
from subject import PATIENCE_S, Subject

from builders import a_job
from phalanx.backends.capability import Capability
from phalanx.backends.faulty import FaultyBackend
from phalanx.backends.live import adoptable
from phalanx.cluster.cluster import Health
from phalanx.engine.state.journal import Journal
from phalanx.engine.state.records import AttemptRecord, JobRecord, JobState
from phalanx.engine.state.state import State
from phalanx.engine.turn import record, replay, turn
from phalanx.faults.health.watch import NodeWatch
from phalanx.protocol.action import Action
from phalanx.protocol.event import (
    AttemptEnded,
    ClusterDefined,
    Done,
    Event,
    Failed,
    JobCancelled,
    JobSubmitted,
    NodeHealthChanged,
)
from phalanx.workload.job import Job

GRACE_MS = 1_000


class Rig:
    """Two nodes of four GPUs, run by the engine through a shim."""

    def __init__(self, subject: Subject, apart: bool = False) -> None:
        self.subject = subject
        self.line = FaultyBackend(subject.open(apart))
        self.state = State()
        self.journal = Journal()
        self.seen: list[Event] = []
        self.watch: NodeWatch | None = None
        self.canaries: Iterator[str] = iter(())
        self._apart = apart
        lacks = ("resize",) if not subject.offer.can(Capability.RESIZE) else ()
        record(self.state, self.journal, ClusterDefined(CLUSTER, "priority", lacks=lacks), subject.now())

    def submit(self, name: str, program: Program, gpus: int = 1, count: int | tuple[int, int] = 1, **job: Any) -> Job:
        """Submits a job and takes a turn."""
        made = a_job(name, gpus, count, **{"grace_ms": GRACE_MS, **job})
        made = self.subject.job(made, program)
        self.turn(JobSubmitted(made))
        return made

    def turn(self, *events: Event) -> None:
        """One turn with what has happened; its actions go down the line."""
        now = self.subject.now()
        heard = self.line.events(now)
        self.seen += heard
        plan = turn(self.state, self.journal, self._looked_after((*heard, *events), now), now)
        for action in plan.actions:
            self.line.carry_out(action, now)

    def _looked_after(self, events: Iterable[Event], now: int) -> Iterator[Event]:
        """What happens and, where nodes are watched, what the watch says to it, as a server has it."""
        for event in events:
            if self.watch is not None:
                self.watch.note(event, now)
            yield event
        if self.watch is not None:
            yield from self.watch.events(now, lambda: next(self.canaries))

    def until(self, what: Callable[[], object]) -> None:
        """Takes turns until something is so."""
        deadline_s = time.monotonic() + PATIENCE_S
        self.turn()
        while not what():
            if time.monotonic() > deadline_s or not self.subject.wait(self._next_ms()):
                raise AssertionError(f"it never came to be; the last events were {self.seen[-5:]}")
            self.turn()

    def _next_ms(self) -> int | None:
        watched_ms = self.watch.next_ms() if self.watch is not None else None
        moments = (self.line.next_event_ms(), self.state.next_wakeup(), watched_ms)
        return min((moment for moment in moments if moment is not None), default=None)

    def is_in(self, job: str, state: JobState) -> Callable[[], bool]:
        """Whether a job is in a state."""
        return lambda: self.record(job).state is state

    def run(self, name: str, program: Program, **job: Any) -> None:
        """Submits a job and waits until it runs, in the engine's eyes and in the world."""
        self.submit(name, program, **job)
        self.until(self.is_in(name, JobState.RUNNING))
        self.until(lambda: self.subject.living(name) == self.tasks(name))

    def finish(self, name: str) -> JobRecord:
        """Waits until a job is over."""
        self.until(lambda: self.record(name).final is not None)
        return self.record(name)

    def record(self, job: str) -> JobRecord:
        return self.state.record(job)

    def attempt(self, job: str) -> AttemptRecord:
        attempt = self.record(job).attempt
        assert attempt is not None, f"job {job} has no attempt"
        return attempt

    def tasks(self, job: str) -> int:
        return len(self.attempt(job).placement.slots)

    def cancel(self, job: str) -> None:
        self.turn(JobCancelled(job))

    def health(self, node: str, health: Health) -> None:
        self.turn(NodeHealthChanged(node, health))

    def crash(self) -> None:
        """Kills the scheduler and begins anew from its journal, as after kill -9."""
        self.subject.crash()
        self.restart()

    def restart(self) -> None:
        """Begins anew from the journal."""
        self.state = replay(self.journal)
        bend = self.line
        self.line = FaultyBackend(self.subject.open(self._apart))
        self.line.bend_action, self.line.bend_event = bend.bend_action, bend.bend_event
        self.subject.adopt(adoptable(self.state), self.subject.now())

    def ask(self, action: Action) -> Event:
        """Has the backend carry out an action that the engine knows nothing of, and waits for the answer."""
        backend, now = self.line.inner, self.subject.now()
        backend.carry_out(action, now)
        deadline_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline_s:
            # The end of a task may be told together with its start.
            told = list(backend.events(self.subject.now()))
            self.seen += told
            for event in told:
                if isinstance(event, Done | Failed) and event.action == action.id:
                    return event
            self.subject.wait(backend.next_event_ms())
        raise AssertionError(f"{action} was never answered")

    def endings(self, job: str) -> list[AttemptEnded]:
        """What was told of ends that nobody asked for."""
        return [event for event in self.seen if isinstance(event, AttemptEnded) and event.job == job]
