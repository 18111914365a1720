"""Placing gangs: who goes where, how close, how many, and what a refusal says."""

from __future__ import annotations

from typing import Any

import pytest

from builders import a_job, of_roles, places, racked, sockets, within, workers
from phalanx.cluster.capacity import Booking, Capacity
from phalanx.cluster.cluster import NODE, Cluster, Health, Link, Node, Taint, flat
from phalanx.cluster.topology import Topology as Tree
from phalanx.placement.fit import Fit
from phalanx.placement.gang import GangTrial
from phalanx.placement.pack import Packing
from phalanx.placement.packings import packing
from phalanx.placement.place import ever, placement_of, refusal
from phalanx.placement.placement import Lack, Placement, Refusal
from phalanx.workload.gang import Gang, Role, Task, Topology
from phalanx.workload.job import Job, Kind
from phalanx.workload.parallel import ParallelPlan
from phalanx.workload.toleration import Toleration


class Floor:
    """A cluster to place on."""

    def __init__(self, cluster: Cluster) -> None:
        self.capacity = Capacity(Tree(cluster))
        self.fit = Fit(self.capacity)

    def used(self, **counts: int) -> Floor:
        """Takes so many GPUs of each node, from the first device on."""
        for name, count in counts.items():
            self.take(name, *range(count))
        return self

    def take(self, node: str, *devices: int) -> Floor:
        number = self.capacity.topology.number[node]
        self.capacity.hold(Booking(number, sum(1 << device for device in devices), ()))
        return self

    def place(self, job: Job) -> Placement | None:
        trial = GangTrial(self.fit, Packing(), job)
        return placement_of(trial) if trial.seat() else None

    def where(self, job: Job) -> dict[str, tuple[int, ...]] | None:
        placement = self.place(job)
        return None if placement is None else places(placement)

    def counts(self, job: Job) -> dict[str, int] | None:
        """GPUs by node."""
        found = self.where(job)
        return None if found is None else {node: len(devices) for node, devices in found.items()}

    def why(self, job: Job) -> Refusal:
        assert self.place(job) is None
        return refusal(self.fit, job)


# Packing.


def test_partly_used_nodes_go_first_so_that_empty_ones_stay_whole() -> None:
    assert Floor(flat(3, 8)).used(n1=4).where(a_job("j", 2)) == {"n1": (4, 5)}


def test_among_partly_used_nodes_the_busiest_goes_first_since_it_will_not_be_whole_soon() -> None:
    floor = Floor(flat(3, 8)).used(n0=4, n2=6).take("n1", 0).take("n1", 1).take("n1", 2)
    assert floor.counts(a_job("j", 2)) == {"n1": 2}, "three tasks must end before n1 is whole, one on n0 and on n2"


def test_among_equally_busy_nodes_the_one_that_is_filled_best_goes_first() -> None:
    assert Floor(flat(3, 8)).used(n0=2, n1=6, n2=4).where(a_job("j", 2)) == {"n1": (6, 7)}


def test_an_odd_rest_is_avoided_when_a_slightly_larger_hole_leaves_an_even_one() -> None:
    floor = Floor(flat(2, 8)).used(n0=4, n1=3)
    assert floor.counts(a_job("j", 3)) == {"n1": 3}, "5 free leave 2; 4 free would leave 1"


@pytest.mark.parametrize("placement", ["topology", "pack", "spread", "random:1"])
@pytest.mark.parametrize("topology", [Topology("rack"), Topology(NODE), Topology("rack", NODE), Topology("", "rack")])
def test_one_task_that_must_lie_in_one_domain_goes_where_the_search_would_have_it(
    placement: str, topology: Topology
) -> None:
    for gpus in range(1, 9):
        job = Job("j", Gang((workers(1, gpus),), topology))
        seats = []
        for search in (GangTrial.seat, GangTrial._seat_all):
            floor = Floor(racked(3, 2)).used(n0=1, n1=8, n2=5, n3=3, n4=6)
            trial = GangTrial(floor.fit, packing(placement), job)
            assert search(trial)
            seats.append(trial.seats)
        assert seats[0] == seats[1]


def test_one_task_that_any_node_takes_is_seated_without_a_search(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GangTrial, "_seat_all", lambda trial: pytest.fail("searched"))
    floor = Floor(racked(2, 2)).used(n0=4, n2=6)
    assert floor.counts(a_job("j", 2, required=NODE)) == {"n2": 2}


def test_one_task_that_must_lie_in_one_rack_goes_to_the_tightest_and_there_to_the_best_node() -> None:
    floor = Floor(racked(2, 2)).used(n0=5, n1=2, n2=3, n3=4)
    assert floor.counts(a_job("j", 3, required="rack")) == {"n2": 3}, "r1 has room for two such tasks, r0 for three"
    assert floor.counts(a_job("j", 3)) == {"n0": 3}, "the perfect fit is in r0"


def test_a_perfect_fit_wins_among_equally_busy_nodes() -> None:
    assert Floor(flat(3, 8)).used(n0=4, n1=5, n2=6).counts(a_job("j", 3)) == {"n1": 3}


def test_equal_nodes_are_taken_by_number() -> None:
    assert Floor(flat(3, 8)).where(a_job("j", 8)) == {"n0": tuple(range(8))}


def test_a_gang_lies_on_as_few_nodes_as_it_can_and_breaks_only_its_last() -> None:
    assert Floor(flat(4, 8)).used(n0=2).counts(a_job("j", 4, 5)) == {"n1": 8, "n2": 8, "n0": 4}


def test_a_gang_that_fits_one_node_lies_on_one_node() -> None:
    assert Floor(flat(3, 8)).used(n0=6, n1=6).counts(a_job("j", 2, 4)) == {"n2": 8}


def test_a_gang_that_fits_one_rack_lies_in_the_rack_it_fills_best() -> None:
    floor = Floor(racked(3, 3)).used(n0=8)
    assert floor.counts(a_job("j", 8, 2)) == {"n1": 8, "n2": 8}, "r0 has room for exactly two"


def test_tasks_that_share_a_node_get_devices_of_one_socket_each() -> None:
    placement = Floor(sockets(1)).place(a_job("j", 4, 2))
    assert placement is not None
    assert [slot.devices for slot in placement.slots] == [(0, 1, 2, 3), (4, 5, 6, 7)]


# Closeness.


def test_a_required_rack_is_never_left_even_if_the_gang_must_wait() -> None:
    floor = Floor(racked(2, 2)).used(n0=8, n2=8)
    assert floor.place(a_job("j", 8, 2, required="rack")) is None
    assert floor.counts(a_job("j", 8, 2)) == {"n1": 8, "n3": 8}


def test_a_preferred_rack_is_left_when_no_rack_has_room() -> None:
    floor = Floor(racked(2, 2)).used(n0=8, n2=8)
    assert floor.counts(a_job("j", 8, 2, preferred="rack")) == {"n1": 8, "n3": 8}


def test_a_preferred_level_outside_the_required_one_changes_nothing() -> None:
    assert Floor(racked(2, 2)).counts(a_job("j", 8, 2, required="rack", preferred="cluster")) == {"n0": 8, "n1": 8}


def test_a_required_node_holds_the_whole_gang() -> None:
    floor = Floor(flat(2, 8)).used(n0=4)
    assert floor.counts(a_job("j", 2, 4, required=NODE)) == {"n1": 8}
    assert floor.counts(a_job("j", 2, 2, required=NODE)) == {"n0": 4}


def test_a_required_socket_holds_the_whole_gang() -> None:
    floor = Floor(sockets(2)).take("n0", 0, 4)
    assert floor.where(a_job("j", 3, required="socket")) == {"n0": (1, 2, 3)}
    assert floor.where(a_job("k", 2, 2, required="socket")) == {"n1": (0, 1, 2, 3)}


def test_each_replica_of_a_sub_gang_lies_in_one_rack_of_its_own_choice() -> None:
    replica = Role("replica", 2, 2, members=(workers(2, 8),), topology=within("rack"))
    placement = Floor(racked(3, 3)).used(n0=8, n1=8).place(of_roles("j", replica))
    assert placement is not None
    assert [(slot.role, slot.node) for slot in placement.slots] == [
        ("replica/worker", "n3"),
        ("replica/worker", "n4"),
        ("replica/worker", "n6"),
        ("replica/worker", "n7"),
    ]


def test_sixteen_replicas_of_four_whole_nodes_in_one_rack_each_use_four_racks_of_sixteen() -> None:
    replica = Role("replica", 16, 16, members=(workers(4, 8),), topology=within("rack"))
    placement = Floor(racked(5, 16)).place(of_roles("j", replica))
    assert placement is not None
    assert placement.gpus == 512
    assert len({int(node[1:]) // 16 for node in placement.nodes}) == 4


def test_a_sub_gang_inside_a_required_rack_does_not_leave_it() -> None:
    cluster = Cluster(tuple(Node(f"n{i}", ("p0", f"r{i // 4}"), 8) for i in range(8)), ("pod", "rack", NODE))
    sub = Role("sub", members=(workers(1, 8), Role("more", 3, 3, Task(8))))
    job = of_roles("j", sub, required="rack")
    assert Floor(cluster).used(n0=8, n4=1).place(job) is None
    assert Floor(cluster).used(n0=8).counts(job) == {"n4": 8, "n5": 8, "n6": 8, "n7": 8}


def test_a_role_with_a_wish_of_its_own_does_not_leave_the_gangs_required_node() -> None:
    cluster = Cluster(tuple(Node(f"n{i}", ("r0",), 4) for i in range(2)), ("rack", NODE))
    wishing = Role("worker", 2, 2, Task(2), topology=Topology(preferred="rack"))
    assert Floor(cluster).used(n0=1).counts(of_roles("j", wishing, required=NODE)) == {"n1": 4}
    assert Floor(cluster).used(n0=1, n1=1).place(of_roles("j", wishing, required=NODE)) is None


IN_A_RACK = Topology("rack", "rack")
HELD_TIGHTER = {
    "many tasks": of_roles("j", Role("a", task=Task(2)), workers(6, 1, within("rack")), required=NODE),
    "in one socket": of_roles("j", workers(4, 1, IN_A_RACK), required="socket"),
    "no GPUs": of_roles("j", Role("a", 2, 2, Task(cpus_milli=1), topology=IN_A_RACK), required=NODE),
    "a member": of_roles(
        "j", Role("sub", 2, 2, members=(workers(2, 1, IN_A_RACK), Role("driver")), topology=within(NODE))
    ),
}


@pytest.mark.parametrize("job", HELD_TIGHTER.values(), ids=HELD_TIGHTER.keys())
def test_what_is_held_to_a_level_may_be_held_to_a_tighter_one_by_what_it_is_part_of(job: Job) -> None:
    split = (("socket", 2),)
    nodes = tuple(Node(f"n{i}", ("p0", f"r{i // 2}"), 8, cpus_milli=4, split=split) for i in range(4))
    floor = Floor(Cluster(nodes, ("pod", "rack", NODE, "socket")))
    assert ever(floor.fit, job)
    assert floor.place(job) is not None


def test_a_task_held_to_one_switch_stays_inside_the_socket_of_its_gang() -> None:
    """The gang needs four devices of one socket, and socket 0 has lost one."""
    floor = Floor(sockets(1, 8, (("socket", 2), ("switch", 4)))).take("n0", 0)
    job = of_roles("j", Role("a", task=Task(1), topology=within("switch")), Role("b", task=Task(3)), required="socket")
    assert floor.where(job) == {"n0": (4, 5, 6, 7)}


def test_a_gang_on_one_node_looks_at_every_node_of_equal_room() -> None:
    """Both nodes have eight free, but only the second has sockets of four."""
    nodes = (Node("a", (), 8, split=(("socket", 4),)), Node("b", (), 8, split=(("socket", 2),)))
    job = of_roles("j", workers(2, 4, within("socket")), required=NODE)
    assert Floor(Cluster(nodes, (NODE, "socket"))).counts(job) == {"b": 8}


def test_a_level_that_the_cluster_has_not_is_met_nowhere() -> None:
    assert Floor(flat(2, 8)).place(a_job("j", 1, required="rack")) is None


# Numbers.


@pytest.mark.parametrize(("used", "members"), [(0, 4), (2, 4), (4, 2), (5, 1), (7, None)])
def test_an_elastic_gang_gets_as_many_members_as_fit_and_at_least_its_minimum(used: int, members: int | None) -> None:
    placement = Floor(flat(1, 8)).used(n0=used).place(a_job("j", 2, (1, 3 if members == 3 else 4)))
    if members is None:
        assert placement is None
    else:
        assert placement is not None
        assert len(placement.slots) == min(members, (8 - used) // 2)


def test_an_elastic_gang_held_to_one_rack_takes_the_rack_where_it_is_largest() -> None:
    floor = Floor(racked(2, 3)).used(n0=8, n1=8)
    assert floor.counts(a_job("j", 8, (1, 4), required="rack")) == {"n3": 8, "n4": 8, "n5": 8}


def test_an_elastic_gang_on_one_socket_is_as_large_as_the_socket() -> None:
    assert Floor(sockets(1)).counts(a_job("j", 1, (1, 8), required="socket")) == {"n0": 4}


def test_every_role_has_its_minimum_before_any_has_more() -> None:
    roles = (Role("a", 1, 9, Task(1)), Role("b", 2, 2, Task(2)))
    placement = Floor(flat(1, 8)).place(of_roles("j", *roles))
    assert placement is not None
    counts = [slot.role for slot in placement.slots]
    assert counts.count("b") == 2
    assert counts.count("a") == 4


def test_ranks_follow_the_order_of_the_roles() -> None:
    roles = (Role("ps", 1, 2, Task(1)), Role("worker", 2, 2, Task(4, ("H",))))
    nodes = (Node("a", (), 8, "A"), Node("h", (), 8, "H"))
    placement = Floor(Cluster(nodes)).place(of_roles("j", *roles))
    assert placement is not None
    assert [(slot.rank, slot.role) for slot in placement.slots] == [
        (0, "ps"),
        (1, "ps"),
        (2, "worker"),
        (3, "worker"),
    ]


def test_a_role_that_can_lie_anywhere_leaves_to_another_what_only_that_can_use() -> None:
    nodes = (Node("h", (), 8, "H100"), Node("a", (), 8, "A100"))
    job = of_roles("j", Role("any", task=Task(8)), Role("picky", task=Task(8, ("H100",))))
    placement = Floor(Cluster(nodes)).place(job)
    assert placement is not None
    assert {slot.role: slot.node for slot in placement.slots} == {"any": "a", "picky": "h"}


def test_replicas_of_a_service_fill_up_partly_used_nodes() -> None:
    floor = Floor(flat(3, 8)).used(n0=6, n1=6)
    assert floor.counts(a_job("j", 2, 5, kind=Kind.SERVICE)) == {"n0": 2, "n1": 2, "n2": 6}


def test_tasks_without_gpus_are_spread_by_what_they_do_need() -> None:
    cluster = Cluster(tuple(Node(f"n{i}", (), 0, cpus_milli=4_000) for i in range(3)))
    placement = Floor(cluster).place(a_job("j", 0, 5, task={"cpus_milli": 2_000}))
    assert placement is not None
    assert [slot.node for slot in placement.slots] == ["n0", "n0", "n1", "n1", "n2"]


def test_tasks_without_gpus_that_exceed_one_node_are_placed_in_a_cluster_of_racks() -> None:
    job = a_job("j", 0, 3, task={"cpus_milli": 2_000})
    placement = Floor(racked(2, 2, cpus_milli=4_000)).place(job)
    assert placement is not None
    assert len(placement.slots) == 3


def test_a_task_takes_no_more_than_the_amounts_of_a_node_allow() -> None:
    cluster = Cluster(tuple(Node(f"n{i}", (), 8, cpus_milli=8_000) for i in range(2)))
    assert Floor(cluster).counts(a_job("j", 1, 4, task={"cpus_milli": 4_000})) == {"n0": 2, "n1": 2}


# Who may go where.


def kinds() -> Floor:
    """Old, new, labelled, tainted."""
    return Floor(
        Cluster(
            (
                Node("old", (), 8, "V100", 32.0),
                Node("new", (), 8, "H100", 80.0, nics=8),
                Node("east", (), 8, "A100", 40.0, labels=(("zone", "east"),)),
                Node(
                    "kept", (), 8, "H100", 80.0, taints=(Taint("team", "ml"), Taint("soft", effect="PreferNoSchedule"))
                ),
            )
        )
    )


@pytest.mark.parametrize(
    ("task", "job", "node"),
    [
        ({"gpu_types": ("H100",)}, {}, "new"),
        ({"gpu_types": ("T4", "A100")}, {}, "east"),
        ({"gpu_memory_gb": 40.0, "gpu_types": ("A100", "V100")}, {}, "east"),
        ({"nics": 1}, {}, "new"),
        ({}, {"node_selector": (("zone", "east"),)}, "east"),
        ({}, {"node_selector": (("zone", "west"),)}, None),
        ({"node_selector": (("zone", "east"),)}, {}, "east"),
        ({"node_selector": (("phalanx/node", "none, new"),)}, {}, "new"),
        ({"node_selector": (("zone", "!east"),)}, {"node_selector": (("phalanx/node", "east"),)}, None),
        ({"node_selector": (("phalanx/node", "new"),)}, {"node_selector": (("zone", "east"),)}, None),
        ({"node_selector": (("phalanx/node", "kept"),), "tolerations": (Toleration("team"),)}, {}, "kept"),
        ({"storage_gb": (("nvme", 1),)}, {}, None),
    ],
)
def test_a_task_goes_only_where_kind_memory_cards_labels_and_storage_allow(
    task: dict[str, Any], job: dict[str, Any], node: str | None
) -> None:
    found = kinds().counts(a_job("j", 8, task=task, **job))
    assert found == ({node: 8} if node else None)


@pytest.mark.parametrize(
    ("toleration", "goes"),
    [
        (None, False),
        (Toleration("team", "ml"), True),
        (Toleration("team"), True),
        (Toleration(), True),
        (Toleration("team", "hpc"), False),
        (Toleration("team", "ml", "NoExecute"), False),
    ],
)
def test_a_taint_keeps_off_whoever_does_not_tolerate_it(toleration: Toleration | None, goes: bool) -> None:
    job = a_job("j", 8, 2, task={"gpu_types": ("H100",)}, tolerations=(toleration,) if toleration else ())
    assert (kinds().place(job) is not None) == goes


# Refusals.


def test_a_refusal_counts_the_nodes_that_each_predicate_rules_out_in_turn() -> None:
    nodes = (
        *(Node(f"t{i}", (), 8, "T4") for i in range(2)),
        *(Node(f"s{i}", (), 4, "H100") for i in range(3)),
        *(Node(f"k{i}", (), 8, "H100", taints=(Taint("keep"),)) for i in range(4)),
        *(Node(f"h{i}", (), 8, "H100", cpus_milli=1_000) for i in range(5)),
        *(Node(f"f{i}", (), 8, "H100", cpus_milli=8_000) for i in range(3)),
    )
    floor = Floor(Cluster(nodes)).used(f1=1)
    floor.capacity.set_health(floor.capacity.topology.number["f0"], Health.DRAINING)
    floor.capacity.set_health(floor.capacity.topology.number["f2"], Health.FAILED)
    why = floor.why(a_job("j", 8, task={"gpu_types": ("H100",), "cpus_milli": 4_000}))
    assert why == Refusal(
        Lack.GPUS,
        nodes=17,
        ruled_out=(
            ("gpu_type", 2),
            ("node_gpus", 3),
            ("node_cpus", 9),
            ("failed", 1),
            ("draining", 1),
            ("free_gpus", 1),
        ),
        gpus_free=7,
        gpus_needed=8,
    )


def test_a_gang_that_lacks_devices_lacks_gpus() -> None:
    assert Floor(flat(2, 8)).used(n0=8).why(a_job("j", 8, 2)).lack is Lack.GPUS


def test_a_gang_whose_devices_are_free_but_scattered_is_refused_for_fragmentation() -> None:
    why = Floor(flat(2, 8)).used(n0=4, n1=4).why(a_job("j", 8))
    assert (why.lack, why.gpus_free, why.gpus_needed) == (Lack.FRAGMENTED, 8, 8)


def test_a_gang_whose_devices_are_free_but_in_two_racks_is_refused_for_topology() -> None:
    why = Floor(racked(2, 2)).used(n0=8, n2=8).why(a_job("j", 8, 2, required="rack"))
    assert why.lack is Lack.TOPOLOGY


def test_a_gang_whose_devices_are_free_but_whose_cpus_are_not_lacks_an_amount() -> None:
    floor = Floor(Cluster((Node("n0", (), 8, cpus_milli=4_000),)))
    floor.capacity.hold(Booking(0, 0b1, ((0, 3_000),)))
    assert floor.why(a_job("j", 1, task={"cpus_milli": 2_000})).lack is Lack.AMOUNT


def test_a_gang_that_only_lacks_a_healthy_node_is_refused_for_health() -> None:
    floor = Floor(flat(2, 8))
    floor.capacity.set_health(0, Health.DRAINING)
    assert floor.why(a_job("j", 8, 2)).lack is Lack.UNHEALTHY


TOO_LARGE = {
    "more GPUs than there are": a_job("j", 8, 5),
    "more GPUs than a node has": a_job("j", 16),
    "more than a rack has": a_job("j", 8, 3, required="rack"),
    "more than a node has, in two tasks": a_job("j", 8, 2, required=NODE),
    "more than a socket has": a_job("j", 8, required="socket"),
    "an unknown kind": a_job("j", 1, task={"gpu_types": ("T4",)}),
    "a second role of an unknown kind": of_roles("j", workers(2, 8), Role("b", task=Task(1, ("T4",)))),
    "a sub-gang larger than its rack": of_roles("j", Role("r", members=(workers(3, 8),), topology=within("rack"))),
    "two roles that are too large together": of_roles("j", workers(3, 8), Role("b", 2, 2, Task(8))),
    "two roles that are too large for one rack": of_roles("j", workers(2, 8), Role("b", task=Task(8)), required="rack"),
    "tasks that are each too large for their socket": of_roles("j", workers(1, 8, within("socket"))),
}


@pytest.mark.parametrize("job", TOO_LARGE.values(), ids=TOO_LARGE.keys())
def test_what_would_not_fit_an_empty_cluster_never_fits(job: Job) -> None:
    nodes = tuple(Node(f"n{i}", (f"r{i // 2}",), 8, split=(("socket", 2),)) for i in range(4))
    assert Floor(Cluster(nodes, ("rack", NODE, "socket"))).why(job).lack is Lack.NEVER


def test_a_gang_that_is_refused_leaves_no_trace() -> None:
    floor = Floor(racked(2, 2)).used(n0=4)
    before = floor.capacity.fingerprint()
    replica = Role("replica", 3, 3, members=(workers(2, 8),), topology=within("rack"))
    assert floor.place(of_roles("j", replica)) is None
    assert floor.capacity.fingerprint() == before
    floor.capacity.check()


def test_a_seated_gang_gives_everything_back_when_it_is_undone() -> None:
    floor = Floor(racked(2, 2))
    before = floor.capacity.fingerprint()
    trial = GangTrial(floor.fit, Packing(), Job("j", Gang((workers(3, 5),))))
    assert trial.seat()
    trial.undo()
    assert floor.capacity.fingerprint() == before


# Parallel plans.


def test_the_tasks_of_a_tensor_parallel_group_share_a_node_where_other_nodes_let_them() -> None:
    floor = Floor(flat(3, 8)).used(n0=2, n1=2, n2=4)
    assert floor.counts(a_job("j", 1, 12, parallel=ParallelPlan(tp=4, dp=3))) == {"n0": 4, "n1": 4, "n2": 4}


def test_tasks_of_two_devices_each_share_a_node_with_the_others_of_their_group() -> None:
    floor = Floor(flat(3, 8)).used(n0=2, n1=2, n2=4)
    assert floor.counts(a_job("j", 2, 6, parallel=ParallelPlan(tp=4, dp=3))) == {"n0": 4, "n1": 4, "n2": 4}


def test_groups_stay_whole_even_where_that_takes_a_wider_domain() -> None:
    floor = Floor(racked(2, 2)).used(n0=2, n1=2, n2=4, n3=4)
    found = floor.counts(a_job("j", 1, 12, parallel=ParallelPlan(tp=4, dp=3)))
    assert found is not None
    assert sorted(found.values()) == [4, 4, 4]


def linked(fast_gb_s: float) -> Cluster:
    """Domains of two, three and two nodes of 4 GPUs, which links of so many GB/s join."""
    domains = ("d0", "d0", "d1", "d1", "d1", "d2", "d2")
    links = {"cluster": Link(50.0), "domain": Link(fast_gb_s), NODE: Link(900.0)}
    return Cluster(tuple(Node(f"n{i}", (name,), 4) for i, name in enumerate(domains)), ("domain", NODE), links)


TP_OF_TWO_NODES = a_job("j", 4, 4, parallel=ParallelPlan(tp=8, dp=2))


def test_a_group_that_is_larger_than_a_node_lies_in_one_domain_of_fast_links() -> None:
    placement = Floor(linked(900.0)).used(n0=4).place(TP_OF_TWO_NODES)
    assert placement is not None
    assert placement.nodes == ("n5", "n6", "n2", "n3")
    assert [{node for node, _ in placement.mesh[first : first + 8]} for first in (0, 8)] == [{"n5", "n6"}, {"n2", "n3"}]


def test_a_group_that_is_larger_than_a_node_is_torn_where_no_domain_has_room_for_it() -> None:
    assert Floor(linked(900.0)).used(n0=4, n2=4, n3=4).counts(TP_OF_TWO_NODES) == {"n1": 4, "n4": 4, "n5": 4, "n6": 4}


def test_domains_whose_links_are_no_faster_hold_no_groups_together() -> None:
    assert Floor(linked(50.0)).used(n0=4).counts(TP_OF_TWO_NODES) == {"n1": 4, "n2": 4, "n3": 4, "n4": 4}


def test_tasks_that_make_no_whole_group_go_anywhere_beside_those_that_do() -> None:
    plan = ParallelPlan(tp=8, dp=3)
    job = of_roles("j", Role("head", task=Task(4)), Role("worker", 5, 5, Task(4)), parallel=plan)
    placement = Floor(linked(900.0)).place(job)
    assert placement is not None
    assert placement.gpus == 24


def test_a_gang_grows_by_groups_that_share_a_domain_of_fast_links_and_by_no_torn_one() -> None:
    floor = Floor(linked(900.0)).used(n0=4, n2=4, n3=4)
    job = a_job("j", 4, (2, 8), parallel=ParallelPlan(tp=8, dp=4))
    trial = GangTrial(floor.fit, Packing(), job)
    seats = trial.grow(job.gang.roles[0], 4, Booking(0, 0b1111, ()))
    assert [seat.booking.node for seat in seats] == [5, 6]


def test_a_group_is_torn_where_no_node_has_room_for_it() -> None:
    floor = Floor(flat(3, 8)).used(n0=5, n1=5, n2=6)
    assert floor.counts(a_job("j", 1, 8, parallel=ParallelPlan(tp=4, dp=2))) == {"n0": 3, "n1": 3, "n2": 2}


def test_an_elastic_gang_without_room_for_one_whole_replica_is_as_large_as_it_would_be_without_a_plan() -> None:
    floor = Floor(flat(4, 8)).used(n0=5, n1=5, n2=5, n3=5)
    found = floor.counts(a_job("j", 1, (1, 12), parallel=ParallelPlan(tp=4, dp=3)))
    assert found is not None
    assert sum(found.values()) == 12


@pytest.mark.parametrize(("nodes", "members"), [(1, None), (2, 2), (7, 6), (8, 8), (9, 8)])
def test_an_elastic_gang_starts_at_sizes_that_hold_whole_replicas_of_the_model(nodes: int, members: int | None) -> None:
    placement = Floor(flat(nodes, 8)).place(a_job("j", 8, (1, 9), parallel=ParallelPlan(tp=8, pp=2, dp=4)))
    assert (placement and len(placement.slots)) == members
    assert placement is None or len(placement.mesh) == 8 * len(placement.slots)


def test_a_gang_without_room_for_one_replica_of_the_model_never_fits() -> None:
    assert Floor(flat(1, 8)).why(a_job("j", 8, (1, 2), parallel=ParallelPlan(tp=16))).lack is Lack.NEVER


def test_a_gang_grows_by_groups_that_share_a_node_and_by_no_torn_one() -> None:
    floor = Floor(flat(3, 8)).used(n0=8, n1=2, n2=6)
    job = a_job("j", 1, (4, 12), parallel=ParallelPlan(tp=4, dp=3))
    trial = GangTrial(floor.fit, Packing(), job)
    seats = trial.grow(job.gang.roles[0], 8, Booking(0, 0b1111, ()))
    assert [seat.booking.node for seat in seats] == [1] * 4


def test_a_group_of_nodes_that_names_no_pod_still_has_its_racks() -> None:
    named = [Node(f"a{i}", ("p0", f"r{i // 2}"), 8, "H100") for i in range(4)]
    unnamed = [Node(f"b{i}", ("", f"r{2 + i // 2}"), 8, "A100") for i in range(4)]
    floor = Floor(Cluster((*named, *unnamed), ("pod", "rack", NODE)))
    assert floor.counts(a_job("j", 8, 2, "rack", task={"gpu_types": ("A100",)})) == {"b0": 8, "b1": 8}
