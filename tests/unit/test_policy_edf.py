"""edf: earliest deadlines first, those that can be met before all others."""

from __future__ import annotations

import pytest

from builders import World, a_job, starts, stops
from phalanx.cluster.cluster import flat
from phalanx.workload.job import Job


def due(name: str, deadline_s: int | None, duration_s: int | None = None, **job: object) -> Job:
    return a_job(
        name,
        deadline_ms=None if deadline_s is None else 1000 * deadline_s,
        duration_ms=None if duration_s is None else 1000 * duration_s,
        **job,
    )


def busy(policy: str = "edf") -> World:
    """One GPU, taken by a job `r` that can be met."""
    world = World(flat(1, 1), policy)
    world.run(due("r", 10, 5))
    return world


def in_turn(world: World, *names: str) -> None:
    """Ends what runs, one after the other, and checks who follows."""
    for ended, started in zip(("r", *names), names, strict=False):
        assert starts(world.end(ended)) == [started]
        world.done(started)


def test_the_earliest_deadline_goes_first() -> None:
    world = busy()
    world.submit(due("c", 300), due("a", 100), due("b", 200))
    in_turn(world, "a", "b", "c")


def test_equal_deadlines_go_in_the_order_of_submission() -> None:
    world = busy()
    world.submit(due("b", 100), due("a", 100))
    in_turn(world, "b", "a")


def test_jobs_without_a_deadline_go_between_those_that_can_be_met_and_those_that_cannot() -> None:
    world = busy()
    world.submit(due("late", 10, 11), due("none", None, 1), due("met", 1_000, 11))
    in_turn(world, "met", "none", "late")


def test_a_deadline_that_can_just_be_met_can_be_met() -> None:
    world = busy()
    world.submit(due("none", None), due("just", 20, 20))
    assert starts(world.end("r")) == ["just"]


def test_a_job_goes_behind_at_the_first_moment_at_which_its_deadline_cannot_be_met() -> None:
    world = busy()
    world.submit(due("none", None), due("just", 20, 15))
    assert world.state.next_wakeup() == 5_001
    assert starts(world.end("r", after_ms=5_000)) == ["just"]
    world = busy()
    world.submit(due("none", None), due("just", 20, 15))
    world.turn(after_ms=5_001)
    assert starts(world.end("r")) == ["none"]


def test_a_job_that_does_not_say_how_long_it_takes_can_be_met_until_its_deadline() -> None:
    world = busy()
    world.submit(due("none", None), due("unsaid", 20))
    assert starts(world.end("r", after_ms=20_000)) == ["unsaid"]
    world = busy()
    world.submit(due("none", None), due("unsaid", 20))
    assert starts(world.end("r", after_ms=20_001)) == ["none"]


def test_what_a_stopped_job_has_run_counts() -> None:
    world = World(flat(1, 1), "edf:preempt=true")
    world.run(due("long", 50, 40))
    assert stops(world.submit(due("short", 45, 4), after_ms=30_000)) == ["long"]
    assert starts(world.done("long")) == ["short"]
    world.done("short")
    world.submit(due("none", None))
    assert starts(world.end("short", after_ms=10_000)) == ["long"], "at 40 s 10 s are left of it, and 10 s to 50 s"


def test_nobody_is_stopped_by_default() -> None:
    world = World(flat(1, 1), "edf")
    world.run(due("far", 1_000, 10))
    assert not world.submit(due("near", 20, 10)).actions


@pytest.mark.parametrize(
    ("head", "stopped"), [(due("h", 20, 10), ["far"]), (due("h", 5, 10), []), (due("h", None), [])]
)
def test_with_preempt_only_who_has_an_earlier_deadline_that_can_be_met_stops_others(
    head: Job, stopped: list[str]
) -> None:
    world = World(flat(1, 1), "edf:preempt=true")
    world.run(due("far", 1_000, 10))
    assert stops(world.submit(head)) == stopped


def test_with_preempt_one_that_is_too_late_is_stopped_for_one_without_a_deadline() -> None:
    world = World(flat(1, 1), "edf:preempt=true")
    world.run(due("over", 20, 10))
    assert not stops(world.submit(due("none", None)))
    assert not stops(world.turn(after_ms=20_000))
    assert stops(world.turn(after_ms=1)) == ["over"]


def test_whoever_fits_may_pass() -> None:
    world = World(flat(1, 2), "edf")
    world.run(due("r", 10))
    assert starts(world.submit(a_job("wide", 2, deadline_ms=20_000), due("later", 100))) == ["later"]
