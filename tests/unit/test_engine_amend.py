"""A pending job that asks for something else: another priority, another queue, another begin time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from builders import World, a_job, starts
from phalanx.cluster.cluster import Cluster, flat
from phalanx.cluster.queues import Queue, Quota
from phalanx.engine.turn import verify
from phalanx.protocol.event import JobChanged
from phalanx.protocol.reason import Reason


def changed(world: World, job: str, **fields: object) -> JobChanged:
    return JobChanged(replace(world.job(job).job, **fields))  # type: ignore[arg-type]


def test_a_pending_job_goes_first_once_its_priority_is_raised() -> None:
    world = World(flat(1, 4), "priority")
    world.run(a_job("full", 4, priority=9))
    world.submit(a_job("a", 4), a_job("b", 4))
    world.turn(changed(world, "b", priority=5))
    assert starts(world.end("full")) == ["b"]
    verify(world.journal)


def test_a_job_that_is_moved_waits_for_the_quota_of_its_new_queue() -> None:
    queues = (Queue("red", limit=Quota(2000)), Queue("blue"))
    world = World(replace(flat(1, 4), queues=queues), "fifo")
    world.run(a_job("full", 2, queue="red"))
    world.submit(a_job("next", 2, queue="red"))
    assert world.reason("next") is Reason.QUOTA
    assert starts(world.turn(changed(world, "next", queue="blue"))) == ["next"]
    verify(world.journal)


def test_a_job_moved_to_a_queue_that_there_is_not_is_refused() -> None:
    world = World(replace(flat(1, 4), queues=(Queue("red"),)), "fifo")
    world.run(a_job("full", 4, queue="red"))
    world.submit(a_job("held", 4, queue="red"))
    with pytest.raises(ValueError, match="nope"):
        world.turn(changed(world, "held", queue="nope"))


def test_where_there_are_no_queues_a_job_is_moved_to_one_that_nobody_has_named_before() -> None:
    world = World(flat(1, 4), "fifo")
    world.run(a_job("full", 4))
    world.submit(a_job("next", 4))
    world.turn(changed(world, "next", queue="other"))
    assert starts(world.end("full")) == ["next"]
    assert world.state.usage("other").gpu_permille == 4000


def test_a_job_that_lost_its_patience_in_one_queue_can_be_moved_to_another() -> None:
    cluster: Cluster = replace(flat(1, 4), patience_ms=1_000)
    world = World(cluster, "backfill")
    world.run(a_job("full", 4))
    world.submit(a_job("tired", 4))
    world.turn(after_ms=2_000)
    assert world.job("tired").impatient
    world.turn(changed(world, "tired", queue="other"))
    assert world.state.first_impatient == {"other": "tired"}
    assert starts(world.end("full")) == ["tired"]
    verify(world.journal)


def test_a_begin_time_is_waited_for_and_taken_away() -> None:
    world = World(flat(1, 4), "fifo")
    world.run(a_job("full", 4))
    world.submit(a_job("a", 4), a_job("b", 4))
    world.turn(changed(world, "a", begin_ms=60_000), changed(world, "b", begin_ms=90_000))
    world.end("full")
    assert world.reason("a") is Reason.BEGIN_TIME
    assert world.state.next_wakeup() == 60_000
    assert starts(world.turn(after_ms=60_000)) == ["a"]
    world.done("a")
    world.end("a")
    assert starts(world.turn(changed(world, "b", begin_ms=None))) == ["b"]
    verify(world.journal)
