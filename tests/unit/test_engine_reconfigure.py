"""Another cluster or policy under running work."""

from __future__ import annotations

from dataclasses import replace

import pytest

from builders import World, a_job, everything, racked, starts, stops
from phalanx.cluster.cluster import Cluster, Health, Node, flat
from phalanx.cluster.queues import Queue, Quota
from phalanx.engine.fold.reconfigure import stopped_by
from phalanx.engine.state.records import JobState
from phalanx.engine.turn import replay, verify
from phalanx.protocol.action import Start
from phalanx.protocol.event import ClusterChanged, Done, JobCancelled, PolicyChanged, TermBegun
from phalanx.protocol.reason import Reason
from phalanx.workload.share import mig_ask


def told_again(world: World) -> None:
    """The journal tells the same, and deciding again gives the same."""
    assert everything(replay(world.journal)) == everything(world.state)
    assert everything(verify(world.journal)) == everything(world.state)


def test_new_nodes_take_who_waits_and_running_jobs_stay() -> None:
    world = World(flat(1, 4))
    world.run(a_job("runs", 4))
    world.submit(a_job("waits", 4))
    where = world.where("runs")
    assert starts(world.turn(ClusterChanged(flat(2, 4)))) == ["waits"]
    assert world.where("runs") == where
    assert world.where("waits") == {"n1": (0, 1, 2, 3)}
    told_again(world)


def test_a_node_that_goes_is_left_first_and_then_gone() -> None:
    world = World(flat(2, 4))
    world.run(a_job("first", 4), a_job("second", 4))
    (gone,) = world.where("second")
    smaller = replace(flat(2, 4), nodes=tuple(node for node in flat(2, 4).nodes if node.name != gone))
    assert stopped_by(world.state, smaller) == ("second/1",)
    assert stops(world.turn(ClusterChanged(smaller))) == ["second"]
    assert gone in world.state.topology.number
    world.done("second")
    assert gone not in world.state.topology.number
    assert world.reason("second") is Reason.GPUS
    assert world.status("first") is JobState.RUNNING
    told_again(world)


def test_a_node_on_which_a_device_is_being_cut_for_nobody_any_more_goes_once_that_is_done() -> None:
    cluster = flat(2, 1, "H100", 80.0)
    world = World(cluster)
    world.submit(a_job("a", task={"share": mig_ask("1g.10gb")}))
    (cut,) = world.state.cuts.values()
    world.turn(JobCancelled("a"))
    smaller = replace(cluster, nodes=tuple(node for node in cluster.nodes if node.name != cut.node))
    world.turn(ClusterChanged(smaller))
    assert cut.node in world.state.topology.number
    world.turn(Done(cut.id))
    assert cut.node not in world.state.topology.number
    told_again(world)


def test_an_idle_node_goes_at_once() -> None:
    world = World(flat(2, 4))
    world.run(a_job("first", 4))
    (used,) = world.where("first")
    smaller = replace(flat(2, 4), nodes=tuple(node for node in flat(2, 4).nodes if node.name == used))
    assert not world.turn(ClusterChanged(smaller)).actions
    assert list(world.state.topology.number) == [used]
    told_again(world)


def test_a_node_that_loses_gpus_is_left_before_it_changes() -> None:
    world = World(flat(1, 4))
    world.run(a_job("first", 2))
    assert stops(world.turn(ClusterChanged(flat(1, 2)))) == ["first"]
    assert starts(world.done("first")) == ["first"]
    assert world.state.cluster == flat(1, 2)
    told_again(world)


def with_scratch(size_gb: int) -> Cluster:
    return replace(flat(1, 4), nodes=tuple(replace(node, storage_gb=(("nvme", size_gb),)) for node in flat(1, 4).nodes))


def test_a_node_that_loses_storage_is_left_only_if_a_job_holds_what_it_loses() -> None:
    world = World(with_scratch(100))
    world.run(a_job("first", 1, task={"storage_gb": (("nvme", 60),)}))
    assert not world.turn(ClusterChanged(with_scratch(60))).actions
    assert world.state.cluster == with_scratch(60)
    assert stops(world.turn(ClusterChanged(with_scratch(59)))) == ["first"]
    told_again(world)


def test_claims_and_those_who_leave_are_carried_over() -> None:
    world = World(flat(1, 2), "priority")
    world.run(a_job("low", 2))
    world.submit(a_job("head", 2, priority=5))
    world.turn(ClusterChanged(flat(1, 2)))
    assert world.reason("head") is Reason.MAKING_ROOM
    assert starts(world.done("low")) == ["head"]
    told_again(world)


def test_health_and_cut_devices_are_carried_over() -> None:
    cluster = Cluster(tuple(Node(f"n{i}", (), 2, "A100-80", 80) for i in range(2)))
    world = World(cluster)
    world.submit(a_job("slice", 1, task={"share": mig_ask("1g.10gb")}))
    (cut,) = world.asks("slice")
    world.done("slice")
    assert isinstance(world.asks("slice")[-1], Start), cut
    world.done("slice")
    (node,) = world.where("slice")
    other = "n1" if node == "n0" else "n0"
    world.health(other, Health.DRAINING)
    world.turn(ClusterChanged(replace(cluster, name="renamed")))
    assert world.state.capacity.health[world.state.topology.number[other]] is Health.DRAINING
    assert world.state.capacity.partitioned[world.state.topology.number[node]]
    told_again(world)


def test_queues_can_be_given_and_taken_away_under_running_jobs() -> None:
    world = World(flat(1, 4))
    world.run(a_job("runs", 2, queue="a"))
    limited = replace(flat(1, 4), queues=(Queue("a", limit=Quota(2_000)),))
    world.turn(ClusterChanged(limited))
    world.submit(a_job("waits", 1, queue="a"))
    assert world.reason("waits") is Reason.QUOTA
    assert starts(world.turn(ClusterChanged(flat(1, 4)))) == ["waits"]
    told_again(world)


def test_a_cluster_in_which_work_could_not_go_on_is_refused() -> None:
    world = World(racked(1, 1))
    world.submit(a_job("racked", 1, required="rack"))
    with pytest.raises(ValueError, match="asks for the level 'rack', which the cluster would not have"):
        world.turn(ClusterChanged(flat(1, 8)))
    queues = replace(racked(1, 1), queues=(Queue("other"),))
    with pytest.raises(ValueError, match="in the queue 'default', which there would not be"):
        world.turn(ClusterChanged(queues))


@pytest.mark.parametrize("policy", ["priority", "las", "srtf", "backfill", "drf", "yarn-cs", "tiresias-las", "edf"])
def test_another_policy_decides_from_now_on(policy: str) -> None:
    world = World(flat(1, 4))
    world.run(a_job("runs", 4, duration_ms=60_000))
    world.submit(a_job("first", 4, duration_ms=9_000), a_job("second", 1, priority=9, duration_ms=1_000))
    world.turn(PolicyChanged(policy), after_ms=1_000)
    assert world.state.policy.name == policy
    world.turn(after_ms=10_000)
    world.turn(PolicyChanged("fifo"))
    told_again(world)


def test_a_changed_policy_stops_whom_the_old_one_let_run() -> None:
    world = World(flat(1, 1))
    world.run(a_job("low"))
    world.submit(a_job("high", priority=5))
    assert stops(world.turn(PolicyChanged("priority"))) == ["low"]
    told_again(world)


def test_an_unknown_policy_or_an_old_term_changes_nothing() -> None:
    world = World(flat(1, 1))
    before = everything(world.state)
    for event in (PolicyChanged("fastest"), TermBegun(1)):
        with pytest.raises(ValueError, match=r"fastest|term 1"):
            world.turn(event)
    assert everything(world.state) == before
    world.turn(TermBegun(2))
    assert world.submit(a_job("a")).actions[0].id.term == 2
