"""Nodes that are rather left alone, and storage that nodes share."""

from __future__ import annotations

from dataclasses import replace

import pytest

from builders import World, a_job, starts
from phalanx.cluster.cluster import Cluster, Node, StorageTier, Taint, flat
from phalanx.protocol.reason import Reason
from phalanx.workload.job import Toleration

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
