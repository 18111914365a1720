"""Retries: policies that learn of a job forget it when it is over, and not when it is tried again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from builders import World, a_job
from phalanx.cluster.cluster import flat
from phalanx.engine.state.records import JobState
from phalanx.protocol.event import AttemptEnded, JobCancelled, JobChanged, Outcome, Progress
from phalanx.workload.job import Job

TRIED_TWICE = replace(a_job("a", 2), retry_limit=1)

learning = pytest.mark.parametrize("policy", ["optimus", "pollux"])


def reporting(policy: str, job: Job = TRIED_TWICE) -> World:
    """A job that runs and has told of its steps."""
    world = World(flat(1, 8), policy)
    world.run(job)
    world.turn(report(1), after_ms=1_000)
    return world


def report(attempt: int) -> Progress:
    metrics = {"loss": 0.5, "step_ms": 100.0, "workers": 2.0, "nodes": 1.0, "epoch_steps": 10.0, "epoch_drop": 0.1}
    return Progress("a", attempt, step=10, metrics=metrics)


def fail(world: World) -> None:
    attempt = world.state.jobs["a"].attempts
    world.turn(AttemptEnded("a", attempt, Outcome.FAILED), after_ms=1_000)


def start_again(world: World) -> None:
    world.turn(after_ms=10_000)
    world.done("a")


@learning
def test_what_is_known_of_a_job_outlives_an_attempt_that_failed_and_is_forgotten_with_the_last(policy: str) -> None:
    world = reporting(policy)
    known = world.state.memory["known"]["a"]
    fail(world)
    assert world.state.memory["known"]["a"] == known
    start_again(world)
    assert world.state.jobs["a"].state is JobState.RUNNING
    assert world.state.memory["known"]["a"] == known
    fail(world)
    assert world.state.jobs["a"].state is JobState.FAILED
    assert world.state.memory["known"] == {}
    assert world.state.memory["retries"] == world.state.memory["failures"] == {}


@learning
def test_a_job_that_is_never_tried_again_is_forgotten_when_it_fails(policy: str) -> None:
    world = reporting(policy, a_job("a", 2))
    fail(world)
    assert world.state.memory["known"] == {}


@learning
def test_a_job_whose_retries_were_taken_from_it_is_forgotten_when_it_fails(policy: str) -> None:
    world = reporting(policy, replace(TRIED_TWICE, retry_limit=5))
    fail(world)
    world.turn(JobChanged(TRIED_TWICE))
    start_again(world)
    assert list(world.state.memory["known"]) == ["a"]
    fail(world)
    assert world.state.jobs["a"].state is JobState.FAILED
    assert world.state.memory["known"] == {}


@learning
@pytest.mark.parametrize("over", [AttemptEnded("a", 1, Outcome.SUCCEEDED), JobCancelled("a")])
def test_a_job_that_is_done_or_cancelled_is_forgotten(policy: str, over: AttemptEnded | JobCancelled) -> None:
    world = reporting(policy)
    world.turn(over)
    assert world.state.memory["known"] == {}


@learning
def test_a_job_whose_node_was_lost_is_remembered_as_often_as_that_happens(policy: str) -> None:
    world = reporting(policy)
    for attempt in (1, 2, 3):
        world.turn(AttemptEnded("a", attempt, Outcome.LOST), after_ms=1_000)
        world.done("a")
    assert list(world.state.memory["known"]) == ["a"]
