"""Virtual clusters on the engine: cells say where, who gives way and who may come in; the policy says who is first."""

from __future__ import annotations

from typing import Any

import pytest

from builders import World, a_job, everything, starts, stops
from phalanx.cluster.cluster import Cluster, Health
from phalanx.cluster.formats.native import read_cluster
from phalanx.engine.decide.cycle import decide
from phalanx.engine.fold import snapshot
from phalanx.engine.state.records import JobState
from phalanx.engine.turn import replay, verify
from phalanx.engine.why.why import why
from phalanx.protocol.event import ClusterChanged, JobCancelled, JobHeld, NodeHealthChanged
from phalanx.protocol.reason import Reason
from phalanx.words.reason import because
from phalanx.workload.job import Job, Kind
from phalanx.workload.share import fraction_ask

LAZY = (("hived/lazy-preemption", "true"),)

NODES = "nodes: [{name: n, count: COUNT, gpus: 4, gpu_type: H100, cpus: 8}]\n"


def site(clusters: str, nodes: int = 2) -> Cluster:
    return read_cluster(NODES.replace("COUNT", str(nodes)) + f"virtual_clusters: {clusters}", "cluster.yaml")


def two_tenants() -> Cluster:
    """A node for each of two tenants."""
    return site("{a: {cells: [{level: node}]}, b: {cells: [{level: node}]}}")


def job(name: str, queue: str, gpus: int = 4, priority: int = 0, **more: Any) -> Job:
    return a_job(name, gpus, queue=queue, priority=priority, **more)


def settled(world: World) -> World:
    """The guarantee holds, the journal tells it all, and a State that was written and read back decides the same."""
    assert world.state.cells is not None
    world.state.cells.check(world.state.attempts())
    for told in (replay(world.journal), verify(world.journal), snapshot.load(snapshot.dump(world.state))):
        assert everything(told) == everything(world.state)
        assert decide(told, world.now) == decide(world.state, world.now)
    return world


def guaranteed(world: World, name: str) -> bool:
    attempt = world.job(name).attempt
    assert attempt is not None
    assert world.state.cells is not None
    return world.state.cells.cells.group(attempt.key).is_guaranteed


def test_a_tenant_has_its_cells_whatever_another_asks_for() -> None:
    world = World(two_tenants())
    plan = world.submit(*(job(f"a{i}", "a") for i in range(3)), job("b0", "b"))
    assert starts(plan) == ["a0", "b0"]
    assert world.reason("a1") is Reason.GPUS
    settled(world)


def test_under_strict_fifo_each_tenant_has_its_own_head() -> None:
    world = World(two_tenants())
    world.run(job("runs", "a", 2))
    plan = world.submit(job("large", "a", 4), job("small", "a", 1), job("other", "b", 1))
    assert starts(plan) == ["other"]
    assert (world.reason("large"), world.reason("small")) == (Reason.GPUS, Reason.BEHIND)
    assert why(world.state, "small").behind is None
    settled(world)


def test_higher_priority_preempts_in_its_cluster_and_nowhere_else() -> None:
    world = World(two_tenants())
    world.run(job("low", "a", priority=1), job("other", "b", priority=0))
    plan = world.submit(job("high", "a", priority=5))
    assert stops(plan) == ["low"]
    assert plan.claims[0].victims == ("low/1",)
    assert plan.claims[0].waits
    assert world.reason("high") is Reason.MAKING_ROOM
    assert starts(world.done("low")) == ["high"]
    assert world.status("other") is JobState.RUNNING
    world.done("high")
    assert world.where("high") != world.where("other")
    settled(world)


def test_opportunistic_work_runs_on_what_others_leave_idle_and_yields_to_its_owner() -> None:
    world = World(two_tenants())
    assert starts(world.submit(job("guest", "a", 8 // 2, -1), job("own", "a"))) == ["own", "guest"]
    world.done("own", "guest")
    assert stops(world.submit(job("owner", "b"))) == ["guest"]
    assert starts(world.done("guest")) == ["owner"]
    assert world.reason("guest") is Reason.GPUS
    settled(world)


def test_who_yields_lazily_loses_its_guarantee_first_and_its_place_only_if_that_is_needed() -> None:
    world = World(site("{a: {cells: [{level: node}]}, b: {cells: [{level: node}]}}", nodes=3))
    world.run(job("lazy", "a", priority=1, labels=LAZY))
    plan = world.submit(job("high", "a", priority=5))
    assert starts(plan) == ["high"]
    assert not stops(plan)
    assert plan.cells[0].downgraded == ("lazy/1",)  # type: ignore[union-attr]
    assert not guaranteed(world, "lazy")
    world.done("high")
    world.run(job("b0", "b"))
    assert world.status("lazy") is JobState.RUNNING
    settled(world)


def test_without_other_hardware_who_yields_lazily_is_stopped() -> None:
    world = World(site("{a: {cells: [{level: node}]}}", nodes=1))
    world.run(job("lazy", "a", priority=1, labels=LAZY))
    assert stops(world.submit(job("high", "a", priority=5))) == ["lazy"]


@pytest.mark.parametrize("more", [{"preemptible": False}, {"kind": Kind.SERVICE}])
def test_who_may_not_be_stopped_is_not_by_its_own_cluster(more: dict[str, Any]) -> None:
    world = World(two_tenants())
    world.run(job("kept", "a", priority=0, **more))
    assert not world.submit(job("high", "a", priority=5)).actions
    assert world.reason("high") is Reason.GPUS
    settled(world)


def test_but_without_a_guarantee_everybody_yields() -> None:
    world = World(two_tenants())
    world.run(job("guest", "a", priority=-1, preemptible=False), job("guest2", "a", priority=-1))
    assert len(stops(world.submit(job("owner", "b")))) == 1
    settled(world)


def test_if_the_preemptor_is_cancelled_its_cells_go_back_and_the_next_may_have_them() -> None:
    world = World(two_tenants())
    world.run(job("low", "a", priority=1))
    world.submit(job("high", "a", priority=5))
    world.turn(JobCancelled("high"))
    assert world.status("high") is JobState.CANCELLED
    settled(world)
    assert starts(world.done("low")) == ["low"]
    settled(world)


def test_a_still_higher_priority_takes_over_the_claim_of_a_preemptor() -> None:
    world = World(two_tenants())
    world.run(job("low", "a", priority=1))
    world.submit(job("high", "a", priority=5))
    plan = world.submit(job("highest", "a", priority=9))
    assert plan.withdrawn == ("high/1",)
    assert not stops(plan)
    assert starts(world.done("low")) == ["highest"]
    assert world.reason("high") is Reason.GPUS
    settled(world)


def test_priorities_go_before_the_order_of_the_policy() -> None:
    world = World(two_tenants(), "fifo")
    assert starts(world.submit(job("first", "a", priority=1), job("second", "a", priority=2))) == ["second"]
    settled(world)


def test_inside_a_priority_the_policy_gives_the_order() -> None:
    world = World(site("{a: {cells: [{level: gpu}]}, b: {cells: [{level: gpu}]}}"), "srtf")
    world.run(job("runs", "a", 1))
    world.submit(job("long", "a", 1, duration_ms=9_000), job("short", "a", 1, duration_ms=100))
    assert starts(world.end("runs")) == ["short"]


def test_under_backfill_nobody_who_passes_delays_the_head_of_his_cluster() -> None:
    world = World(two_tenants(), "backfill")
    world.run(job("runs", "a", 2, duration_ms=1_000))
    plan = world.submit(
        job("large", "a", 4, duration_ms=5_000),
        job("long", "a", 2, duration_ms=9_000),
        job("short", "a", 2, duration_ms=900),
        job("other", "b", 2, duration_ms=9_000),
    )
    assert sorted(starts(plan)) == ["other", "short"]
    assert world.reason("long") is Reason.RESERVED
    settled(world)
    world.done("short", "other")
    world.end("short", after_ms=900)
    assert starts(world.end("runs", after_ms=100)) == ["large"]
    settled(world)


def test_under_backfill_nobody_passes_a_head_that_waits_for_a_job_past_its_time() -> None:
    world = World(two_tenants(), "backfill")
    world.run(job("late", "a", 2, duration_ms=1_000))
    world.submit(job("large", "a", 4, duration_ms=5_000))
    assert not starts(world.submit(job("short", "a", 2, duration_ms=900), after_ms=1_500))
    assert world.reason("short") is Reason.RESERVED
    assert starts(world.end("late", after_ms=100)) == ["large"]
    settled(world)


def test_a_broken_node_is_avoided_and_its_owner_gets_another() -> None:
    world = World(site("{a: {cells: [{level: node}]}}", nodes=2))
    world.turn(NodeHealthChanged("n0", Health.DRAINING))
    world.run(job("a0", "a"))
    assert list(world.where("a0")) == ["n1"]
    world.health("n1", Health.DRAINING)
    assert world.status("a0") is JobState.RUNNING
    world.end("a0")
    world.submit(job("a1", "a"))
    assert world.reason("a1") is Reason.UNHEALTHY
    assert starts(world.health("n0", Health.HEALTHY)) == ["a1"]
    settled(world)


def test_who_runs_on_a_node_that_fails_starts_again_in_another_cell() -> None:
    world = World(two_tenants())
    world.run(job("a0", "a"))
    (node,) = world.where("a0")
    assert stops(world.health(node, Health.FAILED)) == ["a0"]
    assert starts(world.done("a0")) == ["a0"]
    assert list(world.where("a0")) != [node]
    settled(world)


def test_a_held_job_takes_no_cells() -> None:
    world = World(two_tenants())
    world.run(job("runs", "a"))
    world.submit(job("waits", "a"))
    world.turn(JobHeld("waits"))
    assert not world.end("runs").claims
    settled(world)


def test_another_configuration_keeps_what_runs_and_takes_the_guarantee_where_it_no_longer_fits() -> None:
    world = World(two_tenants())
    world.run(job("a0", "a"), job("b0", "b"))
    plan = world.turn(ClusterChanged(site("{a: {cells: [{level: node, count: 2}]}, b: {}}")))
    assert not plan.actions
    assert (guaranteed(world, "a0"), guaranteed(world, "b0")) == (True, False)
    settled(world)
    assert stops(world.submit(job("a1", "a"))) == ["b0"]
    settled(world)


def test_running_work_of_a_cluster_without_cells_runs_on_without_guarantee() -> None:
    world = World(read_cluster(NODES.replace("COUNT", "2"), "cluster.yaml"))
    world.run(job("before", "a"))
    world.turn(ClusterChanged(two_tenants()))
    assert not guaranteed(world, "before")
    world.submit(job("a0", "a"), job("b0", "b"))
    assert stops(world.turn()) == []
    assert [each for each in world.asked.values() if each.id.job == "before"], "it made way for one of the owners"
    settled(world)


def test_a_claim_is_given_back_when_the_cells_change() -> None:
    world = World(two_tenants())
    world.run(job("low", "a", priority=1))
    world.submit(job("high", "a", priority=5))
    plan = world.turn(ClusterChanged(site("{a: {cells: [{level: node, count: 2}]}}")))
    assert starts(plan) == ["high"]
    settled(world)


def test_cpus_and_labels_count_too() -> None:
    world = World(site("{a: {cells: [{level: node, count: 2}]}}"))
    world.run(job("hungry", "a", 1, task={"cpus_milli": 8_000}))
    world.run(job("other", "a", 1, task={"cpus_milli": 4_000}))
    assert world.where("hungry").keys() != world.where("other").keys()
    world.submit(job("third", "a", 1, task={"cpus_milli": 6_000}))
    assert world.reason("third") is Reason.AMOUNT
    settled(world)


def test_tasks_without_gpus_go_where_there_is_room() -> None:
    world = World(two_tenants())
    world.run(a_job("driver", 0, task={"cpus_milli": 1_000}, queue="a"))
    assert world.status("driver") is JobState.RUNNING
    settled(world)


def test_elastic_gangs_grow_in_their_cells_and_shrink_for_a_higher_priority() -> None:
    world = World(site("{a: {cells: [{level: node}]}, b: {cells: [{level: node}]}}"))
    world.run(job("elastic", "a", 1, count=(1, 4)))
    world.done("elastic")
    assert sum(map(len, world.where("elastic").values())) == 4
    settled(world)
    plan = world.submit(job("high", "a", 2, 5))
    assert not stops(plan)
    assert plan.claims[0].waits
    assert starts(world.done("elastic")) == ["high"]
    settled(world)


def test_growth_that_fails_is_given_back_to_the_cells() -> None:
    world = World(two_tenants())
    world.run(job("elastic", "a", 1, count=(1, 4)))
    world.failed("elastic")
    assert world.state.cells is not None
    assert len(world.state.cells.cells.group("elastic/1").seats) == 1
    settled(world)


def test_parts_of_a_device_are_shared_inside_a_cluster_only() -> None:
    world = World(site("{a: {cells: [{level: gpu}]}, b: {cells: [{level: gpu}]}}"))
    half = {"share": fraction_ask(500)}
    world.run(job("a0", "a", 1, task=half), job("a1", "a", 1, task=half), job("b0", "b", 1, task=half))
    assert world.where("a0") == world.where("a1") != world.where("b0")
    world.submit(job("a2", "a", 1, task=half))
    assert world.reason("a2") is Reason.GPUS
    settled(world)
    assert starts(world.end("a0")) == ["a2"]
    world.done("a2")
    assert sorted(stops(world.submit(job("high", "a", 1, 5)))) == ["a1", "a2"]
    world.done("a1")
    assert starts(world.done("a2")) == ["high"]
    settled(world)


def test_a_tenant_borrows_no_more_than_it_may() -> None:
    world = World(site("{a: {borrow_limit: 3}, b: {cells: [{level: node, count: 2}]}}"))
    world.run(job("a0", "a", 2, -1))
    world.submit(job("a1", "a", 2, -1))
    assert world.reason("a1") is Reason.QUOTA
    settled(world)


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (job("x", "c"), "there is no virtual cluster 'c' \\(there are: a, b\\)"),
        (job("x", "a", 1, count=5), "5 × 1 = 5 leaves never fit; there are 4 in H100-node of virtual cluster 'a'"),
        (job("x", "a", 8), "a pod of 8 leaves never fits one node; the largest cell in a node has 4"),
        (job("x", "a", 1, labels=(("hived/pinned-cell", "p"),)), "has no pinned cell 'p' \\(it has: none\\)"),
        (job("x", "a", 1, task={"gpu_types": ("A100",)}), "no leaf in the whole cluster is of type 'A100'"),
    ],
)
def test_what_can_never_run_is_refused_with_the_arithmetic(wrong: Job, reason: str) -> None:
    world = World(two_tenants())
    before = everything(world.state)
    with pytest.raises(ValueError, match=reason):
        world.submit(wrong)
    assert everything(world.state) == before


def test_virtual_clusters_that_own_more_than_there_is_are_refused_with_the_arithmetic() -> None:
    with pytest.raises(ValueError, match=r"H100-node: 2 there, 3 owned \(2 of 'a' \+ 1 of 'b'\), -1 left"):
        World(site("{a: {cells: [{level: node, count: 2}]}, b: {cells: [{level: node}]}}"))


def test_a_pinned_cell_is_its_owners_alone() -> None:
    world = World(site("{a: {pinned: [n0]}, b: {cells: [{level: node}]}}"))
    world.run(job("b0", "b"))
    assert list(world.where("b0")) == ["n1"]
    world.run(job("a0", "a", labels=(("hived/pinned-cell", "n0"),)))
    assert list(world.where("a0")) == ["n0"]
    settled(world)


def test_a_hived_configuration_is_a_cluster_file() -> None:
    cluster = read_cluster(
        """
physicalCluster:
  cellTypes: {NODE: {childCellType: V100, childCellNumber: 2, isNodeLevel: true}}
  physicalCells: [{cellType: NODE, cellAddress: x}, {cellType: NODE, cellAddress: y}]
virtualClusters: {a: {virtualCells: [{cellType: NODE, cellNumber: 1}]}}
""",
        "hived.yaml",
    )
    world = World(cluster)
    assert starts(world.submit(job("a0", "a", 2), job("a1", "a", 2), job("oppo", "a", 2, -1))) == ["a0", "oppo"]
    settled(world)


def test_asking_why_changes_nothing() -> None:
    world = World(two_tenants())
    world.run(job("low", "a", priority=1), job("other", "b"))
    world.submit(job("same", "a", priority=1))
    before = everything(world.state)
    told = why(world.state, "same")
    assert told.reason is Reason.GPUS
    assert because(told) == "it needs 4 GPUs; virtual cluster a owns 4, of which 0 are free"
    assert [other.job for change in told.changes for other in change.ends] == ["low"]
    assert told.virtual_cluster is not None
    assert (told.virtual_cluster.gpus_free, told.virtual_cluster.fits) == (0, ((1, 0), (4, 0)))
    assert everything(world.state) == before
    settled(world)
