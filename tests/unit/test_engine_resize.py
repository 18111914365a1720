"""Elastic jobs: they give way before anybody is stopped, and take up what nobody waits for."""

from __future__ import annotations

import pytest

from builders import World, a_job, of_roles, places, sockets, starts, stops
from phalanx.cluster.cluster import Cluster, Health, Node, flat
from phalanx.engine.decide.cycle import decide
from phalanx.engine.state.records import JobState, Phase
from phalanx.protocol.action import Resize
from phalanx.protocol.event import DeviceHealthChanged, JobCancelled, NodeHealthChanged
from phalanx.protocol.plan import Plan
from phalanx.protocol.reason import Reason
from phalanx.workload.gang import Role, Task
from phalanx.workload.job import Checkpointing, Kind


def resizes(plan: Plan) -> dict[str, int]:
    """Jobs that are told another size, and how many members they shall have."""
    return {action.id.job: len(action.placement.slots) for action in plan.actions if isinstance(action, Resize)}


@pytest.fixture
def world() -> World:
    """Four GPUs, all taken by an elastic job of one to four."""
    world = World(flat(1, 4), "priority")
    world.run(a_job("elastic", 1, (1, 4)))
    return world


def test_an_elastic_job_shrinks_for_a_higher_one_and_is_not_stopped(world: World) -> None:
    plan = world.submit(a_job("head", 2, priority=5))
    assert resizes(plan) == {"elastic": 2}
    assert not stops(plan)
    assert world.reason("head") is Reason.MAKING_ROOM
    assert starts(world.done("elastic")) == ["head"]
    assert sum(map(len, world.where("elastic").values())) == 2


def test_an_elastic_job_never_shrinks_below_its_minimum(world: World) -> None:
    plan = world.submit(a_job("head", 4, priority=5))
    assert not resizes(plan)
    assert stops(plan) == ["elastic"]


def test_no_more_members_go_than_are_needed(world: World) -> None:
    assert resizes(world.submit(a_job("head", 1, priority=5))) == {"elastic": 3}


def test_an_elastic_job_takes_up_what_nobody_waits_for(world: World) -> None:
    world.submit(a_job("head", 2, priority=5))
    world.done("elastic")
    world.done("head")
    assert resizes(world.end("head")) == {"elastic": 4}
    world.done("elastic")
    assert sum(map(len, world.where("elastic").values())) == 4


def test_an_elastic_job_does_not_grow_while_somebody_waits() -> None:
    world = World(flat(2, 2), "priority")
    world.run(a_job("a", 2))
    world.run(a_job("elastic", 1, (1, 4), priority=9))
    world.submit(a_job("waits", 2, 2))
    plan = world.end("a")
    assert not resizes(plan)


def test_one_that_can_never_fit_keeps_nobody_from_growing() -> None:
    world = World(flat(1, 2), "priority")
    world.run(a_job("a"), a_job("elastic", 1, (1, 2)))
    world.submit(a_job("huge", 16))
    assert resizes(world.end("a")) == {"elastic": 2}


def test_a_failed_growth_is_given_back_and_tried_again_later(world: World) -> None:
    world.submit(a_job("head", 2, priority=5))
    world.done("elastic")
    world.done("head")
    world.end("head")
    world.failed("elastic")
    assert world.status("elastic") is JobState.RUNNING
    assert world.state.capacity.free_gpus(1) == 2
    assert not world.turn(after_ms=999).actions
    assert resizes(world.turn(after_ms=1)) == {"elastic": 4}


def test_a_shrink_that_fails_is_had_by_a_stop(world: World) -> None:
    world.submit(a_job("head", 2, priority=5))
    assert stops(world.failed("elastic")) == ["elastic"]
    assert sorted(starts(world.done("elastic"))) == ["elastic", "head"]


def test_a_resize_that_nobody_answers_ends_the_attempt(world: World) -> None:
    world.submit(a_job("head", 2, priority=5))
    assert stops(world.lost("elastic")) == ["elastic"]


def test_a_job_that_is_cancelled_while_it_shrinks_gives_everything_back(world: World) -> None:
    world.submit(a_job("head", 2, priority=5))
    world.turn(JobCancelled("elastic"))
    stop = world.asks("elastic")[-1]
    assert stop.id.seq == 2
    assert starts(world.done("elastic")) == ["head"]
    assert world.status("elastic") is JobState.CANCELLED
    world.state.capacity.check()


def test_a_claim_on_what_shrinks_is_released_when_the_claimant_is_cancelled(world: World) -> None:
    world.submit(a_job("head", 2, priority=5))
    world.turn(JobCancelled("head"))
    assert resizes(world.done("elastic")) == {"elastic": 4}


def test_a_service_keeps_what_must_be_available() -> None:
    world = World(flat(1, 4), "priority")
    world.run(a_job("web", 1, (1, 4), kind=Kind.SERVICE, min_available=3))
    assert not world.submit(a_job("large", 2, priority=5)).actions
    assert resizes(world.submit(a_job("small", 1, priority=6))) == {"web": 3}


def a_service(least: int, most: int) -> World:
    """One replica on each of four nodes of one GPU."""
    world = World(flat(4, 1), "priority")
    world.run(a_job("web", 1, (least, most), kind=Kind.SERVICE, min_available=least))
    return world


def test_a_service_that_loses_a_node_gives_up_the_replica_there_and_the_others_go_on() -> None:
    world = a_service(1, 4)
    plan = world.turn(NodeHealthChanged("n1", Health.FAILED))
    assert resizes(plan) == {"web": 3}
    assert not stops(plan)
    world.done("web")
    attempt = world.state.jobs["web"].attempt
    assert attempt is not None
    assert [slot.node for slot in attempt.placement.slots] == ["n0", "n2", "n3"]
    assert resizes(world.turn(NodeHealthChanged("n1", Health.HEALTHY))) == {"web": 4}, "it has its replica again"
    world.state.capacity.check()


def test_a_service_that_loses_a_device_gives_up_the_replica_there() -> None:
    world = a_service(1, 4)
    assert resizes(world.turn(DeviceHealthChanged("n2", 0, Health.FAILED))) == {"web": 3}


def test_a_service_that_would_have_less_than_its_minimum_is_started_anew() -> None:
    world = a_service(4, 4)
    assert stops(world.turn(NodeHealthChanged("n1", Health.FAILED))) == ["web"]
    world = a_service(3, 4)
    assert resizes(world.turn(NodeHealthChanged("n1", Health.FAILED))) == {"web": 3}
    assert stops(world.turn(NodeHealthChanged("n2", Health.FAILED))) == ["web"]


def test_a_service_gives_up_replicas_before_training_is_stopped_for_a_peer_under_the_default_policy() -> None:
    world = World(flat(2, 8), "phalanx:first=2")
    world.run(a_job("web", 1, (2, 8), kind=Kind.SERVICE, min_available=2, checkpoint=Checkpointing()))
    world.run(a_job("train", 8))
    plan = world.submit(a_job("peer", 4), after_ms=60_000)
    assert not stops(plan)
    assert resizes(plan) == {"web": 4}


def test_training_that_loses_a_node_is_stopped_whole() -> None:
    world = World(flat(4, 1), "priority")
    world.run(a_job("train", 1, (1, 4)))
    assert stops(world.turn(NodeHealthChanged("n1", Health.FAILED))) == ["train"]


def test_two_heads_of_one_moment_take_from_one_elastic_job_in_one_resize_or_one_after_the_other(world: World) -> None:
    plan = world.submit(a_job("x", 1, priority=5), a_job("y", 1, priority=6))
    assert len(plan.actions) == len({action.id for action in plan.actions}), "no two actions of one id"
    assert not decide(world.state, world.now).news(world.state.head)
    world.done("elastic")
    if world.asks("elastic"):
        world.done("elastic")
    assert world.status("x") is world.status("y") is JobState.STARTING
    world.state.capacity.check()


def test_a_job_is_not_shrunk_for_one_head_and_stopped_for_another_in_one_plan(world: World) -> None:
    plan = world.submit(a_job("x", 1, priority=6), a_job("y", 3, priority=5))
    assert len(plan.actions) == len({action.id for action in plan.actions}), "no two actions of one id"
    assert not decide(world.state, world.now).news(world.state.head)


def test_members_without_gpus_go_and_come_one_by_one() -> None:
    """Tasks that look alike on one node are still different tasks."""
    world = World(Cluster((Node("n0", (), 1, cpus_milli=4_000),)), "priority")
    world.run(a_job("elastic", 0, (1, 4), task={"cpus_milli": 1_000}))
    plan = world.submit(a_job("head", 0, priority=5, task={"cpus_milli": 2_000}))
    assert resizes(plan) == {"elastic": 2}
    assert starts(world.done("elastic")) == ["head"]
    world.state.capacity.check()
    assert world.state.capacity.amounts[0].held == [4_000]
    world.done("head")
    world.end("head")
    world.done("elastic")
    assert world.state.capacity.amounts[0].held == [4_000]
    world.state.capacity.check()


def test_a_gang_held_to_one_socket_does_not_grow_out_of_it() -> None:
    world = World(sockets(1, 4), "priority")
    world.run(a_job("fixed", 1), a_job("elastic", 1, (1, 2), required="socket"))
    assert world.where("elastic") == {"n0": (2, 3)}
    world.submit(a_job("head", 1, priority=5))
    before = world.where("elastic")
    for action in list(world.asked.values()):
        if isinstance(action, Resize):
            assert set(places(action.placement)["n0"]) <= set(before["n0"])


def test_growth_stays_inside_the_required_socket() -> None:
    world = World(sockets(1, 4), "priority")
    world.run(a_job("a", 1))
    world.run(a_job("b", 1), a_job("elastic", 1, (1, 3), required="socket"))
    world.end("a")
    for action in world.asked.values():
        if isinstance(action, Resize):
            taken = places(action.placement)["n0"]
            assert set(taken) <= {0, 1} or set(taken) <= {2, 3}


def test_roles_keep_their_own_minimum() -> None:
    world = World(flat(1, 4), "priority")
    world.run(of_roles("elastic", Role("ps", 1, 2, Task(1)), Role("worker", 2, 2, Task(1))))
    plan = world.submit(a_job("head", 1, priority=5))
    (resize,) = plan.actions
    assert isinstance(resize, Resize)
    assert sorted(slot.role for slot in resize.placement.slots) == ["ps", "worker", "worker"]


def test_while_it_is_resized_an_attempt_says_so(world: World) -> None:
    world.submit(a_job("head", 2, priority=5))
    attempt = world.job("elastic").attempt
    assert attempt is not None
    assert attempt.phase is Phase.RESIZING
    assert world.status("elastic") is JobState.RUNNING
