"""The course of a future is told in few steps, however long it takes."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

from builders import World, a_job
from phalanx.cluster.cluster import flat
from phalanx.protocol.event import Done
from phalanx.server.planner.course import STEPS_MAX, Course
from phalanx.server.planner.future import Future


def state_at(now: int, held: int, pending: int) -> Any:
    """As much of a State as a course looks at: one node."""
    return SimpleNamespace(now=now, capacity=SimpleNamespace(held=[(1 << held) - 1]), in_line=pending)


def test_a_short_future_is_told_second_by_second_and_as_it_was_in_between() -> None:
    course = Course(state_at(5_000, 0, 3))
    course.look(state_at(5_000, 4, 2), 5_400)
    course.look(state_at(5_400, 8, 1), 8_100)
    assert course.told(state_at(8_100, 2, 0)) == {
        "from_ms": 5_000,
        "step_ms": 1_000,
        "gpus_held": [4, 8, 8, 8, 2],
        "jobs_pending": [2, 1, 1, 1, 0],
    }


def test_what_changes_several_times_within_a_step_is_told_as_it_was_left() -> None:
    course = Course(state_at(0, 0, 0))
    turns = ((0, 24), (0, 16), (400, 8), (2_000, 16), (2_000, 0), (2_010, 12), (9_000, 5))
    for (now, held), (until, _) in pairwise(turns):
        course.look(state_at(now, held, 0), until)
    assert course.told(state_at(9_000, 5, 0))["gpus_held"] == [16, 8, 0, *([12] * 6), 5]


def test_what_ran_on_a_node_that_fails_holds_none_of_its_gpus_from_the_first_step_on() -> None:
    world = World(flat(3, 8))
    world.submit(*(replace(a_job(f"j{number}", 8), duration_ms=3_600_000) for number in range(3)))
    world.turn(*(Done(action) for action in list(world.asked)))
    future = Future(world.state)
    future.fail("n0")
    told = future.outcome()
    assert (told["gpus_held"][0], told["jobs_pending"][0]) == (16, 1)


def test_a_long_future_has_longer_steps_and_no_more_of_them() -> None:
    course = Course(state_at(0, 0, 0))
    for hour in range(2_000):
        course.look(state_at(hour * 3_600_000, hour % 9, 2_000 - hour), (hour + 1) * 3_600_000)
    told = course.told(state_at(2_000 * 3_600_000, 0, 0))
    assert STEPS_MAX / 2 < len(told["jobs_pending"]) <= STEPS_MAX
    assert told["jobs_pending"] == sorted(told["jobs_pending"], reverse=True)
    assert len(told["jobs_pending"]) * told["step_ms"] >= 1_999 * 3_600_000


def test_one_moment_far_ahead_is_told_after_all_that_was_before() -> None:
    course = Course(state_at(0, 1, 9))
    course.look(state_at(0, 1, 9), 300 * 86_400_000)
    told = course.told(state_at(300 * 86_400_000, 8, 0))
    assert len(told["gpus_held"]) <= STEPS_MAX
    assert set(told["gpus_held"][:-1]) == {1}
    assert told["gpus_held"][-1] == 8
