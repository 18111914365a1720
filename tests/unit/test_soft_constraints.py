"""Nodes that are rather left alone, and storage that nodes share."""

from __future__ import annotations

from dataclasses import replace

import pytest

from builders import World, a_job, starts
from phalanx.cluster.cluster import Cluster, Node, StorageTier, Taint, flat
from phalanx.protocol.reason import Reason
from phalanx.workload.job import NodePreference
from phalanx.workload.toleration import Toleration

SPARE = Taint("spare", effect="PreferNoSchedule")


def two_nodes() -> World:
    return World(Cluster((Node("n0", (), 4, taints=(SPARE,)), Node("n1", (), 4))), "fifo:skip=true")


def where(world: World, job: str) -> list[str]:
    attempt = world.state.jobs[job].attempt
    return [] if attempt is None else [slot.node for slot in attempt.placement.slots]


def test_a_node_that_is_rather_left_alone_is_taken_last() -> None:
    world = two_nodes()
    for name in ("a", "b"):
        world.run(a_job(name, 2))
    world.run(a_job("c", 2))
    assert [where(world, name) for name in ("a", "b", "c")] == [["n1"], ["n1"], ["n0"]]


def test_a_gang_that_needs_both_has_both() -> None:
    world = two_nodes()
    world.run(a_job("gang", 4, 2))
    assert sorted(where(world, "gang")) == ["n0", "n1"]


def test_who_tolerates_it_goes_there_as_to_any_other() -> None:
    world = two_nodes()
    world.run(a_job("a", 2, tolerations=(Toleration("spare"),)))
    assert where(world, "a") == ["n0"]


def zones(*sizes: int) -> Cluster:
    """A node of so many GPUs in each zone a, b, …"""
    return Cluster(tuple(Node(f"n{i}", (), size, labels=(("zone", "abc"[i]),)) for i, size in enumerate(sizes)))


def likes(**weights: int) -> tuple[NodePreference, ...]:
    return tuple(NodePreference("zone", zone, weight) for zone, weight in weights.items())


def test_a_job_goes_where_it_likes_best_and_else_where_it_likes_next() -> None:
    world = World(zones(4, 4, 4), "fifo:skip=true")
    for name in ("one", "two", "three"):
        world.run(a_job(name, 4, preferences=likes(c=50, b=20)))
    assert [where(world, name) for name in ("one", "two", "three")] == [["n2"], ["n1"], ["n0"]]


def test_a_job_avoids_what_it_dislikes_and_goes_there_all_the_same() -> None:
    world = World(zones(4, 4), "fifo:skip=true")
    for name in ("one", "two"):
        world.run(a_job(name, 4, preferences=likes(a=-1)))
    assert [where(world, name) for name in ("one", "two")] == [["n1"], ["n0"]]


def test_a_gang_goes_to_the_best_nodes_that_hold_all_of_it() -> None:
    """The best zone holds half of it, the best two all."""
    world = World(zones(4, 4, 4), "fifo:skip=true")
    world.run(a_job("gang", 2, 4, preferences=likes(c=50, b=20)))
    assert sorted(where(world, "gang")) == ["n1", "n1", "n2", "n2"]


def test_weights_of_one_node_are_added_up() -> None:
    nodes = (
        Node("n0", (), 4, labels=(("zone", "a"),)),
        Node("n1", (), 4, labels=(("zone", "b"), ("disk", "ssd"))),
    )
    world = World(Cluster(nodes), "fifo:skip=true")
    world.run(a_job("one", 4, preferences=(*likes(a=30, b=20), NodePreference("disk", "ssd", 20))))
    assert where(world, "one") == ["n1"]


def test_an_elastic_job_gives_up_no_size_for_what_it_likes() -> None:
    world = World(zones(4, 4), "fifo:skip=true")
    world.run(a_job("gang", 2, (1, 4), preferences=likes(b=1)))
    assert sorted(where(world, "gang")) == ["n0", "n0", "n1", "n1"]


def test_what_a_job_likes_makes_it_preempt_nothing() -> None:
    world = World(zones(4, 4), "priority")
    world.run(a_job("low", 4, preferences=likes(b=1)))
    world.run(a_job("high", 4, priority=9, preferences=likes(b=1)))
    assert (where(world, "low"), where(world, "high")) == (["n1"], ["n0"])


def test_a_job_likes_nodes_that_others_do_not_shun() -> None:
    """A taint counts before what a job likes, as it does for kube-scheduler unless weights are high."""
    world = two_nodes()
    world.run(a_job("a", 2, preferences=(NodePreference("phalanx/node", "n0", 1),)))
    assert where(world, "a") == ["n1"]


@pytest.mark.parametrize(("capacity_gb", "asked_gb", "fits"), [(1000, 600, True), (1000, 1200, False), (0, 5000, True)])
def test_storage_that_nodes_share_is_there_for_all_of_them(capacity_gb: int, asked_gb: int, fits: bool) -> None:
    tier = StorageTier("lustre", scope="cluster", capacity_gb=capacity_gb)
    world = World(replace(flat(2, 4), storage=(tier,)), "fifo:skip=true")
    jobs = [a_job(name, 1, task={"storage_gb": (("lustre", asked_gb),)}) for name in ("a", "b")]
    assert starts(world.submit(*jobs)) == (["a", "b"] if fits else [])
    if not fits:
        assert world.reason("a") is Reason.NEVER_FITS


def test_storage_of_a_tier_that_there_is_not_is_refused() -> None:
    world = World(flat(2, 4), "fifo:skip=true")
    with pytest.raises(ValueError, match="the tier 'zork'; this cluster has none"):
        world.submit(a_job("a", 1, task={"storage_gb": (("zork", 1),)}))
