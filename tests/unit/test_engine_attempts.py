"""Attempts: starts that fail or get lost, stops that repeat, hardware that fails, jobs that end."""

from __future__ import annotations

import pytest

from builders import World, a_job, everything, starts, stops
from phalanx.cluster.cluster import Health, flat
from phalanx.engine.fold.attempts import START_TIMEOUT_MS, STOP_MARGIN_MS
from phalanx.engine.fold.holding import BACKOFF_MAX_MS, backoff_ms
from phalanx.engine.state.records import JobState, Phase
from phalanx.protocol.action import ActionId, Start, Stop
from phalanx.protocol.event import (
    Accepted,
    AttemptEnded,
    DeviceHealthChanged,
    Done,
    Failed,
    JobCancelled,
    Lost,
    NodeHealthChanged,
    Outcome,
)
from phalanx.protocol.reason import Reason


@pytest.fixture
def world() -> World:
    """Two nodes of four GPUs, fifo."""
    return World(flat(2, 4))


def free(world: World) -> int:
    return world.state.capacity.free_gpus(world.state.topology.everything)


def test_a_job_goes_from_waiting_through_starting_and_running_to_succeeded(world: World) -> None:
    plan = world.submit(a_job("a", 2))
    assert plan.actions == (Start(ActionId(1, "a", 1, 0), plan.claims[0].placement),)
    assert world.status("a") is JobState.STARTING
    world.turn(Accepted(ActionId(1, "a", 1, 0)))
    world.done("a", after_ms=100)
    assert world.status("a") is JobState.RUNNING
    assert world.job("a").first_start_ms == 100
    world.end("a", after_ms=100)
    assert world.status("a") is JobState.SUCCEEDED
    assert world.job("a").ended_ms == 200
    assert free(world) == 8


def test_a_failed_start_returns_the_whole_claim_and_tries_again_later(world: World) -> None:
    world.submit(a_job("a", 4, 2))
    assert free(world) == 0
    world.failed("a")
    assert free(world) == 8
    assert world.reason("a") is Reason.BACKOFF
    assert not starts(world.turn(after_ms=999))
    plan = world.turn(after_ms=1)
    assert starts(plan) == ["a"]
    assert plan.actions[0].id == ActionId(1, "a", 2, 0), "a new attempt"


def test_starts_that_fail_again_and_again_are_tried_less_and_less_often(world: World) -> None:
    world.submit(a_job("a"))
    for delay_ms in (1_000, 2_000, 4_000, 8_000):
        world.failed("a")
        assert not starts(world.turn(after_ms=delay_ms - 1))
        assert starts(world.turn(after_ms=1)) == ["a"]
    world.done("a")
    world.end("a", Outcome.LOST)
    assert world.status("a") is JobState.STARTING, "a start that worked makes up for all that failed"
    world.failed("a")
    assert starts(world.turn(after_ms=1_000)) == ["a"]


def test_the_delay_doubles_up_to_a_bound() -> None:
    assert [backoff_ms(n) for n in (1, 2, 3)] == [1_000, 2_000, 4_000]
    assert backoff_ms(9) == 256_000
    assert backoff_ms(10) == backoff_ms(10_000) == BACKOFF_MAX_MS


def test_a_start_that_can_never_work_fails_the_job(world: World) -> None:
    world.submit(a_job("a"))
    world.failed("a", "no such image", retryable=False)
    assert world.status("a") is JobState.FAILED
    assert world.job("a").end_reason == "no such image"
    assert free(world) == 8


def test_a_lost_start_is_stopped_and_only_then_tried_again(world: World) -> None:
    world.submit(a_job("a", 4))
    plan = world.lost("a")
    assert stops(plan) == ["a"]
    assert free(world) == 4, "nobody knows whether something runs there"
    assert world.status("a") is JobState.STOPPING
    assert starts(world.done("a")) == ["a"]
    assert world.job("a").attempts == 2


def test_a_start_that_nobody_answers_is_lost_after_a_while(world: World) -> None:
    world.submit(a_job("a"))
    assert not world.turn(after_ms=START_TIMEOUT_MS - 1).actions
    assert stops(world.turn(after_ms=1)) == ["a"]


def test_a_start_that_is_done_after_all_while_it_is_being_stopped_changes_nothing(world: World) -> None:
    world.submit(a_job("a"))
    start = world.asks("a")[0]
    world.lost("a")
    world.turn(Done(start.id))
    assert world.status("a") is JobState.STOPPING


def test_a_start_that_fails_while_it_is_being_stopped_ends_the_attempt(world: World) -> None:
    world.submit(a_job("a"))
    start = world.asks("a")[0]
    world.turn(JobCancelled("a"))
    world.turn(Failed(start.id, "no image"))
    assert world.status("a") is JobState.CANCELLED
    assert free(world) == 8


def test_a_stop_that_fails_is_repeated_without_grace_less_and_less_often(world: World) -> None:
    world.run(a_job("a", grace_ms=30_000))
    plan = world.turn(JobCancelled("a"))
    assert plan.actions == (Stop(ActionId(1, "a", 1, 1), 30_000, "cancelled"),)
    for seq, delay_ms in ((2, 1_000), (3, 2_000), (4, 4_000)):
        assert not world.failed("a").actions
        assert not world.turn(after_ms=delay_ms - 1).actions
        plan = world.turn(after_ms=1)
        assert plan.actions == (Stop(ActionId(1, "a", 1, seq), 0, "cancelled"),)
    assert free(world) == 7, "until somebody says the device is free, it is not"
    world.done("a")
    assert free(world) == 8
    assert world.status("a") is JobState.CANCELLED


def test_a_stop_that_nobody_answers_is_repeated(world: World) -> None:
    world.run(a_job("a", grace_ms=5_000))
    world.turn(JobCancelled("a"))
    assert not world.turn(after_ms=5_000 + STOP_MARGIN_MS - 1).actions
    world.turn(after_ms=1)
    assert stops(world.turn(after_ms=1_000)) == ["a"]


def test_an_attempt_that_ends_by_itself_while_it_is_being_stopped_has_ended(world: World) -> None:
    world.run(a_job("a"))
    world.turn(JobCancelled("a"))
    stop = world.asks("a")[0]
    world.end("a")
    assert world.status("a") is JobState.SUCCEEDED
    before = everything(world.state)[:-3]
    world.turn(Done(stop.id))
    assert world.status("a") is JobState.SUCCEEDED
    assert len(before) > 0


@pytest.mark.parametrize(("reason", "told"), [("", "cancelled"), ("stopped by the alert rule idle",) * 2])
def test_why_a_job_was_cancelled_is_told_while_it_stops_and_afterwards(world: World, reason: str, told: str) -> None:
    world.run(a_job("a"))
    world.submit(a_job("waits", 4, 2))
    world.turn(JobCancelled("a", reason), JobCancelled("waits", reason))
    assert world.job("waits").end_reason == told
    assert world.job("a").end_reason == reason
    world.done("a")
    assert (world.job("a").state, world.job("a").end_reason) == (JobState.CANCELLED, told)


def test_a_waiting_job_that_is_cancelled_is_gone_at_once(world: World) -> None:
    world.submit(a_job("a", 4, 2), a_job("b", 4))
    world.turn(JobCancelled("b"))
    assert world.status("b") is JobState.CANCELLED
    assert world.status("a") is JobState.STARTING


def test_answers_for_older_attempts_concern_nobody(world: World) -> None:
    world.submit(a_job("a"))
    old = world.asks("a")[0].id
    world.failed("a")
    world.turn(after_ms=1_000)
    assert world.job("a").attempts == 2
    for late in (Done(old), Failed(old, "late"), Lost(old), AttemptEnded("a", 1, Outcome.FAILED)):
        world.turn(late)
        assert world.status("a") is JobState.STARTING
        assert world.job("a").attempts == 2


def test_an_answer_given_twice_counts_once(world: World) -> None:
    world.submit(a_job("a", retry_limit=5))
    start = world.asks("a")[0].id
    world.turn(Done(start), Done(start))
    assert world.status("a") is JobState.RUNNING
    world.turn(Lost(start))
    assert world.status("a") is JobState.RUNNING
    world.turn(AttemptEnded("a", 1, Outcome.FAILED), AttemptEnded("a", 1, Outcome.FAILED))
    assert world.job("a").failures == 1


def test_a_job_that_fails_is_tried_as_often_as_it_may_be(world: World) -> None:
    world.run(a_job("a", retry_limit=2))
    world.end("a", Outcome.FAILED)
    assert world.reason("a") is Reason.BACKOFF
    world.turn(after_ms=1_000)
    world.done("a")
    world.end("a", Outcome.FAILED)
    world.turn(after_ms=2_000)
    world.done("a")
    world.turn(AttemptEnded("a", 3, Outcome.FAILED, 1, "out of memory"))
    assert world.status("a") is JobState.FAILED
    assert world.job("a").end_reason == "out of memory"


def test_a_lost_attempt_is_no_failure_of_the_job(world: World) -> None:
    world.run(a_job("a"))
    world.end("a", Outcome.LOST)
    assert world.status("a") is JobState.STARTING
    assert world.job("a").failures == 0


def test_a_job_that_runs_longer_than_it_may_is_stopped_and_has_failed(world: World) -> None:
    world.submit(a_job("a", max_run_ms=5_000))
    world.done("a", after_ms=1_000)
    assert not world.turn(after_ms=4_999).actions
    assert stops(world.turn(after_ms=1)) == ["a"]
    world.done("a")
    assert world.status("a") is JobState.FAILED
    assert world.job("a").end_reason == "ran longer than max_run"


def test_the_time_an_attempt_may_run_starts_anew_with_each(world: World) -> None:
    world.run(a_job("a", max_run_ms=5_000))
    world.end("a", Outcome.LOST, after_ms=4_000)
    world.done("a")
    assert not stops(world.turn(after_ms=4_000))
    assert stops(world.turn(after_ms=1_000)) == ["a"]


def test_a_failed_node_ends_what_runs_there_and_the_job_starts_elsewhere(world: World) -> None:
    world.run(a_job("a", 2))
    assert world.where("a") == {"n0": (0, 1)}
    assert stops(world.health("n0", Health.FAILED)) == ["a"]
    plan = world.done("a")
    assert starts(plan) == ["a"]
    assert world.where("a") == {"n1": (0, 1)}
    assert world.job("a").failures == 0


def test_a_failed_node_that_took_the_attempt_with_it_costs_the_job_no_retry(world: World) -> None:
    """The backend sees the node fail and the processes end in one breath."""
    world.run(a_job("a", retry_limit=0))
    world.turn(NodeHealthChanged("n0", Health.FAILED), AttemptEnded("a", 1, Outcome.FAILED, 137))
    assert world.status("a") is JobState.STARTING
    assert list(world.where("a")) == ["n1"]


@pytest.mark.parametrize("health", [Health.SUSPECT, Health.DRAINING])
def test_a_suspect_or_draining_node_keeps_what_runs_and_takes_nothing_new(world: World, health: Health) -> None:
    world.run(a_job("a", 2))
    assert not world.health("n0", health).actions
    assert world.status("a") is JobState.RUNNING
    world.submit(a_job("b", 2))
    assert list(world.where("b")) == ["n1"]


def test_a_node_that_is_healthy_again_takes_who_waits(world: World) -> None:
    world.health("n0", Health.DRAINING)
    world.submit(a_job("a", 4, 2))
    assert world.reason("a") is Reason.UNHEALTHY
    assert starts(world.health("n0", Health.HEALTHY)) == ["a"]


def test_a_failed_device_ends_only_who_uses_it(world: World) -> None:
    world.run(a_job("a", 2), a_job("b", 2))
    plan = world.turn(DeviceHealthChanged("n0", 1, Health.FAILED))
    assert stops(plan) == ["a"]
    world.done("a")
    assert 1 not in world.where("a").get("n0", ())


def test_a_failed_gpu_of_one_member_restarts_the_whole_gang(world: World) -> None:
    world.run(a_job("a", 3, 2))
    world.turn(DeviceHealthChanged("n1", 0, Health.FAILED))
    world.done("a")
    assert world.status("a") is JobState.STARTING
    assert 0 not in world.where("a")["n1"]


def test_an_attempt_knows_how_far_it_is(world: World) -> None:
    world.submit(a_job("a"))
    attempt = world.job("a").attempt
    assert attempt is not None
    assert attempt.phase is Phase.STARTING
    assert attempt.lost_gpu_ms(world.now) == 0, "nothing is lost of what has not begun"
    assert attempt.key == "a/1"
