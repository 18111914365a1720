"""What an elastic job has beyond its minimum is lent: it grew while nobody waited."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from builders import World, a_job, starts, stops
from phalanx.cluster.cluster import Cluster, Node, flat
from phalanx.cluster.queues import Queue, Quota
from phalanx.engine.state.records import JobState
from phalanx.policy.registry import BUILTIN, policy
from phalanx.protocol.action import Resize
from phalanx.protocol.event import Done
from phalanx.protocol.plan import Plan
from phalanx.workload.job import Kind

POLICIES = [
    name if name != "tiresias-gittins" else f"{name}:samples=1/2/3"
    for name in BUILTIN
    if name != "tiresias-gittins" and not policy(name).sets_sizes
]


def settle(world: World) -> list[Plan]:
    """Has everything done that is asked for, until nothing more is."""
    plans = []
    for _ in range(20):
        actions = list(world.asked.values())
        if not actions:
            break
        plans.append(world.turn(*(Done(action.id) for action in actions), after_ms=100))
    return plans


@pytest.mark.parametrize("name", POLICIES)
def test_an_elastic_job_shrinks_for_an_equal_that_waits(name: str) -> None:
    world = World(flat(1, 8), name)
    world.submit(a_job("elastic", 1, (2, 8), duration_ms=3_600_000))
    settle(world)
    plan = world.submit(a_job("small", 2, duration_ms=60_000), after_ms=1_000)
    assert not stops(plan)
    settle(world)
    assert world.status("small") is JobState.RUNNING
    assert world.status("elastic") is JobState.RUNNING
    assert world.job("elastic").gpus == 6


def test_it_grows_again_once_nobody_waits() -> None:
    world = World(flat(1, 8), "fifo")
    world.submit(a_job("elastic", 1, (2, 8)))
    settle(world)
    world.submit(a_job("small", 2), after_ms=1_000)
    settle(world)
    plan = world.end("small", after_ms=1_000)
    assert [action.id.job for action in plan.actions if isinstance(action, Resize)] == ["elastic"]
    settle(world)
    assert world.job("elastic").gpus == 8


def test_it_does_not_shrink_for_one_that_would_not_fit_even_so() -> None:
    world = World(flat(1, 8), "fifo")
    world.submit(a_job("elastic", 1, (2, 8)))
    settle(world)
    assert not world.submit(a_job("large", 7), after_ms=1_000).actions


def test_one_that_arrives_while_it_starts_has_its_extras_once_it_runs() -> None:
    world = World(flat(1, 8), "fifo")
    world.submit(a_job("elastic", 1, (2, 8)), a_job("small", 2))
    settle(world)
    assert world.status("small") is JobState.RUNNING


def test_two_elastic_jobs_come_to_rest() -> None:
    world = World(flat(1, 8), "fifo")
    world.submit(a_job("first", 1, (2, 8)))
    settle(world)
    world.submit(a_job("second", 1, (2, 8)), after_ms=1_000)
    assert len(settle(world)) < 10
    assert world.job("first").gpus + world.job("second").gpus == 8
    assert not world.turn(after_ms=60_000).actions


@pytest.mark.parametrize("kept", [{"kind": Kind.SERVICE}, {"preemptible": False}])
def test_services_and_jobs_that_are_never_stopped_keep_what_they_have(kept: dict[str, Any]) -> None:
    world = World(flat(1, 8), "fifo")
    world.submit(replace(a_job("elastic", 1, (2, 8)), **kept))
    settle(world)
    assert not world.submit(a_job("equal", 2), after_ms=1_000).actions


def test_it_shrinks_once_for_all_who_come_at_once() -> None:
    world = World(flat(1, 8), "fifo")
    world.submit(a_job("elastic", 1, (2, 8)))
    settle(world)
    plan = world.submit(*(a_job(f"small{i}", 1) for i in range(6)), after_ms=1_000)
    (resize,) = (action for action in plan.actions if isinstance(action, Resize))
    assert len(resize.placement.slots) == 2
    settle(world)
    assert all(world.status(f"small{i}") is JobState.RUNNING for i in range(6))


def test_of_hundreds_of_members_no_more_go_than_are_needed() -> None:
    world = World(flat(64, 8), "fifo")
    world.submit(a_job("elastic", 1, (8, 512)))
    settle(world)
    plan = world.submit(a_job("small", 1), after_ms=1_000)
    (resize,) = (action for action in plan.actions if isinstance(action, Resize))
    assert len(resize.placement.slots) == 511


def test_extras_elsewhere_let_nobody_take_the_cpus_that_are_reserved() -> None:
    nodes = (Node("n0", (), 8, cpus_milli=16_000), Node("n1", (), 8))
    world = World(Cluster(nodes), "backfill")
    hour_ms = 3_600_000
    world.submit(a_job("running", 4, duration_ms=hour_ms, task={"cpus_milli": 8_000}))
    world.submit(a_job("elastic", 1, (2, 8), duration_ms=10 * hour_ms))
    settle(world)
    world.submit(a_job("head", 4, duration_ms=hour_ms, task={"cpus_milli": 16_000}), after_ms=1_000)
    plan = world.submit(a_job("long", 1, duration_ms=10 * hour_ms, task={"cpus_milli": 4_000}), after_ms=1_000)
    assert not starts(plan)
    assert not plan.claims


@pytest.mark.parametrize("name", POLICIES)
def test_a_job_that_was_stopped_for_another_has_the_extras_that_this_one_borrows(name: str) -> None:
    """The first is stopped while it starts with all GPUs, since the second deserves some, which takes all in turn."""
    queues = (Queue("a", deserved=Quota(3000)), Queue("b", deserved=Quota(3000)))
    world = World(replace(flat(1, 8), queues=queues), name)
    world.submit(a_job("first", 1, (2, 8), queue="a", duration_ms=3_600_000))
    world.submit(a_job("second", 1, (2, 8), queue="b", duration_ms=3_600_000), after_ms=1_000)
    settle(world)
    assert world.status("first") is JobState.RUNNING
    assert world.status("second") is JobState.RUNNING


def test_what_a_queue_deserves_is_lent_to_no_other() -> None:
    queues = (Queue("a", deserved=Quota(8_000)), Queue("b"))
    world = World(Cluster(flat(1, 8).nodes, queues=queues), "fair")
    world.submit(a_job("elastic", 1, (2, 8), queue="a"))
    settle(world)
    assert not starts(world.submit(a_job("other", 2, queue="b"), after_ms=1_000))
    world.submit(a_job("own", 2, queue="a"), after_ms=1_000)
    settle(world)
    assert world.status("own") is JobState.RUNNING
