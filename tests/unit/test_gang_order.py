"""What a search may not depend on: the order of roles, how many domains there are, how long it was allowed to take."""

from __future__ import annotations

from dataclasses import replace

import pytest

from builders import a_job, of_roles, places, racked, within, workers
from phalanx.cluster.capacity import Booking, Capacity
from phalanx.cluster.cluster import NODE, Cluster, Node, flat
from phalanx.cluster.topology import Topology as Tree
from phalanx.placement import domain_search as search
from phalanx.placement.fit import Fit
from phalanx.placement.gang import GangTrial
from phalanx.placement.pack import Packing
from phalanx.placement.place import ever, placement_of, refusal
from phalanx.placement.placement import Lack
from phalanx.workload.gang import Role, Task, Topology
from phalanx.workload.job import Job
from phalanx.workload.share import fraction_ask, mps_ask

CORE = 1_000
HALF = {"share": fraction_ask(500)}


def a_fit(cluster: Cluster) -> Fit:
    return Fit(Capacity(Tree(cluster)))


def where(fit: Fit, job: Job) -> dict[str, tuple[int, ...]] | None:
    trial = GangTrial(fit, Packing(), job)
    return places(placement_of(trial)) if trial.seat() else None


TIGHT_GANGS = {
    "twos and sixes": (4, Task(2), Task(6), 4, 4),
    "ones and sevens": (2, Task(1), Task(7), 2, 2),
    "cores alone": (4, Task(cpus_milli=2 * CORE), Task(cpus_milli=6 * CORE), 4, 4),
    "memory alone": (4, Task(memory_mb=2), Task(memory_mb=6), 4, 4),
}


@pytest.mark.parametrize(("nodes", "small", "large", "smalls", "larges"), TIGHT_GANGS.values(), ids=TIGHT_GANGS.keys())
def test_whether_a_gang_fits_does_not_depend_on_which_role_is_written_first(
    nodes: int, small: Task, large: Task, smalls: int, larges: int
) -> None:
    cluster = Cluster(tuple(Node(f"n{i}", (), 8, cpus_milli=8 * CORE, memory_mb=8) for i in range(nodes)))
    roles = (Role("small", smalls, smalls, small), Role("large", larges, larges, large))
    for order in (roles, roles[::-1]):
        assert where(a_fit(cluster), of_roles("j", *order)) is not None
        assert ever(a_fit(cluster), of_roles("j", *order))


@pytest.mark.parametrize("close_first", [True, False])
def test_a_role_that_was_left_out_is_seated_before_those_who_had_its_place(close_first: bool) -> None:
    """Only one node has two GPUs in one socket, which pairs would take first: it is in use, and they fill it."""
    nodes = tuple(Node(name, (), gpus, cpus_milli=8 * CORE, split=(("socket", 2),)) for name, gpus in PAIRS.items())
    fit = a_fit(Cluster(nodes, (NODE, "socket")))
    fit.capacity.hold(Booking(1, 0b0011, ()))
    pairs = Role("pairs", 2, 2, Task(2, cpus_milli=2 * CORE), topology=within(NODE))
    close = Role("close", task=Task(2, cpus_milli=CORE), topology=within("socket"))
    order = (close, pairs) if close_first else (pairs, close)
    assert where(fit, of_roles("j", *order)) == {"a": (0, 1), "b": (2, 3), "c": (0, 1)}


PAIRS = {"a": 2, "b": 4, "c": 2}


def _two_of(*members: Role) -> Role:
    return Role("replica", 2, 2, members=members)


HARD_TO_SEAT = {
    "replicas that cannot each have a node": (
        (Node("n", (), 2, nics=2), Node("m", (), 4)),
        of_roles("j", _two_of(Role("a", task=Task(1)), Role("b", task=Task(1, nics=1)))),
        ["replica/a", "replica/b", "replica/a", "replica/b"],
        ["m", "n", "m", "n"],
    ),
    "replicas of which a part has few nodes to choose from": (
        (Node("any", (), 4, "B"), Node("few", (), 4, "A")),
        of_roles("j", _two_of(Role("a", task=Task(1)), Role("b", task=Task(2, ("A",)))), Role("c", task=Task(1))),
        ["replica/a", "replica/b", "replica/a", "replica/b", "c"],
        ["any", "few", "any", "few", "any"],
    ),
    "tasks that fill a node of two amounts": (
        (Node("n", (), 4, cpus_milli=4 * CORE, memory_mb=2), Node("m", (), 2, cpus_milli=8 * CORE, memory_mb=2)),
        of_roles(
            "j",
            Role("a", task=Task(2, cpus_milli=CORE), topology=within(NODE)),
            Role("b", 3, 3, Task(1, cpus_milli=2 * CORE, memory_mb=1)),
        ),
        ["a", "b", "b", "b"],
        ["n", "n", "m", "m"],
    ),
}


@pytest.mark.parametrize(("nodes", "job", "roles", "named"), HARD_TO_SEAT.values(), ids=HARD_TO_SEAT.keys())
def test_a_gang_that_has_a_place_finds_it_in_a_small_cluster(
    nodes: tuple[Node, ...], job: Job, roles: list[str], named: list[str]
) -> None:
    fit = a_fit(Cluster(nodes))
    trial = GangTrial(fit, Packing(), job)
    assert trial.seat()
    placement = placement_of(trial)
    assert [slot.role for slot in placement.slots] == roles
    assert [slot.node for slot in placement.slots] == named
    trial.undo()
    fit.capacity.check()


def test_what_must_lie_together_is_not_torn_by_trying_every_way() -> None:
    nodes = (Node("n", ("r0",), 2, nics=2), Node("m", ("r1",), 4))
    pair = (Role("a", task=Task(1)), Role("b", task=Task(1, nics=1)))
    assert where(a_fit(Cluster(nodes, ("rack", NODE))), of_roles("j", Role("replica", 2, 2, members=pair))) is not None
    held = Role("replica", 2, 2, members=pair, topology=within("rack"))
    assert where(a_fit(Cluster(nodes, ("rack", NODE))), of_roles("j", held)) is None
    assert where(a_fit(Cluster(nodes, ("rack", NODE))), of_roles("j", _two_of(*pair), required="rack")) is None


def many_small_racks_and_a_large_one() -> Cluster:
    """300 racks that have the GPUs of a gang but not its CPUs, before the one that has both."""
    small = tuple(Node(f"s{i}", (f"r{i // 2}",), 8, cpus_milli=16 * CORE) for i in range(600))
    large = tuple(Node(f"l{i}", ("large",), 8, cpus_milli=128 * CORE) for i in range(2))
    return Cluster((*small, *large), ("rack", NODE))


BOUND_TO_ONE_RACK = {
    "two roles": of_roles("j", workers(2, 8), Role("driver", task=Task(cpus_milli=64 * CORE)), required="rack"),
    "one role": a_job("j", 1, 12, "rack", task={"cpus_milli": 8 * CORE}),
    "one role that is elastic": a_job("j", 1, (12, 16), "rack", task={"cpus_milli": 8 * CORE}),
    "no GPUs": a_job("j", 0, 12, "rack", task={"cpus_milli": 16 * CORE}),
    "a sub-gang": of_roles("j", Role("r", members=(workers(12, 1, cpus_milli=8 * CORE),), topology=within("rack"))),
}


@pytest.mark.parametrize("job", BOUND_TO_ONE_RACK.values(), ids=BOUND_TO_ONE_RACK.keys())
def test_a_gang_finds_the_one_rack_that_holds_it_behind_hundreds_that_do_not(job: Job) -> None:
    found = where(a_fit(many_small_racks_and_a_large_one()), job)
    assert found is not None
    assert all(node.startswith("l") for node in found)


def test_parts_of_devices_find_the_one_node_that_holds_them_behind_hundreds_that_do_not() -> None:
    nodes = (*(Node(f"s{i}", (), 1, "H100", 80.0) for i in range(300)), Node("l", (), 8, "H100", 80.0))
    assert where(a_fit(Cluster(nodes)), a_job("j", 1, 4, NODE, task=HALF)) == {"l": (0, 0, 1, 1)}


def test_a_part_of_a_device_is_found_behind_hundreds_that_are_shared_in_another_way() -> None:
    fit = a_fit(flat(300, 1, "H100", 80.0))
    for i in range(300):
        share = mps_ask(10) if i < 299 else fraction_ask(300)
        task = replace(a_job(f"j{i}", task={"share": share}).gang.roles[0].task)
        ask = fit.ask(task, a_job("any"))
        portion = ask.portions[0]
        assert portion is not None
        fit.capacity.hold(Booking(i, 1, (), portion, f"j{i}"))
    assert where(fit, a_job("j", task={"share": fraction_ask(300)})) == {"n299": (0,)}


def test_a_search_that_was_cut_short_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    # The members of each replica ask for more than counting sees: a socket each, of which a node has two small ones.
    nodes = [Node(f"s{i}", (), 8, split=(("socket", 4),)) for i in range(4)]
    cluster = Cluster((*nodes, Node("l", (), 8, split=(("socket", 2),))), (NODE, "socket"))
    job = of_roles("j", workers(2, 3, within("socket")), required=NODE)
    assert where(a_fit(cluster), job) == {"l": (0, 1, 2, 4, 5, 6)}
    monkeypatch.setattr(search, "TRIALS_MAX", 2)
    fit = a_fit(cluster)
    assert where(fit, job) is None
    assert refusal(fit, job).lack is not Lack.NEVER


def test_what_no_order_of_roles_could_seat_never_fits() -> None:
    cluster = Cluster(tuple(Node(f"n{i}", (), 8, cpus_milli=8 * CORE) for i in range(2)))
    too_many_cores = of_roles(
        "j", Role("a", 2, 2, Task(1, cpus_milli=5 * CORE)), Role("b", task=Task(1, cpus_milli=7 * CORE))
    )
    assert not ever(a_fit(cluster), too_many_cores)
    assert not ever(a_fit(cluster), of_roles("j", Role("a", 2, 2, Task(5)), Role("b", task=Task(4))))


# Parts of devices.


def test_a_preferred_rack_keeps_parts_together_and_is_left_where_none_has_room() -> None:
    def fit() -> Fit:
        found = a_fit(racked(2, 1, 2, gpu_type="H100", gpu_memory_gb=80.0))
        portion = found.ask(Task(1, share=fraction_ask(400)), a_job("any")).portions[0]
        assert portion is not None
        for node in range(2):
            found.capacity.hold(Booking(node, 1, (), portion, "held"))
        return found

    task = {"share": fraction_ask(600)}
    assert where(fit(), a_job("j", 1, 2, preferred="rack", task=task)) == {"n0": (0, 1)}
    assert where(fit(), a_job("j", 1, 3, preferred="rack", task=task)) == {"n0": (0, 1), "n1": (0,)}


def test_an_elastic_gang_of_parts_gets_all_that_fit() -> None:
    trial = GangTrial(a_fit(flat(1, 8, "H100", 80.0)), Packing(), a_job("j", 1, (1, 30), task=HALF))
    assert trial.seat()
    assert len(trial.seats) == 16


def test_a_gang_of_parts_that_is_too_large_for_a_rack_is_refused_before_anything_is_booked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fit = a_fit(racked(20, 2, gpu_type="H100", gpu_memory_gb=80.0))
    booked: list[Booking] = []
    monkeypatch.setattr(fit.capacity, "hold", booked.append)
    for job in (a_job("j", 1, 33, "rack", task=HALF), a_job("j", 1, 17, NODE, task=HALF)):
        assert where(fit, job) is None
        assert refusal(fit, job).lack is Lack.NEVER
    assert not booked


def test_replicas_that_racks_have_no_room_for_are_refused_before_anything_is_booked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fit = a_fit(racked(20, 4))
    booked: list[Booking] = []
    monkeypatch.setattr(fit.capacity, "hold", booked.append)
    replica = Role("replica", 21, 21, members=(workers(3, 8),), topology=Topology("rack"))
    assert where(fit, of_roles("j", replica)) is None
    assert not booked


def test_roles_that_together_exceed_the_nodes_they_may_use_never_fit() -> None:
    """Each role alone has room, and the cluster has enough GPUs, but not on nodes with the label."""
    nodes = (Node("a", (), 4, labels=(("zone", "x"),)), Node("b", (), 4))
    job = of_roles("j", workers(2, 2), replace(workers(1, 2, within("socket")), name="other"))
    cluster = Cluster(tuple(replace(node, split=(("socket", 2),)) for node in nodes), (NODE, "socket"))
    fit = a_fit(cluster)
    assert ever(fit, job)
    assert not ever(fit, replace(job, node_selector=(("zone", "x"),)))
