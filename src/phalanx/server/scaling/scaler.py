"""The scaler: compares the load of every service with its size, and has the size changed where it should be another."""

from __future__ import annotations

from collections import deque

import msgspec
from sqlalchemy import Connection

from phalanx.engine.decide.scaling import Load, Standing, Verdict, scaled, size_now, verdict
from phalanx.engine.fold.check import check
from phalanx.engine.state.records import JobRecord
from phalanx.engine.state.state import State
from phalanx.protocol.event import JobChanged
from phalanx.server.scaling.loads import Loads, Measured
from phalanx.server.store import settings

KEY = "scaling"
TELL_MS = 5_000
"""How often a value that moves is told anew, where nothing else is news."""


class Followed(msgspec.Struct, frozen=True):
    """How a service stands to its load, for users that look at it. `problem` is why its load is not known."""

    replicas: int
    running: int
    standing: Standing
    wanted: int | None = None
    value: float | None = None
    value_at_ms: int | None = None
    problem: str = ""
    query: str = ""


def followed_in(connection: Connection) -> dict[str, Followed]:
    """All services that follow their load."""
    content = settings.get(connection, KEY)
    return msgspec.json.decode(content, type=dict[str, Followed]) if content else {}


class Scaler:
    """Looks at all services at every turn of the loop."""

    def __init__(self, state: State, loads: Loads) -> None:
        self._state = state
        self._loads = loads
        self._wanted: dict[str, deque[tuple[int, int]]] = {}
        self._followed: dict[str, Followed] = {}
        self._told: dict[str, Followed] | None = None
        self._told_ms = 0

    def changes(self, now: int) -> list[JobChanged]:
        """The sizes that are to be different from now on."""
        if len(self._followed) != len(self._state.scaled):
            self._forget_the_ended()
        found = (self._change(self._state.jobs[job], now) for job in self._state.scaled)
        return [change for change in found if change is not None]

    def _change(self, record: JobRecord, now: int) -> JobChanged | None:
        measured = self._loads.of(record.job.id)
        made = verdict(record, self._load(record, measured, now), now)
        self._note(record, made, now)
        problem, change = measured.problem if measured is not None else "", None
        if made.replicas != size_now(record.job):
            change = JobChanged(scaled(record.job, made.replicas, now))
            problem = self._refusal(change) or problem
        self._followed[record.job.id] = _followed(record, made, measured, problem)
        return change if change is not None and not self._refusal(change) else None

    def _load(self, record: JobRecord, measured: Measured | None, now: int) -> Load:
        running = len(record.attempt.placement.slots) if record.attempt is not None else 0
        assert record.job.scale is not None, f"job {record.job.id} has no scale"
        lately = self._wanted.get(record.job.id, deque())
        while lately and lately[0][0] <= now - record.job.scale.cool_down_ms:
            lately.popleft()
        most = max((wanted for _, wanted in lately), default=0)
        if measured is None:
            return Load(None, 0, running, most)
        return Load(measured.value, measured.at_ms, running, most)

    def _note(self, record: JobRecord, made: Verdict, now: int) -> None:
        if made.wanted is not None:
            lately = self._wanted.setdefault(record.job.id, deque())
            # A smaller size before a larger one never is the largest again.
            while lately and lately[-1][1] <= made.wanted:
                lately.pop()
            lately.append((now, made.wanted))

    def _refusal(self, change: JobChanged) -> str:
        """Why the State does not take a change; empty if it does."""
        try:
            check(self._state, change)
        except ValueError as error:
            return str(error)
        return ""

    def _forget_the_ended(self) -> None:
        present = self._state.scaled
        self._followed = {job: each for job, each in self._followed.items() if job in present}
        self._wanted = {job: each for job, each in self._wanted.items() if job in present}
        self._loads.forget_all_but(present)

    def has_news(self, now: int) -> bool:
        """Whether users that look at services are to be told something else; of a value that moves, now and then."""
        if self._told is None:
            return True
        if {job: _lasting(each) for job, each in self._followed.items()} != {
            job: _lasting(each) for job, each in self._told.items()
        }:
            return True
        return self._followed != self._told and now - self._told_ms >= TELL_MS

    def write(self, connection: Connection, now: int) -> None:
        """Tells users that look at services."""
        settings.put(connection, KEY, msgspec.json.encode(self._followed))
        self._told, self._told_ms = dict(self._followed), now


def _followed(record: JobRecord, made: Verdict, measured: Measured | None, problem: str) -> Followed:
    assert record.job.scale is not None, f"job {record.job.id} has no scale"
    return Followed(
        replicas=made.replicas,
        running=len(record.attempt.placement.slots) if record.attempt is not None else 0,
        standing=made.standing,
        wanted=made.wanted,
        value=measured.value if measured is not None and made.standing is not Standing.NONSENSE else None,
        value_at_ms=measured.at_ms if measured is not None else None,
        problem=problem,
        query=record.job.scale.query,
    )


def _lasting(each: Followed) -> tuple[object, ...]:
    """What of it is news whenever it changes."""
    return each.replicas, each.running, each.standing, each.problem, each.query
