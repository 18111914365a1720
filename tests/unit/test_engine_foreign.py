"""Foreign use: what work that is not ours holds of nodes counts as used, and is never stopped."""

from __future__ import annotations

import pytest

from builders import World, a_job, racked, starts, stops
from phalanx.engine.state.journal import Journal
from phalanx.engine.turn import replay
from phalanx.protocol.event import ClusterChanged, ForeignUse


def free(world: World, node: str = "n0") -> int:
    return world.state.capacity.free[world.state.topology.number[node]]


def test_a_job_waits_for_what_foreign_work_holds_and_starts_once_it_is_given_back():
    world = World(racked(1, 1, 4), "priority")
    world.turn(ForeignUse("n0", gpus=2))
    assert not starts(world.submit(a_job("j", 4, priority=1_000)))
    assert starts(world.turn(ForeignUse("n0"))) == ["j"]


def test_devices_that_are_named_are_taken_and_of_others_the_last():
    world = World(racked(1, 1, 4))
    world.turn(ForeignUse("n0", devices=(0,), gpus=1))
    assert free(world) == 0b0110


def test_what_is_said_of_a_node_replaces_what_was_said_before():
    world = World(racked(1, 1, 4))
    world.turn(ForeignUse("n0", devices=(0, 1)))
    world.turn(ForeignUse("n0", devices=(3,)))
    assert free(world) == 0b0111


def test_foreign_work_is_never_a_victim_and_none_is_stopped_in_vain_for_it():
    world = World(racked(1, 1, 4), "priority")
    world.run(a_job("low", 2))
    world.turn(ForeignUse("n0", gpus=2))
    assert not stops(world.submit(a_job("high", 4, priority=1_000)))


def test_what_one_of_ours_still_holds_is_had_by_foreign_work_when_that_ends():
    world = World(racked(1, 1, 4))
    world.run(a_job("ours", 4))
    world.turn(ForeignUse("n0", gpus=3))
    assert world.state.foreign_short
    world.end("ours")
    assert free(world) == 0b0001
    assert not world.state.foreign_short


def test_cpus_and_memory_count_as_used_up_to_what_the_node_has():
    world = World(racked(1, 1, 4, cpus_milli=8_000, memory_mb=1_000), "phalanx")
    world.turn(ForeignUse("n0", cpus_milli=5_000, memory_mb=10_000))
    assert not starts(world.submit(a_job("cpus", 1, task={"cpus_milli": 4_000})))
    assert not starts(world.submit(a_job("memory", 1, task={"memory_mb": 1})))
    assert starts(world.submit(a_job("little", 1, task={"cpus_milli": 3_000}))) == ["little"]
    assert not world.state.foreign_short, "more than the node has is not waited for"


def test_the_same_said_again_changes_nothing():
    world = World(racked(1, 1, 4))
    world.turn(ForeignUse("n0", gpus=2))
    version = list(world.state.capacity.versions)
    world.turn(ForeignUse("n0", gpus=2))
    assert world.state.capacity.versions == version


def test_another_cluster_keeps_it_on_the_nodes_that_stay():
    world = World(racked(1, 2, 4))
    world.turn(ForeignUse("n0", gpus=3), ForeignUse("n1", gpus=3))
    world.turn(ClusterChanged(racked(1, 1, 4)))
    assert free(world) == 0b0001
    assert list(world.state.foreign) == ["n0"]


@pytest.mark.parametrize(
    ("event", "message"),
    [
        (ForeignUse("n9"), "there is no node 'n9'"),
        (ForeignUse("n0", devices=(4,)), "node n0 has devices 0 to 3, not 4"),
        (ForeignUse("n0", devices=(1, 1)), "a device is named twice"),
        (ForeignUse("n0", gpus=-1), "at least 0, got -1"),
    ],
)
def test_what_no_node_can_mean_is_refused(event: ForeignUse, message: str):
    world = World(racked(1, 1, 4))
    with pytest.raises(ValueError, match=message):
        world.turn(event)


def test_the_journal_tells_it():
    world = World(racked(1, 1, 4))
    world.run(a_job("ours", 4))
    world.turn(ForeignUse("n0", devices=(1,), gpus=1, cpus_milli=1))
    world.end("ours")
    told = replay(Journal.read(list(world.journal.lines())))
    assert told.fingerprint() == world.state.fingerprint()
