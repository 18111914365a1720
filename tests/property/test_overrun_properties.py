"""Random histories in which jobs end early and late: the first in line is told a time that holds, but for delays."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import a_job, virtual_backend
from phalanx.cluster.cluster import flat
from phalanx.engine.state.order import whole_key
from phalanx.engine.state.state import State
from phalanx.engine.turn import verify
from phalanx.protocol.event import JobSubmitted
from phalanx.simulate.run import Run
from phalanx.workload.job import Job

NODES, GPUS = 3, 4
TURNS_MAX = 5_000
EXAMPLES = 30

Together = Callable[[list[int]], int]
"""How delays of several jobs add up: all of them, or the longest alone."""


@dataclass(frozen=True)
class Row:
    """A job, when it arrives, and how long it really runs."""

    at_ms: int
    job: Job
    length_ms: int

    @property
    def late_ms(self) -> int:
        return max(self.length_ms - (self.job.duration_ms or 0), 0)


@st.composite
def histories(draw: st.DrawFn, priorities: bool = False, max_wait: bool = False) -> list[Row]:
    """Up to 25 jobs that say 10 to 100 s and take from half of it up to 30 % more."""
    rows: list[Row] = []
    at_ms = 0
    for number in range(draw(st.integers(3, 25))):
        at_ms += 1000 * draw(st.integers(0, 20))
        said_ms = 1000 * draw(st.integers(10, 100))
        job = a_job(
            str(number),
            draw(st.sampled_from([1, 2, 2, 4])),
            draw(st.integers(1, NODES)),
            duration_ms=said_ms,
            priority=draw(st.integers(0, 2)) if priorities else 0,
            max_wait_ms=60_000 if max_wait and draw(st.booleans()) else None,
        )
        rows.append(Row(at_ms, job, said_ms * draw(st.integers(50, 130)) // 100))
    return rows


@dataclass
class Heads:
    """What the first in line was told while it was the first; it is told anew after somebody came before it."""

    rows: dict[str, Row]
    together: Together
    told: dict[str, tuple[int, int]] = field(default_factory=dict)

    def look(self, state: State) -> None:
        """After a turn: whoever has started did so in time."""
        for job, (since_ms, at_ms) in list(self.told.items()):
            attempt = state.jobs[job].attempt
            if self._came_before(job, since_ms, state):
                del self.told[job]
            elif attempt is not None:
                assert attempt.created_ms <= at_ms + self._late_ms(state, since_ms), f"{job} was told {at_ms} ms"
                del self.told[job]
        first = self._first(state)
        self.told = {job: told for job, told in self.told.items() if job == first}
        for each in state.reservations:
            if each.job == first:
                self.told.setdefault(first, (state.now, each.at_ms))

    def _came_before(self, job: str, since_ms: int, state: State) -> bool:
        """Whether one of a higher priority has arrived since."""
        priority = self.rows[job].job.priority
        return any(
            record.job.priority > priority and self.rows[record.job.id].at_ms >= since_ms
            for record in state.jobs.values()
        )

    def _first(self, state: State) -> str:
        in_line = [record for record in state.jobs.values() if record.queued is not None]
        return min(in_line, key=lambda record: whole_key(state, record)).job.id if in_line else ""

    def _late_ms(self, state: State, since_ms: int) -> int:
        """How much later than they said those ended who ran from a moment on."""
        ran = [record for record in state.jobs.values() if record.attempts]
        present = [each for each in ran if each.ended_ms is None or each.ended_ms >= since_ms]
        return self.together([0, *(self.rows[each.job.id].late_ms for each in present)])


def run(rows: list[Row], policy: str, together: Together) -> None:
    """Runs a history to its end, and looks after every turn."""
    backend = virtual_backend({row.job.id: row.length_ms for row in rows})
    world = Run.of(flat(NODES, GPUS), policy, backend, ((row.at_ms, JobSubmitted(row.job)) for row in rows))
    heads = Heads({row.job.id: row for row in rows}, together)
    for _ in range(TURNS_MAX):
        if world.step() is None:
            break
        heads.look(world.state)
    assert all(record.final is not None for record in world.state.jobs.values())
    verify(world.journal)


@given(rows=histories())
@settings(max_examples=EXAMPLES)
def test_by_easy_the_head_starts_by_what_it_was_told_and_the_longest_overrun(rows: list[Row]) -> None:
    run(rows, "backfill", max)


@given(rows=histories(priorities=True))
@settings(max_examples=EXAMPLES)
def test_the_first_of_the_highest_priority_does_too(rows: list[Row]) -> None:
    run(rows, "priority:backfill=easy", max)


@given(rows=histories())
@settings(max_examples=EXAMPLES)
def test_where_everybody_has_a_time_it_holds_but_for_the_overruns_of_all_before(rows: list[Row]) -> None:
    """Who is first now was told its time while others were to run before it, one after another."""
    run(rows, "backfill:mode=conservative", sum)


@pytest.mark.parametrize("policy", ["fifo:skip=true", "sjf", "fair", "priority", "backfill"])
@given(rows=histories(max_wait=True))
@settings(max_examples=EXAMPLES)
def test_and_the_first_of_those_past_their_max_wait(policy: str, rows: list[Row]) -> None:
    run(rows, policy, sum)
