"""Holds: who has waited too long for a limit of its queue is not passed by smaller jobs for ever."""

from __future__ import annotations

from dataclasses import replace

import pytest

from builders import World, a_job, starts, stops
from phalanx.cluster.cluster import Cluster, Node, flat
from phalanx.cluster.queues import Queue, Quota
from phalanx.engine.why.present import present_reason
from phalanx.engine.why.why import why
from phalanx.protocol.event import AttemptEnded, JobCancelled, Outcome
from phalanx.protocol.reason import Reason
from phalanx.words.evidence import evidence
from phalanx.words.reason import because
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
    assert starts(world.end("first", after_ms=1_000)) == ["second", "third"]


def test_nothing_is_kept_for_one_who_starts_in_the_same_decision() -> None:
    """r may have 6 GPUs, which b0 has. Once it has ended, first takes 4 of them, and small the other two."""
    world = World(replace(flat(4, 4), queues=LIMITED), "fair")
    world.run(small("b0", gpus=3), small("b1", gpus=3))
    world.submit(a_job("first", 4, queue="r/a", max_wait_ms=MINUTE_MS), small("late"))
    world.turn(after_ms=2 * MINUTE_MS)
    world.turn(AttemptEnded("b0", 1, Outcome.SUCCEEDED), after_ms=1_000)
    assert starts(world.end("b1")) == ["first", "late"]


@pytest.mark.parametrize("policy", ["fifo:skip=true", "fair"])
def test_what_is_kept_of_a_limit_is_taken_from_no_queue_outside_it(policy: str) -> None:
    """r has 4 of its 6, and whole waits for 6. Of the 4 GPUs that are left, other has all: nobody of r may have any."""
    world = World(replace(flat(2, 4), queues=LIMITED), policy)
    world.run(small("b0"), small("b1"))
    world.submit(a_job("whole", 1, 6, queue="r/a", duration_ms=10 * MINUTE_MS, max_wait_ms=10 * MINUTE_MS))
    world.turn(after_ms=10 * MINUTE_MS)
    assert starts(world.submit(small("else", "other", gpus=4), after_ms=1_000)) == ["else"]


def test_a_queue_does_not_borrow_by_what_is_kept_for_one_of_it() -> None:
    """a deserves 4 of 8 and has 3; 2 more are kept of its limit. b has its due, and nobody of a is stopped for that."""
    queues = (Queue("a", deserved=Quota(4_000), limit=Quota(5_000)), Queue("b", deserved=Quota(4_000)))
    world = World(replace(flat(1, 8), queues=queues), "fair")
    world.run(a_job("a0", 3, queue="a", duration_ms=90 * MINUTE_MS), a_job("b0", 2, queue="b"))
    world.submit(a_job("whole", 3, queue="a", max_wait_ms=MINUTE_MS))
    world.turn(after_ms=2 * MINUTE_MS)
    plan = world.submit(a_job("b1", 2, queue="b"), after_ms=1_000)
    assert (starts(plan), stops(plan)) == (["b1"], [])


def test_all_limits_are_kept_that_hold_one_up_also_where_another_is_used_up() -> None:
    """whole lacks GPUs, of which r has none left, and CPUs, of which r has 8 left: late does not get them."""
    nodes = tuple(Node(f"n{i}", (), 4, cpus_milli=32_000) for i in range(2))
    world = World(Cluster(nodes, queues=(Queue("r", limit=Quota(4_000, 16_000)), Queue("r/a"), Queue("r/b"))), "fair")
    world.run(a_job("b0", 4, queue="r/b", task={"cpus_milli": 8_000}))
    world.submit(a_job("whole", 4, queue="r/a", task={"cpus_milli": 16_000}, max_wait_ms=MINUTE_MS))
    world.turn(after_ms=2 * MINUTE_MS)
    assert starts(world.submit(a_job("late", 0, queue="r/b", task={"cpus_milli": 4_000}), after_ms=1_000)) == []
    answer = why(world.state, "late")
    assert answer.reason is Reason.RESERVED
    assert [(each.other.job, each.limit) for each in answer.reserved_for] == [("whole", "r")]


def test_who_was_told_something_else_before_is_told_for_whom_the_limit_is_kept() -> None:
    """late waits for r's limit, which b0 uses up; what b1 leaves of it is kept for whole, of which late is not told
    anew.
    """
    world = World(replace(flat(4, 4), queues=LIMITED), "fair")
    world.run(small("b0"), small("b1"), small("b2"))
    world.submit(a_job("whole", 1, 6, queue="r/a", max_wait_ms=MINUTE_MS), small("late"))
    assert world.reason("late") is Reason.QUOTA
    world.turn(after_ms=2 * MINUTE_MS)
    world.end("b1", after_ms=1_000)
    answer = why(world.state, "late")
    assert answer.reason is present_reason(world.state, "late") is Reason.RESERVED
    assert [(each.other.job, each.limit) for each in answer.reserved_for] == [("whole", "r")]
    assert "the limit of queue r is kept for" in because(answer)
