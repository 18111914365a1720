"""A run in virtual time: the same turns as live, with a clock that jumps from event to event."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from phalanx.cluster.cluster import Cluster
from phalanx.engine.backend import Backend
from phalanx.engine.event import ClusterDefined, Event, JobSubmitted
from phalanx.engine.journal import Journal
from phalanx.engine.plan import Plan
from phalanx.engine.state import State
from phalanx.engine.turn import record, turn
from phalanx.workload.job import Job


@dataclass(slots=True)
class Run:
    """One run: a state, its journal, and what is still to arrive, as (milliseconds, event) in order of time."""

    backend: Backend
    arrivals: Iterator[tuple[int, Event]]
    state: State = field(default_factory=State)
    journal: Journal = field(default_factory=Journal)
    _next: tuple[int, Event] | None = None

    @classmethod
    def of(cls, cluster: Cluster, policy: str, backend: Backend, arrivals: Iterable[tuple[int, Event]]) -> Run:
        """A run from the beginning."""
        run = cls(backend, iter(arrivals))
        run._next = next(run.arrivals, None)
        record(run.state, run.journal, ClusterDefined(cluster, policy), 0)
        return run

    def step(self) -> Plan | None:
        """Jumps to the next moment at which something happens and takes one turn; None if nothing ever will."""
        now = self._next_moment()
        if now is None:
            return None
        plan = turn(self.state, self.journal, self._happening(now), now)
        for action in plan.actions:
            self.backend.carry_out(action, now)
        return plan

    def finish(self, steps_max: int = 10_000_000) -> State:
        """Steps until nothing happens any more."""
        for _ in range(steps_max):
            if self.step() is None:
                return self.state
        raise RuntimeError(f"the run did not come to an end within {steps_max} steps")

    def _next_moment(self) -> int | None:
        moments = (
            self._next[0] if self._next else None,
            self.backend.next_event_ms(),
            self.state.next_wakeup(),
        )
        at = min((moment for moment in moments if moment is not None), default=None)
        return None if at is None else max(at, self.state.now)

    def _happening(self, now: int) -> Iterator[Event]:
        """Ends before arrivals, as in the simulators of the field."""
        yield from self.backend.events(now)
        while self._next is not None and self._next[0] <= now:
            yield self._next[1]
            self._next = next(self.arrivals, None)


def submissions(jobs: Iterable[tuple[int, Job]]) -> Iterator[tuple[int, Event]]:
    """Jobs and the times of their submission, as arrivals."""
    for at_ms, job in jobs:
        yield at_ms, JobSubmitted(job)
