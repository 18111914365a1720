"""Holds: who has waited too long for a limit of its queue is not passed by smaller jobs for ever."""

from __future__ import annotations

from dataclasses import replace

import pytest

from builders import World, a_job, starts
from phalanx.cluster.cluster import flat
from phalanx.cluster.queues import Queue, Quota
from phalanx.engine.event import JobCancelled
from phalanx.engine.plan import Reason
from phalanx.engine.why import why
from phalanx.words import because, evidence
from phalanx.workload.job import Job

MINUTE_MS = 60_000
LIMITED = (Queue("r", limit=Quota(6_000)), Queue("r/a"), Queue("r/b"), Queue("other"))


def small(name: str, queue: str = "r/b", gpus: int = 2) -> Job:
    return a_job(name, gpus, queue=queue, duration_ms=10 * MINUTE_MS, preemptible=False)


def with_one_that_is_overdue(policy: str) -> World:
    """r may have 6 GPUs, of which 4 are in use; a job of 6 has waited longer than its 10 minutes."""
    world = World(replace(flat(4, 4), queues=LIMITED), policy)
    world.run(small("b0"), small("b1"))
    world.submit(a_job("whole", 1, 6, queue="r/a", duration_ms=10 * MINUTE_MS, max_wait_ms=10 * MINUTE_MS))
    world.turn(after_ms=10 * MINUTE_MS)
    return world


@pytest.mark.parametrize("policy", ["fifo:skip=true", "phalanx", "priority", "backfill", "fair", "multifactor", "kai"])
def test_who_is_overdue_has_what_is_left_of_the_limit_kept_until_it_starts(policy: str) -> None:
    world = with_one_that_is_overdue(policy)
    assert starts(world.submit(small("late"), after_ms=1_000)) == []
    assert starts(world.end("b0", after_ms=1_000)) == []
    assert starts(world.end("b1", after_ms=1_000)) == ["whole"]


def test_who_draws_on_another_limit_is_not_held_up() -> None:
    world = with_one_that_is_overdue("fifo:skip=true")
    assert starts(world.submit(small("else", "other", gpus=4), after_ms=1_000)) == ["else"]


def test_both_are_told_what_is_kept_and_for_whom() -> None:
    world = with_one_that_is_overdue("priority")
    world.submit(small("late"), after_ms=1_000)
    assert world.reason("whole") is Reason.QUOTA
    assert "what its queue may still have is kept for it" in evidence(why(world.state, "whole"), world.now)["overdue"]
    assert world.reason("late") is Reason.RESERVED
    assert "whole" in because(why(world.state, "late"))


def test_who_was_held_up_starts_when_the_one_who_is_overdue_gives_up() -> None:
    world = with_one_that_is_overdue("priority")
    world.submit(small("late"), after_ms=1_000)
    assert starts(world.turn(JobCancelled("whole"), after_ms=1_000)) == ["late"]


def test_what_fits_before_the_limit_goes_to_who_has_been_overdue_for_longer() -> None:
    world = World(replace(flat(4, 4), queues=LIMITED), "fifo:skip=true")
    world.run(small("b0", gpus=4))
    first = a_job("first", 4, queue="r/b", max_wait_ms=MINUTE_MS, preemptible=False)
    second = a_job("second", 4, queue="r/a", max_wait_ms=2 * MINUTE_MS, preemptible=False)
    world.submit(first, second)
    world.turn(after_ms=3 * MINUTE_MS)
    assert starts(world.submit(small("third"), after_ms=1_000)) == []
    assert starts(world.end("b0", after_ms=1_000)) == ["first"]
    assert starts(world.end("first", after_ms=1_000)) == ["second"]
