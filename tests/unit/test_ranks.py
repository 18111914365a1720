"""Ranks: the order of a gang's tasks follows its parallel plan, and the cost model knows the cluster file's links."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import pytest

from builders import a_job, racked
from phalanx.cluster.capacity import Booking, Capacity
from phalanx.cluster.cluster import CLUSTER, NODE, Cluster, Link, Node, flat
from phalanx.cluster.topology import Topology
from phalanx.placement.cost import step_cost
from phalanx.placement.fit import Fit
from phalanx.placement.gang import GangTrial
from phalanx.placement.pack import Packing
from phalanx.placement.place import placement_of
from phalanx.placement.placement import Placement, Slot
from phalanx.placement.ranks import communication, fabric_of, with_mesh
from phalanx.workload.gang import Gang, Role, Task
from phalanx.workload.job import Job
from phalanx.workload.parallel import ParallelPlan, Traffic

LINKS = {CLUSTER: Link(5.0, 20.0), "rack": Link(50.0, 10.0), NODE: Link(450.0, 2.0)}
MANY_MICRO_BATCHES = Traffic(layers=80, micro_batches=64)


def placed(cluster: Cluster, job: Job, **used: int) -> Placement:
    """Where a job goes on a cluster of which so many GPUs of these nodes are in use."""
    capacity = Capacity(Topology(cluster))
    for name, count in used.items():
        capacity.hold(Booking(capacity.topology.number[name], (1 << count) - 1, ()))
    trial = GangTrial(Fit(capacity), Packing(), job)
    assert trial.seat()
    return placement_of(trial)


def step_ms(cluster: Cluster, job: Job, slots: tuple[Slot, ...]) -> float:
    """What a step costs if ranks go through the devices as the slots stand."""
    assert job.parallel is not None
    topology = Topology(cluster)
    paths = [topology.position(topology.number[slot.node], device) for slot in slots for device in slot.devices]
    return step_cost(job.parallel, job.traffic or Traffic(), paths, fabric_of(topology)).total_ms


def dp_ms(cluster: Cluster, dp: int = 32) -> float:
    """What a step of so many replicas costs on all GPUs of a cluster."""
    job = a_job("j", 1, dp, parallel=ParallelPlan(dp=dp))
    cost = communication(Topology(cluster), job, placed(cluster, job))
    assert cost is not None
    return cost.total_ms


class TestOrder:
    JOB = a_job("j", 1, 24, parallel=ParallelPlan(tp=4, pp=3, dp=2), traffic=MANY_MICRO_BATCHES)
    CLUSTER = replace(racked(2, 2), links=LINKS)

    def test_tasks_are_ranked_by_the_mesh_and_not_as_nodes_were_filled(self) -> None:
        placement = placed(self.CLUSTER, self.JOB, n1=4, n3=4)
        as_filled = tuple(sorted(placement.slots, key=lambda slot: ("n0", "n2", "n1", "n3").index(slot.node)))
        assert step_ms(self.CLUSTER, self.JOB, placement.slots) < step_ms(self.CLUSTER, self.JOB, as_filled)
        assert [slot.rank for slot in placement.slots] == list(range(24))
        replicas = [{slot.node for slot in placement.slots[first : first + 12]} for first in (0, 12)]
        assert {"n0", "n1"} in replicas
        assert {"n2", "n3"} in replicas

    def test_the_mesh_is_the_devices_of_the_tasks_in_rank_order(self) -> None:
        placement = placed(self.CLUSTER, self.JOB, n1=4, n3=4)
        assert placement.mesh == tuple((slot.node, device) for slot in placement.slots for device in slot.devices)

    def test_tasks_of_several_devices_are_ranked_by_the_mesh_as_far_as_they_stay_together(self) -> None:
        job = a_job("j", 4, 6, parallel=ParallelPlan(tp=4, pp=3, dp=2), traffic=MANY_MICRO_BATCHES)
        placement = placed(self.CLUSTER, job, n1=4, n3=4)
        assert placement.mesh == tuple((slot.node, device) for slot in placement.slots for device in slot.devices)
        racks = [slot.node in ("n0", "n1") for slot in placement.slots]
        assert racks in ([True] * 3 + [False] * 3, [False] * 3 + [True] * 3)

    def test_roles_keep_their_ranks(self) -> None:
        roles = (Role("chief", 1, 1, Task(1)), Role("worker", 23, 23, Task(1)))
        placement = placed(self.CLUSTER, replace(self.JOB, gang=Gang(roles)), n1=4, n3=4)
        assert [slot.role for slot in placement.slots] == ["chief"] + ["worker"] * 23
        assert [slot.rank for slot in placement.slots] == list(range(24))

    def test_members_that_stay_keep_their_order_when_others_join(self) -> None:
        placement = placed(self.CLUSTER, self.JOB, n1=4, n3=4)
        joined = tuple(Slot(24 + i, "worker", node, (i % 4,)) for i, node in enumerate(["n1"] * 4 + ["n3"] * 4))
        slots = (*joined[4:], *placement.slots, *joined[:4])
        grown = with_mesh(
            Topology(self.CLUSTER), replace(self.JOB, parallel=ParallelPlan(tp=4, pp=2)), Placement(slots)
        )
        assert grown.slots == slots
        assert grown.mesh == tuple((slot.node, device) for slot in slots for device in slot.devices)

    def test_a_gang_that_shares_devices_has_no_mesh(self) -> None:
        slots = tuple(Slot(i, "worker", "n0", (0,)) for i in range(2))
        job = a_job("j", 1, 2, parallel=ParallelPlan(dp=2))
        assert with_mesh(Topology(flat(1, 8)), job, Placement(slots)).mesh == ()

    def test_a_job_that_has_a_plan_and_no_gpus_has_no_mesh(self) -> None:
        slots = (Slot(0, "worker", "n0"),)
        job = a_job("j", 0, parallel=ParallelPlan())
        assert with_mesh(Topology(flat(1, 8)), job, Placement(slots)).mesh == ()


class TestLinks:
    def four(self, per_rack: int = 0, links: dict[str, Link] | None = None, **node: Any) -> Cluster:
        """Four nodes with a card for each GPU, in racks of so many or in none."""
        path = [(f"r{i // per_rack}",) if per_rack else () for i in range(4)]
        node = {"nics": 8, "gpu_type": "H100", **node}
        nodes = tuple(Node(f"n{i}", path[i], 8, **node) for i in range(4))
        levels = ("rack",) * bool(per_rack) + (NODE,) + tuple(level for level, _ in node.get("split", ()))
        return Cluster(nodes, levels, links or {})

    FLAT: ClassVar = {CLUSTER: Link(50.0, 5.0), NODE: Link(450.0, 1.0)}

    @pytest.mark.parametrize("per_rack", [1, 2, 4])
    @pytest.mark.parametrize("rack", [{}, {"rack": Link(50.0, 5.0)}], ids=["not given", "the same"])
    @pytest.mark.parametrize("nics", [0, 1, 8])
    def test_racks_that_are_joined_as_fast_as_their_nodes_cost_nothing(
        self, per_rack: int, rack: dict[str, Link], nics: int
    ) -> None:
        cost_ms = dp_ms(self.four(per_rack, self.FLAT | rack, nics=nics))
        assert cost_ms == pytest.approx(dp_ms(self.four(0, self.FLAT, nics=nics)))

    @pytest.mark.parametrize("links", [{}, FLAT])
    def test_sockets_and_switches_without_a_bandwidth_of_their_own_cost_nothing(self, links: dict[str, Link]) -> None:
        split = (("socket", 2), ("switch", 4))
        assert dp_ms(self.four(0, links, split=split)) == pytest.approx(dp_ms(self.four(0, links)))

    def test_switches_that_are_faster_than_the_node_make_a_step_cheaper(self) -> None:
        links = self.FLAT | {"switch": Link(900.0, 1.0)}
        split = (("socket", 2), ("switch", 4))
        assert dp_ms(self.four(0, links, split=split)) < dp_ms(self.four(0, self.FLAT, split=split))

    def test_slow_uplinks_of_racks_cost_more_than_fast_ones(self) -> None:
        slow = {CLUSTER: Link(12.5, 5.0), "rack": Link(50.0, 5.0), NODE: Link(450.0, 1.0)}
        assert dp_ms(self.four(2, slow)) > dp_ms(self.four(2, self.FLAT))

    def test_what_a_gpu_sends_is_shared_only_where_network_cards_are_fewer_than_gpus(self) -> None:
        unsaid, all_gpus, few = (dp_ms(self.four(0, self.FLAT, nics=nics)) for nics in (0, 8, 2))
        assert unsaid == all_gpus < few

    def test_without_bandwidth_the_catalogue_says_what_a_gpu_sends(self) -> None:
        given = {CLUSTER: Link(50.0), NODE: Link(450.0)}
        assert dp_ms(self.four(0, {})) == pytest.approx(dp_ms(self.four(0, given)))

    def test_bandwidth_of_the_network_is_not_that_of_nvlink(self) -> None:
        topology = Topology(self.four(2, {CLUSTER: Link(25.0)}))
        assert [topology.link(level).gb_s for level in (CLUSTER, "rack", NODE)] == [25.0, 25.0, 450.0]

    def test_bandwidth_of_nvlink_is_not_that_of_the_network(self) -> None:
        topology = Topology(self.four(2, {NODE: Link(300.0)}))
        assert [topology.link(level).gb_s for level in (CLUSTER, "rack", NODE)] == [50.0, 50.0, 300.0]

    def test_the_slowest_gpu_type_of_a_placement_counts_and_not_that_of_the_cluster(self) -> None:
        nodes = (Node("a", (), 8, "H100"), Node("b", (), 8, "T4"))
        topology = Topology(Cluster(nodes))
        assert topology.link(NODE, ["H100"]).gb_s == 450.0
        assert topology.link(NODE).gb_s == topology.link(NODE, ["T4", "H100"]).gb_s < 32
