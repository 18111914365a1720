"""Running jobs that are moved now and then, where a site wants it, so that one that waits has a place."""

from __future__ import annotations

from dataclasses import replace

from builders import World, a_job, everything, starts
from phalanx.cluster.cluster import Cluster, Node, flat
from phalanx.cluster.formats.native import read_cluster
from phalanx.engine.turn import replay, verify
from phalanx.protocol.action import Resize
from phalanx.protocol.event import Progress
from phalanx.protocol.reason import Reason
from phalanx.workload.job import Checkpointing

MINUTE_MS = 60_000


def scattered(cluster: Cluster, policy: str = "fifo", **said: object) -> World:
    """Two nodes of 4 GPUs, each with two in use, and a job that wants a whole one."""
    world = World(cluster, policy)
    world.run(a_job("a", 2, **said), a_job("b", 2), a_job("c", 2, **said), a_job("d", 2))
    world.end("b")
    world.end("d")
    world.submit(a_job("wide", 4))
    assert world.reason("wide") is Reason.FRAGMENTED
    return world


def tidy(nodes: int = 2) -> Cluster:
    return replace(flat(nodes, 4), defragment_ms=10 * MINUTE_MS)


def moved(world: World, after_ms: int) -> list[str]:
    plan = world.turn(after_ms=after_ms)
    return [action.id.job for action in plan.actions if isinstance(action, Resize)]


def test_it_is_off_unless_the_site_wants_it() -> None:
    world = scattered(flat(2, 4))
    assert not moved(world, 60 * MINUTE_MS)


def test_when_its_time_comes_the_cheapest_moves_and_who_waits_has_its_place() -> None:
    world = scattered(tidy())
    world.turn(Progress("a", 1, step=9, durable_step=9), after_ms=9 * MINUTE_MS)
    assert not moved(world, 0)
    plan = world.turn(after_ms=MINUTE_MS)
    assert [action.id.job for action in plan.actions] == ["a"]
    assert [claim.job for claim in plan.claims] == ["wide"]
    assert starts(world.done("a")) == ["wide"]
    world.done("wide")
    assert {slot.node for slot in world.job("a").attempt.placement.slots} == {"n1"}
    assert everything(replay(world.journal)) == everything(world.state)
    assert everything(verify(world.journal)) == everything(world.state)


def test_it_does_not_move_what_loses_more_than_who_waits_gains() -> None:
    """wide gains 4 GPUs for ten minutes; who moves loses 2 for an hour."""
    world = scattered(tidy(), checkpoint=Checkpointing(interval_ms=0, cost_ms=60 * MINUTE_MS))
    assert not moved(world, 10 * MINUTE_MS)


def test_who_does_not_want_to_be_moved_is_not() -> None:
    assert not moved(scattered(tidy(), movable=False), 10 * MINUTE_MS)
    assert not moved(scattered(tidy(), preemptible=False), 10 * MINUTE_MS)


def test_everybody_who_moves_lands_or_nobody_moves() -> None:
    """Three nodes with one free GPU each: there is nowhere for 3 to go."""
    world = World(replace(flat(3, 4), defragment_ms=MINUTE_MS), "fifo")
    world.run(a_job("a", 3), a_job("b", 3), a_job("c", 3))
    world.submit(a_job("wide", 2))
    assert world.reason("wide") is Reason.FRAGMENTED
    assert not moved(world, MINUTE_MS)


def test_where_nobody_may_pass_only_the_head_is_helped() -> None:
    world = scattered(tidy())
    world.submit(a_job("next", 3))
    plan = world.turn(after_ms=10 * MINUTE_MS)
    assert [claim.job for claim in plan.claims] == ["wide"]


def test_it_helps_a_gang_that_wants_one_rack() -> None:
    nodes = tuple(Node(f"n{i}", (f"r{i // 2}",), 2) for i in range(4))
    world = World(Cluster(nodes, ("rack", "node"), defragment_ms=MINUTE_MS), "fifo")
    world.run(a_job("a", 2), a_job("b", 2), a_job("c", 2), a_job("d", 2))
    world.end("b")
    world.end("d")
    world.submit(a_job("gang", 2, 2, required="rack"))
    assert world.reason("gang") is Reason.TOPOLOGY
    assert len(moved(world, MINUTE_MS)) == 1


def test_a_try_in_vain_is_not_made_again_until_something_has_changed() -> None:
    world = scattered(tidy(), movable=False)
    world.turn(after_ms=10 * MINUTE_MS)
    assert world.state.next_wakeup() is None


def test_a_cluster_file_says_how_often() -> None:
    assert read_cluster("nodes: [{gpus: 8}]\ndefragment: 30m", "c.yaml").defragment_ms == 30 * MINUTE_MS
    assert read_cluster("nodes: [{gpus: 8}]\ndefragment: never", "c.yaml").defragment_ms == 0
