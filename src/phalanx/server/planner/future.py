"""Futures: the State run ahead in virtual time by the engine that decides for real."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import fmean
from typing import Any

from phalanx.advice.registry import adviser
from phalanx.backends.live import adoptable
from phalanx.cluster.cluster import Health
from phalanx.engine.state.journal import Count
from phalanx.engine.state.state import State
from phalanx.engine.turn import record
from phalanx.protocol.event import Event, JobSubmitted, NodeHealthChanged, TimerDue
from phalanx.server.planner.course import Course
from phalanx.server.rehearsal import RehearsalBackend
from phalanx.simulate.run import Run
from phalanx.workload.job import Job

PATIENCE_S = 10.0
"""How long a question may be pondered: the caller is waiting."""

HORIZON_MS = 366 * 86_400_000
"""How far ahead is looked. Behind that a policy may still wake up, at longer and longer intervals, to no use."""

IDLE_TURNS_MAX = 1_000
"""Turns in a row, taken because a policy wakes up, in which nothing happens: then nothing will."""


class Future:
    """One future of a State, which it uses up. Jobs last as long as they say; one that says nothing never ends."""

    def __init__(self, state: State) -> None:
        self.state = state
        self._began_ms = state.now
        self._deadline_s = time.monotonic() + PATIENCE_S
        backend = RehearsalBackend(
            lambda job: state.record(job).job, lambda job: state.record(job).executed_ms(state.now)
        )
        backend.adopt(adoptable(state), state.now)
        self._run = Run(backend, iter(()), state, Count(state.seq + 1))
        self._course = Course(state)
        self._heed_adviser()

    def change(self, event: Event) -> None:
        """Has something happen now. What cannot be raises ValueError."""
        record(self.state, self._run.journal, event, self.state.now)
        self._heed_adviser()

    def _heed_adviser(self) -> None:
        name = self.state.policy.adviser
        self._run.adviser = adviser(name) if name else None

    def submit(self, job: Job) -> None:
        """Has a job be submitted now."""
        self.change(JobSubmitted(job))

    def fail(self, node: str) -> None:
        """Has a node fail now, and stay failed."""
        self.change(NodeHealthChanged(node, Health.FAILED))

    def until(self, reached: Callable[[], bool]) -> bool:
        """Runs ahead until something is true; whether it became so before patience ran out or nothing moved."""
        run = self._run
        run.turn(self.state.now)
        idle_turns = 0
        while not reached():
            at_ms = run.next_moment()
            if at_ms is None or at_ms > self._began_ms + HORIZON_MS or time.monotonic() > self._deadline_s:
                return False
            told_ms = run.backend.next_event_ms()
            self._course.look(self.state, at_ms)
            plan = run.turn(at_ms)
            idle_turns = 0 if plan.actions or (told_ms is not None and told_ms <= at_ms) else idle_turns + 1
            if idle_turns > IDLE_TURNS_MAX:
                return reached()
        return True

    def start_of(self, job: str) -> int | None:
        """When a pending job will start, by what is known now; None if that is unknown."""
        started = self.state.record(job)
        attempts = started.attempts
        reached = self.until(lambda: started.running_since_ms is not None and started.attempts >= attempts)
        return started.running_since_ms if reached else None

    def outcome(self) -> dict[str, Any]:
        """What becomes of everything that waits or runs now."""
        live = [record for record in self.state.jobs.values() if record.final is None]
        gpus_ms = {each.job.id: each.service_gpu_ms(self.state.now) for each in live}
        self.until(lambda: all(each.final is not None for each in live))
        done = [each for each in live if each.ended_ms is not None]
        span_ms = max((each.ended_ms or 0 for each in done), default=self._began_ms) - self._began_ms
        served = sum(each.service_gpu_ms(self.state.now) - gpus_ms[each.job.id] for each in done)
        room = self.state.cluster.gpus * span_ms
        return {
            "policy": self.state.policy.spec,
            "jobs": len(live),
            "started": sum(each.first_start_ms is not None for each in live),
            "finished": len(done),
            "unfinished": len(live) - len(done),
            "makespan_s": span_ms / 1000 if done else None,
            "mean_jct_s": fmean((each.ended_ms or 0) - each.submitted_ms for each in done) / 1000 if done else None,
            "mean_wait_s": _mean_wait_s(live),
            "gpu_allocated": min(served / room, 1.0) if room else None,
            **self._course.told(self.state),
        }


def pass_time(state: State, now_ms: int) -> None:
    """Has it be now in a copy: where nothing happens nothing is journaled, and a State is as old as its last record."""
    if state.seq >= 0 and now_ms > state.now:
        record(state, Count(state.seq + 1), TimerDue(), now_ms)


def _mean_wait_s(records: list[Any]) -> float | None:
    waits = [each.first_start_ms - each.submitted_ms for each in records if each.first_start_ms is not None]
    return fmean(waits) / 1000 if waits else None
