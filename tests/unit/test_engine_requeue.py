"""A job that is requeued: its attempt is stopped with its grace, and it waits for the next one."""

from __future__ import annotations

import pytest

from builders import World, a_job, starts, stops
from phalanx.cluster.cluster import flat
from phalanx.engine.state.journal import Journal, Record, decode, encode
from phalanx.engine.state.records import JobState
from phalanx.engine.turn import replay, verify
from phalanx.protocol.action import Stop
from phalanx.protocol.event import JobCancelled, JobHeld, JobReleased, JobRequeued
from phalanx.protocol.reason import Reason


@pytest.fixture
def world() -> World:
    """Four GPUs that job `a` runs on."""
    world = World(flat(1, 4))
    world.run(a_job("a", 4))
    return world


def test_a_requeued_job_is_stopped_with_its_grace_and_starts_again_where_it_stood(world: World) -> None:
    world.submit(a_job("b", 4))
    plan = world.turn(JobRequeued("a"))
    assert stops(plan) == ["a"]
    [stop] = [action for action in plan.actions if isinstance(action, Stop)]
    assert (stop.grace_ms, stop.reason) == (world.job("a").job.grace_ms, "requeued")
    assert starts(world.done("a")) == ["a"], "it was submitted before b"
    assert (world.job("a").attempts, world.job("a").preemptions) == (2, 0)
    verify(world.journal)


def test_a_job_that_is_held_and_requeued_lets_others_start_until_it_is_released(world: World) -> None:
    world.submit(a_job("b", 4))
    world.turn(JobHeld("a"), JobRequeued("a"))
    assert starts(world.done("a")) == ["b"]
    assert world.reason("a") is Reason.HELD
    world.done("b")
    world.turn(JobReleased("a"))
    assert starts(world.end("b")) == ["a"]
    verify(world.journal)


def test_a_job_that_has_a_claim_only_has_nothing_to_give_up_yet() -> None:
    world = World(flat(1, 4), "priority")
    world.run(a_job("low", 4))
    world.submit(a_job("high", 4, priority=5))
    with pytest.raises(ValueError, match="only a job that has started and is not over can be requeued"):
        world.turn(JobRequeued("high"))


def test_a_second_requeue_of_a_job_that_is_stopping_asks_for_nothing_more(world: World) -> None:
    world.turn(JobRequeued("a"))
    assert not world.turn(JobRequeued("a")).actions


def test_a_job_that_waits_is_over_or_is_cancelled_cannot_be_requeued(world: World) -> None:
    world.submit(a_job("b", 4))
    with pytest.raises(
        ValueError, match="job b is pending: only a job that has started and is not over can be requeued"
    ):
        world.turn(JobRequeued("b"))
    world.turn(JobCancelled("a"))
    with pytest.raises(ValueError, match="only a job that has started"):
        world.turn(JobRequeued("a"))
    world.done("a")
    with pytest.raises(ValueError, match="job a was cancelled: submit it again"):
        world.turn(JobRequeued("a"))


def test_a_requeue_is_a_line_of_the_journal_that_reads_as_it_was_written(world: World) -> None:
    line = b'{"seq":3,"now":5,"body":{"type":"JobRequeued","job":"7"},"version":1}'
    assert encode(Record(3, 5, JobRequeued("7"))) == line
    assert decode(line).body == JobRequeued("7")
    world.turn(JobRequeued("a"))
    read = replay(Journal.read(world.journal.lines()))
    assert read.jobs["a"].state is JobState.STOPPING
