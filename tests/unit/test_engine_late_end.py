"""An attempt that ended while no server heard of it: charged for what it ran, and not until somebody heard."""

from __future__ import annotations

from dataclasses import replace

import pytest

from builders import World, a_job
from phalanx.cluster.cluster import flat
from phalanx.cluster.queues import Queue
from phalanx.engine.state.records import JobRecord, JobState
from phalanx.protocol.event import AttemptEnded, JobCancelled, Outcome, Progress

HOUR_MS = 3_600_000


def a_world(policy: str = "fifo") -> World:
    """A job of 4 GPUs in a queue with a budget, which runs since 0."""
    queues = (Queue("a", budget_gpu_ms=100 * HOUR_MS), Queue("a/x"))
    world = World(replace(flat(1, 8), queues=queues), policy)
    world.run(a_job("mine", 4, queue="a/x"))
    return world


def ended(world: World, ended_ms: int | None, outcome: Outcome = Outcome.SUCCEEDED) -> JobRecord:
    """The job, once it was heard after ten hours that it ended."""
    world.turn(AttemptEnded("mine", 1, outcome, ended_ms=ended_ms), after_ms=10 * HOUR_MS)
    return world.job("mine")


def test_a_job_ended_when_its_last_task_did_and_ran_until_then() -> None:
    mine = ended(a_world(), 2 * HOUR_MS)
    assert (mine.final, mine.ended_ms, mine.stopped_ms) == (JobState.SUCCEEDED, 2 * HOUR_MS, 2 * HOUR_MS)
    assert (mine.executed_before_ms, mine.service_before_gpu_ms) == (2 * HOUR_MS, 8 * HOUR_MS)


def test_its_queue_and_those_it_lies_in_are_charged_until_then() -> None:
    world = a_world()
    ended(world, 2 * HOUR_MS)
    assert [world.state.spending.spent(path, world.state.now) for path in ("a", "a/x")] == [8_000 * HOUR_MS] * 2


@pytest.mark.parametrize("policy", ["fifo", "fair-tree:half_life=1h"])
def test_what_its_queue_has_had_is_as_if_it_had_been_heard_of_at_once(policy: str) -> None:
    late, prompt = a_world(policy), a_world(policy)
    ended(late, 2 * HOUR_MS)
    prompt.turn(AttemptEnded("mine", 1, Outcome.SUCCEEDED), after_ms=2 * HOUR_MS)
    now = late.state.now
    assert late.state.spending.decayed("a", now) == pytest.approx(prompt.state.spending.decayed("a", now))


def test_what_nobody_said_ended_when_it_was_heard_of() -> None:
    assert ended(a_world(), None).ended_ms == 10 * HOUR_MS


def test_a_clock_that_is_ahead_lets_nothing_end_in_the_future() -> None:
    assert ended(a_world(), 11 * HOUR_MS).ended_ms == 10 * HOUR_MS


def test_a_clock_that_is_behind_lets_nothing_end_before_what_is_known_of_it() -> None:
    world = a_world()
    world.turn(Progress("mine", 1, step=5, durable_step=5), after_ms=HOUR_MS)
    mine = ended(world, 0)
    assert (mine.ended_ms, mine.executed_before_ms) == (HOUR_MS, HOUR_MS)


def test_one_that_is_tried_again_stopped_then_and_has_not_ended() -> None:
    mine = ended(a_world(), 2 * HOUR_MS, Outcome.LOST)
    assert (mine.stopped_ms, mine.ended_ms, mine.executed_before_ms) == (2 * HOUR_MS, None, 2 * HOUR_MS)


def test_one_that_was_cancelled_when_it_had_ended_already_ended_then() -> None:
    world = a_world()
    world.turn(JobCancelled("mine"), after_ms=9 * HOUR_MS)
    assert ended(world, 2 * HOUR_MS).ended_ms == 2 * HOUR_MS
