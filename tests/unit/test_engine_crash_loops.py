"""A job that crashes as soon as it runs does not have others preempted for it again and again."""

from __future__ import annotations

import pytest

from builders import World, a_job, stops
from phalanx.cluster.cluster import flat
from phalanx.engine.fold.holding import CRASH_MS, WASTED_MAX_MS, pause_ms
from phalanx.engine.state.records import JobState
from phalanx.engine.turn import replay
from phalanx.engine.why.explain import explain
from phalanx.protocol.event import Outcome
from phalanx.protocol.reason import Reason
from phalanx.words.reason import because

MINUTE_MS, DAY_MS = 60_000, 86_400_000


@pytest.fixture
def world() -> World:
    """A node of eight GPUs that a job of low priority holds all of."""
    world = World(flat(1, 8), "priority")
    world.run(a_job("low", 8))
    return world


def have_it_start(world: World) -> None:
    """The job of low priority leaves, and the other starts in its place."""
    world.done("low")
    world.done("high")
    assert world.status("high") is JobState.RUNNING


def crash(world: World, outcome: Outcome = Outcome.LOST, after_ms: int = 1_000) -> None:
    world.end("high", outcome, after_ms=after_ms)


def again(world: World) -> None:
    """What was preempted has its devices again, and runs until the other is tried once more."""
    world.done("low")
    assert world.status("low") is JobState.RUNNING
    plan = world.turn(after_ms=max(world.job("high").not_before_ms - world.now, 0))
    assert stops(plan) == ["low"]
    have_it_start(world)


def crash_twice(world: World) -> None:
    world.submit(a_job("high", 8, priority=9, retry_limit=100))
    have_it_start(world)
    crash(world, Outcome.FAILED)
    again(world)
    crash(world)


def test_one_crash_may_be_bad_luck_and_costs_no_more_than_any_failure(world: World) -> None:
    world.submit(a_job("high", 8, priority=9, retry_limit=100))
    have_it_start(world)
    crash(world, Outcome.FAILED)
    assert world.job("high").not_before_ms == world.now + 1_000


def test_after_the_second_in_a_row_it_waits_for_ten_minutes_and_what_it_preempted_runs(world: World) -> None:
    crash_twice(world)
    assert world.job("high").not_before_ms == world.now + 10 * MINUTE_MS
    assert world.status("low") is JobState.STARTING
    assert world.reason("high") is Reason.BACKOFF
    told = because(explain(world.state, "high"))
    assert told == (
        "other jobs were preempted for it, and it crashed within 10 minutes 2 times in a row; "
        "it is tried again after a pause"
    )


def test_a_job_that_always_crashes_preempts_nine_times_in_its_first_day_and_then_once_a_day(world: World) -> None:
    world.submit(a_job("high", 8, priority=9, retry_limit=100))
    have_it_start(world)
    times = [world.now]
    crash(world, Outcome.FAILED)
    again(world)
    times.append(world.now)
    for _ in range(10):
        crash(world)
        again(world)
        times.append(world.now)
    assert sum(at_ms < DAY_MS for at_ms in times) == 9
    assert times[-1] - times[-2] >= WASTED_MAX_MS


def test_an_attempt_that_ran_for_a_while_makes_up_for_all_crashes(world: World) -> None:
    crash_twice(world)
    again(world)
    crash(world, Outcome.FAILED, after_ms=CRASH_MS)
    assert world.job("high").wasted == 0
    assert world.job("high").not_before_ms < world.now + 10 * MINUTE_MS


def test_one_that_is_lost_again_and_again_does_not_keep_what_it_took_either(world: World) -> None:
    world.submit(a_job("high", 8, priority=9))
    have_it_start(world)
    crash(world)
    assert world.status("high") is JobState.STARTING, "a loss costs no time at first"
    world.done("high")
    crash(world)
    assert world.job("high").not_before_ms == world.now + 10 * MINUTE_MS
    assert world.status("low") is JobState.STARTING


def test_starts_that_fail_waste_what_was_preempted_for_them_too(world: World) -> None:
    world.submit(a_job("high", 8, priority=9))
    world.done("low")
    world.failed("high")
    world.done("low")
    world.turn(after_ms=1_000)
    world.done("low")
    world.failed("high")
    assert world.job("high").not_before_ms == world.now + 10 * MINUTE_MS


def test_crashes_on_free_devices_waste_nothing() -> None:
    world = World(flat(1, 8), "priority")
    world.run(a_job("high", 8, priority=9))
    for _ in range(5):
        crash(world)
        assert world.status("high") is JobState.STARTING
        world.done("high")


def test_a_replay_comes_to_the_same(world: World) -> None:
    crash_twice(world)
    again(world)
    crash(world)
    assert replay(world.journal).fingerprint() == world.state.fingerprint()
    assert replay(world.journal).record("high").wasted == 3


def test_pauses_double_up_to_a_day() -> None:
    assert [pause_ms(times) for times in (0, 1, 2, 3, 4)] == [0, 0, 10 * MINUTE_MS, 20 * MINUTE_MS, 40 * MINUTE_MS]
    assert pause_ms(10) == pause_ms(10_000) == WASTED_MAX_MS
