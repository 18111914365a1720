"""Assigned devices: an engine that chooses devices itself is believed, and a gang that it broke is undone."""

from __future__ import annotations

import pytest

from builders import World, a_job, racked, sockets, starts, stops
from phalanx.engine.state.journal import Journal
from phalanx.engine.state.records import JobState
from phalanx.engine.turn import replay
from phalanx.placement.placement import Slot
from phalanx.protocol.event import DevicesAssigned, ForeignUse


def assigned(job: str, *devices: tuple[str, tuple[int, ...]], attempt: int = 1) -> DevicesAssigned:
    """The nodes and devices of the tasks of a job, in rank order."""
    slots = (Slot(rank, "worker", node, here) for rank, (node, here) in enumerate(devices))
    return DevicesAssigned(job, attempt, tuple(slots))


def free(world: World, node: str) -> int:
    return world.state.capacity.free[world.state.topology.number[node]]


def test_the_state_takes_the_devices_that_the_engine_chose():
    world = World(racked(1, 1, 4))
    world.submit(a_job("j", 2))
    world.turn(assigned("j", ("n0", (2, 3))))
    world.done("j")
    assert world.where("j") == {"n0": (2, 3)}
    assert free(world, "n0") == 0b0011


def test_two_jobs_that_were_given_each_others_devices_exchange_them():
    world = World(racked(1, 1, 4))
    world.submit(a_job("a", 2), a_job("b", 2))
    world.turn(assigned("a", ("n0", (2, 3))))
    assert world.where("b") == {"n0": (0, 1)}
    world.turn(assigned("b", ("n0", (0, 1))))
    assert not stops(world.done("a", "b"))
    assert (world.where("a"), world.where("b")) == ({"n0": (2, 3)}, {"n0": (0, 1)})


def test_a_gang_may_come_to_lie_on_another_node_if_that_has_room():
    world = World(racked(1, 2, 4))
    world.submit(a_job("j", 2, 2))
    world.turn(assigned("j", ("n1", (0, 1)), ("n1", (2, 3))))
    assert world.where("j") == {"n1": (0, 1, 2, 3)}
    assert free(world, "n0") == 0b1111


def test_a_gang_whose_required_topology_is_broken_is_undone_and_tried_again_later():
    world = World(racked(2, 1, 4))
    world.submit(a_job("j", 2, 2, required="rack"))
    plan = world.turn(assigned("j", ("n0", (0, 1)), ("n1", (0, 1))))
    assert stops(plan) == ["j"]
    assert plan.actions[0].reason == "misplaced"
    assert not starts(world.done("j")), "the engine gets a moment before it is asked again"
    assert starts(world.turn(after_ms=2_000)) == ["j"]


def test_a_socket_that_a_gang_requires_counts_too():
    world = World(sockets(1, 8))
    world.submit(a_job("j", 4, required="socket"))
    assert not stops(world.turn(assigned("j", ("n0", (4, 5, 6, 7)))))
    assert stops(world.turn(assigned("j", ("n0", (2, 3, 4, 5))))) == ["j"]


def test_a_gang_on_devices_of_an_attempt_that_is_being_stopped_is_undone():
    world = World(racked(1, 1, 4), "priority")
    world.run(a_job("old", 2))
    world.run(a_job("j", 1))
    world.submit(a_job("high", 4, priority=1_000))
    assert world.status("old") is JobState.STOPPING
    before = world.where("j")
    world.turn(assigned("j", ("n0", (0,))))
    assert world.where("j") == before, "the State never gives one device to two"


def test_devices_that_only_counted_as_foreign_give_way():
    world = World(racked(1, 1, 4))
    world.turn(ForeignUse("n0", gpus=2))
    world.submit(a_job("j", 2))
    world.turn(assigned("j", ("n0", (2, 3))))
    assert world.where("j") == {"n0": (2, 3)}
    assert free(world, "n0") == 0


def test_news_of_an_attempt_that_is_gone_changes_nothing():
    world = World(racked(1, 1, 4))
    world.run(a_job("j", 2))
    world.end("j")
    world.turn(assigned("j", ("n0", (2, 3))))
    assert free(world, "n0") == 0b1111


@pytest.mark.parametrize(
    ("event", "message"),
    [
        (assigned("j", ("n0", (2, 3))), "expected a slot for each of its 2 tasks"),
        (assigned("j", ("n0", (2,)), ("n0", (3, 0))), "as many devices as it was planned on"),
        (assigned("j", ("n0", (2,)), ("n0", (2,))), "a device is named twice"),
        (assigned("j", ("n0", (2,)), ("n0", (4,))), "has devices 0 to 3, not 4"),
        (assigned("j", ("n0", (2,)), ("n7", (0,))), "there is no node 'n7'"),
    ],
)
def test_what_does_not_fit_the_tasks_is_refused(event: DevicesAssigned, message: str):
    world = World(racked(1, 1, 4))
    world.submit(a_job("j", 1, 2))
    with pytest.raises(ValueError, match=message):
        world.turn(event)


def test_the_journal_tells_it():
    world = World(racked(1, 1, 4))
    world.submit(a_job("a", 2), a_job("b", 2))
    world.turn(assigned("a", ("n0", (3, 1))))
    told = replay(Journal.read(list(world.journal.lines())))
    assert told.fingerprint() == world.state.fingerprint()
