"""Running jobs that go elsewhere so that somebody fits where they were."""

from __future__ import annotations

import pytest

from builders import World, a_job, racked, starts, stops
from phalanx.cluster.cluster import Cluster, Health, Node, flat
from phalanx.engine.state.records import JobState
from phalanx.protocol.action import Resize
from phalanx.protocol.event import JobCancelled
from phalanx.protocol.plan import Plan
from phalanx.protocol.reason import Reason
from phalanx.workload.job import Kind


def moved(plan: Plan) -> list[str]:
    return [action.id.job for action in plan.actions if isinstance(action, Resize)]


def two_apart(policy: str = "priority", **job: object) -> World:
    """Two nodes of 4 GPUs: `left` has 2 of n0, `right` 2 of n1."""
    world = World(flat(2, 4), policy)
    world.run(a_job("left", 2, **job), a_job("wall", 2, **job), a_job("right", 2, **job))
    world.end("wall")
    assert list(world.where("left")) != list(world.where("right"))
    return world


def test_a_job_moves_out_of_the_way_instead_of_being_stopped() -> None:
    world = two_apart()
    plan = world.submit(a_job("head", 4, priority=5))
    assert stops(plan) == []
    (mover,) = moved(plan)
    assert world.reason("head") is Reason.MAKING_ROOM
    assert world.status(mover) is JobState.RUNNING
    assert starts(world.done(mover)) == ["head"]
    assert list(world.where("left")) == list(world.where("right"))
    assert world.job(mover).preemptions == 0
    assert world.job(mover).attempts == 1


def test_a_peer_is_moved_but_never_stopped() -> None:
    world = two_apart()
    assert moved(world.submit(a_job("head", 4))) != []
    world = two_apart()
    world.run(a_job("more", 2))
    plan = world.submit(a_job("head", 4))
    assert not plan.actions
    assert world.reason("head") is Reason.GPUS


def test_nobody_is_moved_for_a_lower_priority() -> None:
    world = two_apart(priority=7)
    assert not world.submit(a_job("head", 4, priority=5)).actions
    assert world.reason("head") is Reason.FRAGMENTED


def test_fifo_moves_nobody() -> None:
    world = two_apart("fifo:skip=true")
    assert not world.submit(a_job("head", 4)).actions


@pytest.mark.parametrize("stays", [{"preemptible": False}, {"kind": Kind.SERVICE}])
def test_who_may_not_be_stopped_is_not_moved(stays: dict[str, object]) -> None:
    world = two_apart(**stays)
    assert not world.submit(a_job("head", 4)).actions


def test_a_job_moves_only_where_it_lands_at_once() -> None:
    cluster = Cluster((Node("n0", (), 4, "A"), Node("n1", (), 4, "B")))
    world = World(cluster, "priority")
    world.run(a_job("a", 2, task={"gpu_types": ("A",)}), a_job("b", 2, task={"gpu_types": ("B",)}))
    assert not world.submit(a_job("head", 4)).actions
    assert world.reason("head") is Reason.FRAGMENTED


def test_a_gang_gets_its_rack_by_one_small_move() -> None:
    world = World(racked(2, 2, gpus=4), "priority")
    world.run(a_job("big", 4), a_job("small", 1), a_job("other", 4), a_job("tiny", 1))
    racks = {name: list(world.where(name)) for name in ("big", "small", "other", "tiny")}
    world.end("big")
    plan = world.submit(a_job("gang", 4, count=2, required="rack", priority=1))
    assert stops(plan) == []
    assert len(moved(plan)) == 1, racks


def test_if_a_move_fails_its_job_is_stopped_and_starts_again() -> None:
    world = two_apart()
    (mover,) = moved(world.submit(a_job("head", 4, priority=5)))
    plan = world.failed(mover)
    assert stops(plan) == [mover]
    assert sorted(starts(world.done(mover))) == sorted(["head", mover])


def test_when_the_head_is_cancelled_the_move_goes_on_and_harms_nobody() -> None:
    world = two_apart()
    (mover,) = moved(world.submit(a_job("head", 4, priority=5)))
    world.turn(JobCancelled("head"))
    world.done(mover)
    assert world.status(mover) is JobState.RUNNING
    assert starts(world.submit(a_job("next", 4))) == ["next"]


def test_a_node_that_fails_under_a_move_ends_it_like_any_other() -> None:
    world = two_apart()
    (mover,) = moved(world.submit(a_job("head", 4, priority=5)))
    for node in list(world.where(mover)):
        world.health(node, Health.FAILED)
    assert world.status(mover) is JobState.STOPPING
