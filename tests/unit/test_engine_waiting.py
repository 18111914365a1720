"""Who stands in line and who may not yet: holds, begin times, dependencies, arrays."""

from __future__ import annotations

import pytest

from builders import World, a_job, after, array, starts
from phalanx.cluster.cluster import flat
from phalanx.engine.state.records import JobState
from phalanx.protocol.event import JobCancelled, JobHeld, JobReleased, Outcome
from phalanx.protocol.reason import Reason


@pytest.fixture
def world() -> World:
    """Four GPUs, fifo."""
    return World(flat(1, 4))


def test_a_held_job_waits_until_it_is_released(world: World) -> None:
    world.run(a_job("full", 4))
    world.submit(a_job("a"), a_job("b"))
    world.turn(JobHeld("a"))
    assert world.reason("a") is Reason.HELD
    assert starts(world.end("full")) == ["b"]
    assert starts(world.turn(JobReleased("a"))) == ["a"]


def test_a_running_job_that_is_held_runs_on_and_does_not_come_back(world: World) -> None:
    world.run(a_job("a"))
    world.turn(JobHeld("a"))
    assert world.status("a") is JobState.RUNNING
    world.end("a", Outcome.LOST)
    assert world.reason("a") is Reason.HELD
    assert starts(world.turn(JobReleased("a"))) == ["a"]


def test_a_held_job_can_be_cancelled(world: World) -> None:
    world.run(a_job("full", 4))
    world.submit(a_job("a"))
    world.turn(JobHeld("a"))
    world.turn(JobCancelled("a"))
    assert world.status("a") is JobState.CANCELLED


def test_a_job_does_not_begin_before_its_time(world: World) -> None:
    world.submit(a_job("a", begin_ms=5_000))
    assert world.reason("a") is Reason.BEGIN_TIME
    assert world.state.next_wakeup() == 5_000
    assert not starts(world.turn(after_ms=4_999))
    assert starts(world.turn(after_ms=1)) == ["a"]


def test_a_begin_time_that_is_past_holds_nobody_up(world: World) -> None:
    assert starts(world.submit(a_job("a", begin_ms=5_000), after_ms=5_000)) == ["a"]


def test_a_job_that_waits_for_its_time_keeps_its_place_by_submission(world: World) -> None:
    world.submit(a_job("early", 4, begin_ms=2_000))
    world.run(a_job("full", 4))
    world.submit(a_job("late", 4))
    world.turn(after_ms=2_000)
    assert starts(world.end("full")) == ["early"]


@pytest.mark.parametrize(
    ("on", "outcome", "reason"),
    [
        ("success", Outcome.SUCCEEDED, None),
        ("success", Outcome.FAILED, Reason.DEPENDENCY_FAILED),
        ("failure", Outcome.FAILED, None),
        ("failure", Outcome.SUCCEEDED, Reason.DEPENDENCY_FAILED),
        ("end", Outcome.SUCCEEDED, None),
        ("end", Outcome.FAILED, None),
        ("start", Outcome.SUCCEEDED, None),
    ],
)
def test_a_dependency_is_met_by_the_end_it_asks_for(
    world: World, on: str, outcome: Outcome, reason: Reason | None
) -> None:
    world.submit(a_job("a"), a_job("b", after=(after("a", on),)))
    assert world.reason("b") is Reason.DEPENDENCY
    world.done("a")
    assert world.reason("b") is (None if on == "start" else Reason.DEPENDENCY)
    world.end("a", outcome)
    assert world.reason("b") is reason


def test_a_cancelled_job_meets_only_those_who_wait_for_its_end(world: World) -> None:
    waiting = {on: a_job(on, after=(after("a", on),)) for on in ("success", "failure", "end", "start")}
    world.submit(a_job("a"), *waiting.values())
    world.turn(JobCancelled("a"))
    world.done("a")
    assert {on: world.reason(on) for on in waiting} == {
        "success": Reason.DEPENDENCY_FAILED,
        "failure": Reason.DEPENDENCY_FAILED,
        "end": None,
        "start": None,
    }


def test_all_dependencies_must_be_met(world: World) -> None:
    world.run(a_job("a"), a_job("b"))
    world.submit(a_job("c", after=(after("a"), after("b"))))
    world.end("a")
    assert world.reason("c") is Reason.DEPENDENCY
    assert starts(world.end("b")) == ["c"]


def test_a_dependency_on_a_job_that_has_ended_well_is_met_at_once(world: World) -> None:
    world.run(a_job("a"))
    world.end("a")
    assert starts(world.submit(a_job("b", after=(after("a"),)))) == ["b"]


def test_a_job_retried_keeps_its_dependents_waiting(world: World) -> None:
    world.run(a_job("a", retry_limit=1))
    world.submit(a_job("b", after=(after("a", "failure"),)))
    world.end("a", Outcome.FAILED)
    assert world.reason("b") is Reason.DEPENDENCY


def test_of_an_array_with_a_limit_only_so_many_are_in_line_or_run(world: World) -> None:
    plan = world.submit(*array(a_job("a"), 5, at_a_time=2))
    assert starts(plan) == ["a.0", "a.1"]
    assert world.reason("a.2") is Reason.ARRAY_LIMIT
    world.done("a.0", "a.1")
    assert starts(world.end("a.1")) == ["a.2"]
    assert starts(world.end("a.0")) == ["a.3"]


def test_an_array_without_a_limit_runs_as_wide_as_it_fits(world: World) -> None:
    assert starts(world.submit(*array(a_job("a"), 5))) == ["a.0", "a.1", "a.2", "a.3"]


def test_two_arrays_do_not_count_against_one_another(world: World) -> None:
    plan = world.submit(*array(a_job("a"), 2, at_a_time=1), *array(a_job("b"), 2, at_a_time=1))
    assert starts(plan) == ["a.0", "b.0"]


def test_a_member_that_is_cancelled_makes_way_for_the_next(world: World) -> None:
    world.submit(*array(a_job("a"), 3, at_a_time=1))
    world.turn(JobCancelled("a.0"))
    assert starts(world.done("a.0")) == ["a.1"]
    world.turn(JobCancelled("a.2"))
    assert world.status("a.2") is JobState.CANCELLED


def test_a_member_that_is_held_in_line_makes_way_for_the_next(world: World) -> None:
    world.run(a_job("full", 4))
    world.submit(*array(a_job("a"), 2, at_a_time=1))
    world.turn(JobHeld("a.0"))
    assert world.reason("a.0") is Reason.HELD
    assert world.reason("a.1") is not Reason.ARRAY_LIMIT
    assert starts(world.end("full")) == ["a.1"]


def test_a_member_that_backs_off_makes_way_for_the_next(world: World) -> None:
    world.submit(*array(a_job("a"), 2, at_a_time=1))
    assert starts(world.failed("a.0")) == ["a.1"]
    assert world.reason("a.0") is Reason.BACKOFF
    world.turn(after_ms=1_000)
    assert world.reason("a.0") is Reason.ARRAY_LIMIT
    world.done("a.1")
    assert starts(world.end("a.1")) == ["a.0"]


def test_a_member_keeps_its_seat_while_it_is_restarted(world: World) -> None:
    world.submit(*array(a_job("a"), 2, at_a_time=1))
    world.done("a.0")
    assert starts(world.end("a.0", Outcome.LOST)) == ["a.0"]


def test_jobs_of_one_shape_are_one_class_and_share_their_verdict(world: World) -> None:
    world.run(a_job("full", 4))
    plan = world.submit(*(a_job(f"j{i}", 2) for i in range(100)))
    assert len(world.state.classes) == 1
    assert len(plan.verdicts) == 1
    assert {world.reason(f"j{i}") for i in range(100)} == {Reason.GPUS}


def test_a_verdict_that_has_not_changed_is_not_told_again(world: World) -> None:
    world.run(a_job("full", 4))
    assert world.submit(a_job("a")).verdicts
    assert not world.submit(a_job("b")).verdicts


def test_a_job_that_was_held_while_it_was_promised_devices_is_aside_when_it_loses_them() -> None:
    world = World(flat(1, 1), "priority")
    world.run(a_job("low"))
    world.submit(a_job("mid", priority=5))
    world.turn(JobHeld("mid"))
    plan = world.submit(a_job("top", priority=9))
    assert plan.withdrawn == ("mid/1",)
    assert world.reason("mid") is Reason.HELD
    assert starts(world.done("low")) == ["top"]
