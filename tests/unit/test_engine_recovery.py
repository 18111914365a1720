"""A gang that loses nodes goes on where it was, with its ranks, and with spares in place of what it lost."""

from __future__ import annotations

import random
import re
from dataclasses import replace

import pytest

from builders import World, a_job, of_roles, racked, sockets, starts, within, workers
from phalanx.cluster.cluster import Cluster, Health
from phalanx.cluster.formats.native import read_cluster
from phalanx.cluster.maintenance import Maintenance
from phalanx.cluster.recovery import Recovery
from phalanx.engine.state.records import JobState
from phalanx.engine.turn import replay, verify
from phalanx.engine.why.why import why
from phalanx.errors import PhalanxError
from phalanx.protocol.event import (
    ClusterChanged,
    DeviceHealthChanged,
    Done,
    JobHeld,
    JobReleased,
    JobRequeued,
    JobSubmitted,
    NodeHealthChanged,
    Outcome,
)
from phalanx.protocol.reason import Reason
from phalanx.words.reason import because
from phalanx.workload.gang import Role
from phalanx.workload.parallel import ParallelPlan


def site(racks: int = 2, nodes: int = 4, spares: int = 0, per: str = "rack", gpus: int = 4) -> Cluster:
    return replace(racked(racks, nodes, gpus), recovery=Recovery(spares, per))


def ranks(world: World, job: str) -> list[str]:
    """The node of each task, by rank."""
    attempt = world.job(job).attempt
    assert attempt is not None
    return [slot.node for slot in sorted(attempt.placement.slots, key=lambda slot: slot.rank)]


def spares(world: World) -> list[str]:
    return [
        node.name
        for node, health in zip(world.state.topology.nodes, world.state.capacity.health, strict=True)
        if health is Health.SPARE
    ]


def lose(world: World, job: str, *nodes: str) -> None:
    """Nodes fail at once; the attempt there is stopped."""
    world.turn(*(NodeHealthChanged(node, Health.FAILED) for node in nodes))
    world.done(job)


def test_what_is_left_of_a_gang_keeps_its_nodes_and_ranks_and_the_lost_one_is_replaced() -> None:
    world = World(site(1, 6))
    world.run(a_job("gang", 4, 4))
    was = ranks(world, "gang")
    lose(world, "gang", was[1])
    now = ranks(world, "gang")
    assert [now[i] == was[i] for i in range(4)] == [True, False, True, True]
    assert world.job("gang").attempts == 2


def test_several_nodes_are_replaced_at_once_each_in_its_place() -> None:
    world = World(site(1, 8))
    world.run(a_job("gang", 2, 8))
    was = ranks(world, "gang")
    lost = {was[0], was[4]}
    lose(world, "gang", *lost)
    now = ranks(world, "gang")
    assert all((old in lost) == (old != new) for old, new in zip(was, now, strict=True))
    assert len({new for old, new in zip(was, now, strict=True) if old == was[0]}) == 1, "tasks of a node stay together"
    assert verify(world.journal).fingerprint() == world.state.fingerprint()


def test_a_gang_on_nodes_of_many_gpus_keeps_its_devices() -> None:
    world = World(site(1, 3, gpus=130))
    world.run(a_job("gang", 130, 2))
    attempt = world.job("gang").attempt
    assert attempt is not None
    was = {slot.rank: (slot.node, slot.devices) for slot in attempt.placement.slots}
    lose(world, "gang", was[1][0])
    attempt = world.job("gang").attempt
    assert attempt is not None
    assert {slot.rank: (slot.node, slot.devices) for slot in attempt.placement.slots}[0] == was[0]


def test_a_gang_that_lost_nodes_takes_nothing_but_spares_before_a_job_of_higher_priority() -> None:
    world = World(site(2, 4, spares=1), "priority")
    world.run(a_job("high", 4, 3, priority=5), a_job("low", 4, 3))
    lose(world, "low", *ranks(world, "low"))
    assert world.reason("low") is not None
    world.submit(a_job("urgent", 4, 1, priority=50))
    world.done("high")
    assert world.job("urgent").attempt is not None
    assert world.reason("high") is not None
    assert world.reason("low") is not None, "what the other gang has left is not for one behind it"
    assert len(spares(world)) == 2
    world.end("urgent")
    assert world.job("high").attempt is not None


def test_a_gang_that_needs_the_nodes_kept_as_spares_is_told_so() -> None:
    world = World(site(2, 4, spares=1))
    world.submit(a_job("wide", 4, 7))
    told = because(why(world.state, "wide"))
    assert told.startswith("too many of the nodes it could use are kept as spares by the cluster's `recovery`")
    world.turn(NodeHealthChanged(world.state.topology.nodes[0].name, Health.FAILED))
    assert "are not healthy, or are kept as spares" in because(why(world.state, "wide"))


def test_without_a_word_of_recovery_a_gang_is_placed_anew_and_journals_are_as_before() -> None:
    told, untold = World(racked(1, 6, 4)), World(site(1, 6))
    for world in (told, untold):
        world.run(a_job("gang", 4, 4))
        lose(world, "gang", ranks(world, "gang")[1])
    assert b"former" not in b"".join(told.journal.lines())
    assert not told.state.replacing
    assert untold.state.replacing


def test_another_job_gets_nothing_of_what_a_gang_comes_back_to() -> None:
    world = World(site(1, 5))
    world.run(a_job("gang", 4, 4))
    was = ranks(world, "gang")
    world.submit(a_job("eager", 4, 2))
    world.turn(NodeHealthChanged(was[0], Health.FAILED))
    assert world.reason("eager") is not Reason.MAKING_ROOM, "what terminates is not promised to it"
    plan = world.done("gang")
    assert starts(plan) == ["gang"]
    assert ranks(world, "gang")[1:] == was[1:]


def test_the_replacement_is_near_the_lost_node() -> None:
    world = World(site(3, 3))
    world.run(a_job("gang", 4, 4))
    was = ranks(world, "gang")
    rack = {"n0": 0, "n1": 0, "n2": 0, "n3": 1, "n4": 1, "n5": 1, "n6": 2, "n7": 2, "n8": 2}
    lose(world, "gang", was[3])
    assert rack[ranks(world, "gang")[3]] == rack[was[3]]


def test_a_gang_that_must_stay_in_its_rack_is_not_replaced_from_another() -> None:
    world = World(site(2, 3))
    world.run(a_job("gang", 4, 3, required="rack"))
    was = ranks(world, "gang")
    lose(world, "gang", was[0])
    assert ranks(world, "gang") == ["n3", "n4", "n5"], "whole, in the other rack"


def test_parallel_ranks_stay_where_they_were_too() -> None:
    world = World(site(1, 6))
    world.run(a_job("gang", 4, 4, parallel=ParallelPlan(tp=4, pp=2, dp=2)))
    before = world.job("gang").attempt
    assert before is not None
    lost = before.placement.slots[2].node
    lose(world, "gang", lost)
    after = world.job("gang").attempt
    assert after is not None
    assert len(after.placement.mesh) == 16
    pairs = list(zip(before.placement.mesh, after.placement.mesh, strict=True))
    assert all((old[0] == lost) == (old != new) for old, new in pairs)


def test_ranks_are_kept_as_far_as_nodes_are_where_the_place_has_to_be_found_anew() -> None:
    role = Role("replica", 4, 4, topology=within("socket"), members=(workers(1, 2),))
    world = World(replace(sockets(3, 4), recovery=Recovery()))
    world.run(of_roles("gang", role))
    was = ranks(world, "gang")
    lose(world, "gang", was[0])
    assert ranks(world, "gang")[2:] == was[2:]
    assert was[0] not in ranks(world, "gang")


def test_a_device_that_fails_is_replaced_and_the_other_tasks_stay() -> None:
    world = World(site(1, 3))
    world.run(a_job("gang", 2, 4))
    before = world.job("gang").attempt
    assert before is not None
    slot = before.placement.slots[1]
    world.turn(DeviceHealthChanged(slot.node, slot.devices[0], Health.FAILED))
    world.done("gang")
    after = world.job("gang").attempt
    assert after is not None
    same = [old == new for old, new in zip(before.placement.slots, after.placement.slots, strict=True)]
    assert same.count(True) == 3
    assert not same[1]


def test_an_attempt_that_is_lost_starts_again_where_it_was() -> None:
    world = World(site(1, 6))
    world.run(a_job("gang", 4, 4))
    was = ranks(world, "gang")
    world.turn(NodeHealthChanged(was[2], Health.SUSPECT))
    world.end("gang", Outcome.LOST)
    now = ranks(world, "gang")
    assert [old == new for old, new in zip(was, now, strict=True)] == [True, True, False, True]


def test_one_that_fails_goes_on_without_the_node_that_is_suspected() -> None:
    world = World(site(1, 6, spares=1))
    world.run(a_job("gang", 4, 4, retry_limit=3))
    was = ranks(world, "gang")
    world.end("gang", Outcome.FAILED)
    world.health(was[1], Health.SUSPECT)
    world.turn(after_ms=3_600_000)
    now = ranks(world, "gang")
    assert [old == new for old, new in zip(was, now, strict=True)] == [True, False, True, True]
    assert spares(world), "an ordinary node was free"


def test_nodes_that_are_drained_and_emptied_are_replaced_likewise() -> None:
    world = World(site(1, 7))
    world.run(a_job("gang", 4, 4))
    was = ranks(world, "gang")
    drained = [NodeHealthChanged(node, Health.DRAINING) for node in (was[0], was[2])]
    world.turn(*drained, JobRequeued("gang"))
    world.done("gang")
    assert [old == new for old, new in zip(was, ranks(world, "gang"), strict=True)] == [False, True, False, True]


def test_a_preempted_one_is_placed_like_any_other() -> None:
    world = World(site(1, 4), "priority")
    world.run(a_job("gang", 4, 4))
    world.submit(a_job("urgent", 4, 4, priority=9))
    world.done("gang")
    assert world.job("gang").preemptions == 1
    assert world.job("gang").former is None
    assert not world.state.replacing


def test_spares_are_the_last_idle_nodes_of_every_rack_and_take_no_other_work() -> None:
    world = World(site(2, 4, spares=1))
    world.submit(a_job("large", 4, 7), a_job("small", 4, 6))
    assert spares(world) == ["n3", "n7"]
    assert not world.where("large")
    assert world.reason("large") is Reason.UNHEALTHY


def test_a_spare_takes_the_place_of_a_lost_node_and_the_repaired_one_is_the_next_spare() -> None:
    world = World(site(2, 4, spares=1))
    world.run(a_job("gang", 4, 6))
    was = ranks(world, "gang")
    lose(world, "gang", "n1", "n5")
    now = ranks(world, "gang")
    instead = {"n1": "n3", "n5": "n7"}
    assert now == [instead.get(node, node) for node in was]
    assert not spares(world)
    world.done("gang")
    world.health("n1", Health.HEALTHY)
    assert spares(world) == ["n1"]
    assert verify(world.journal).fingerprint() == world.state.fingerprint()


def test_a_gang_is_pending_for_a_spare_until_there_is_one_again() -> None:
    world = World(site(1, 4, spares=1))
    world.run(a_job("gang", 4, 3))
    lose(world, "gang", "n0", "n3")
    assert world.status("gang") is JobState.WAITING
    world.submit(a_job("other", 4))
    world.health("n3", Health.HEALTHY)
    assert sorted(ranks(world, "gang")) == ["n1", "n2", "n3"]
    assert not world.where("other")


def test_spares_of_another_rack_are_the_last_choice() -> None:
    world = World(site(2, 4, spares=1))
    world.run(a_job("gang", 4, 3, preferred="rack"))
    lose(world, "gang", "n0", "n3")
    assert "n4" in ranks(world, "gang"), "an ordinary node of the other rack goes before its spare"


def test_a_spare_that_is_drained_or_fails_is_none_any_more() -> None:
    world = World(site(1, 4, spares=1))
    world.health("n3", Health.DRAINING)
    assert spares(world) == ["n2"]
    world.health("n3", Health.HEALTHY)
    assert spares(world) == ["n2"]
    world.submit(a_job("job", 4, 3))
    assert set(ranks(world, "job")) == {"n0", "n1", "n3"}


def test_an_ordinary_node_goes_before_a_spare_as_near() -> None:
    world = World(site(1, 4, spares=1))
    world.health("n3", Health.DRAINING)
    world.health("n3", Health.HEALTHY)
    assert spares(world) == ["n2"]
    world.run(a_job("gang", 4, 2))
    assert ranks(world, "gang") == ["n0", "n1"]
    lose(world, "gang", "n0")
    assert ranks(world, "gang") == ["n3", "n1"]
    assert spares(world) == ["n2"]


def test_fewer_spares_than_before_take_work_again_at_once() -> None:
    world = World(site(2, 4, spares=1))
    world.submit(a_job("large", 4, 8))
    world.turn(ClusterChanged(site(2, 4, spares=0)))
    assert not spares(world)
    assert world.where("large")
    other = World(site(2, 4, spares=1))
    other.turn(ClusterChanged(racked(2, 4, 4)))
    assert not spares(other), "also where nothing is said of recovery any more"
    other.turn(ClusterChanged(site(2, 4, spares=2)))
    assert spares(other) == ["n2", "n3", "n6", "n7"]


def test_a_spare_in_maintenance_is_replaced_and_is_an_ordinary_node_afterwards() -> None:
    window = Maintenance("fans", ("n3",), 10_000, 20_000)
    world = World(replace(site(1, 4, spares=1), maintenance=(window,)))
    assert spares(world) == ["n3"]
    world.turn(after_ms=12_000)
    assert spares(world) == ["n2"]
    world.turn(after_ms=12_000)
    assert spares(world) == ["n2"]
    world.submit(a_job("job", 4, 3))
    assert set(ranks(world, "job")) == {"n0", "n1", "n3"}


def test_a_job_that_goes_on_where_it_was_is_not_started_again_behind_another_of_its_kind() -> None:
    world = World(site(1, 9), "phalanx")
    world.turn(JobSubmitted(a_job("early", 4, 4)), JobHeld("early"))
    world.run(a_job("gang", 4, 4))
    was = ranks(world, "gang")
    world.turn(NodeHealthChanged(was[0], Health.FAILED))
    (stop,) = world.asks("gang")
    plan = world.turn(JobReleased("early"), Done(stop.id))
    assert sorted(starts(plan)) == ["early", "gang"]
    assert ranks(world, "gang")[1:] == was[1:]


def test_no_event_can_say_that_a_node_is_a_spare() -> None:
    world = World(site())
    with pytest.raises(ValueError, match="follows from the cluster's `recovery`"):
        world.health("n0", Health.SPARE)


def test_others_of_its_class_stay_pending_and_are_told_why() -> None:
    world = World(site(1, 5), "phalanx")
    world.run(a_job("first", 4, 4))
    world.submit(a_job("second", 4, 4), a_job("third", 4, 4))
    lose(world, "first", "n0")
    assert world.where("first")
    assert not world.where("second")
    assert world.reason("second") in (Reason.GPUS, Reason.UNHEALTHY)
    assert verify(world.journal).fingerprint() == world.state.fingerprint()


@pytest.mark.parametrize("policy", ["fifo", "phalanx", "backfill", "priority", "srtf"])
@pytest.mark.parametrize("seed", range(6))
def test_replays_are_equal_and_nothing_is_given_twice_through_random_failures(policy: str, seed: int) -> None:
    chance, world = random.Random(seed), World(site(3, 4, spares=1), policy)
    names = [f"n{i}" for i in range(12)]
    for step in range(120):
        jobs = [job for job, record in world.state.jobs.items() if record.attempt is not None]
        match chance.randrange(8):
            case 0:
                size = chance.choice([1, 2, 3, 5, 8])
                shape = {"priority": chance.randrange(3), "duration_ms": 60_000}
                world.submit(a_job(f"j{step}", chance.choice([1, 2, 4]), size, **shape), after_ms=1000)
            case 1:
                world.turn(*(NodeHealthChanged(n, Health.FAILED) for n in chance.sample(names, 2)), after_ms=1000)
            case 2:
                node = chance.choice(names)
                world.turn(NodeHealthChanged(node, Health.HEALTHY), after_ms=1000)
            case 3 if jobs:
                job = chance.choice(jobs)
                if world.status(job) is JobState.RUNNING:
                    world.end(job, chance.choice([Outcome.SUCCEEDED, Outcome.LOST]), after_ms=1000)
            case 4:
                health = chance.choice([Health.DRAINING, Health.SUSPECT, Health.FAILED, Health.HEALTHY, Health.HEALTHY])
                gpus = chance.sample(range(4), 2)
                node = chance.choice(names)
                world.turn(*(DeviceHealthChanged(node, gpu, health) for gpu in gpus), after_ms=1000)
            case _:
                asked = [job for job in jobs if world.asks(job)]
                if asked:
                    world.done(chance.choice(asked), after_ms=1000)
        world.state.capacity.check()
        for node in spares(world):
            assert not world.state.on_node.get(world.state.topology.number[node])
    assert verify(world.journal).fingerprint() == world.state.fingerprint()
    assert replay(world.journal).fingerprint() == world.state.fingerprint()


FILE = "nodes: [{count: 6, gpus: 8, rack: {nodes: 3}}]\nrecovery: {%s}\n"


def test_a_cluster_file_says_how_many_spares_there_are() -> None:
    assert read_cluster(FILE % "spares: 1, per: rack", "c").recovery == Recovery(1, "rack")
    assert read_cluster(FILE % "", "c").recovery == Recovery()
    assert read_cluster(FILE.partition("recovery")[0], "c").recovery is None


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("spares: 3, per: rack", "at most 2: the smallest rack has 3 nodes with GPUs, and one is to take work"),
        ("spares: 6", "at most 5: the cluster has 6 nodes with GPUs"),
        ("spares: -1", "recovery.spares"),
        ("spares: many", "recovery.spares"),
        ("per: pod", "a level with nodes inside (cluster, rack)"),
        ("spare: 1", "unknown key"),
    ],
)
def test_spares_that_cannot_be_are_refused_with_their_place(said: str, told: str) -> None:
    with pytest.raises(PhalanxError, match=re.escape(told)) as refused:
        read_cluster(FILE % said, "c.yaml")
    assert "c.yaml:2" in str(refused.value)
