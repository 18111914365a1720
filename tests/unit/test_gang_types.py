"""Gangs and GPU types: a gang that names no type lies on one where one holds it, and on several only if it must."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import World, a_job, of_roles, places, within, workers
from phalanx.cluster.capacity import Capacity
from phalanx.cluster.cluster import NODE, Cluster, Node
from phalanx.cluster.topology import Topology
from phalanx.placement import gang as gangs
from phalanx.placement.fit import Fit
from phalanx.placement.gang import GangTrial
from phalanx.placement.pack import Packing
from phalanx.placement.packings import packing
from phalanx.placement.place import placement_of
from phalanx.workload.gang import Role, Task
from phalanx.workload.job import Job, Kind


def cluster(*types: str, rack: int = 2, **node: int) -> Cluster:
    """Nodes n0, n1, … of 8 GPUs of these types, so many to a rack; one without GPUs where the type is empty."""
    nodes = (
        Node(f"n{i}", (f"r{i // rack}",), 8 if each else 0, each, cpus_milli=64_000, **node)
        for i, each in enumerate(types)
    )
    return Cluster(tuple(nodes), ("rack", NODE))


def seated(cluster: Cluster, job: Job, *taken: Job, how: str = "topology") -> list[str]:
    """Where a gang goes beside others, by the nodes of its tasks with GPUs; empty if it does not fit."""
    fit = Fit(Capacity(Topology(cluster)))
    for other in taken:
        assert GangTrial(fit, Packing(), other).seat()
    trial = GangTrial(fit, packing(how), job)
    if not trial.seat():
        return []
    fit.capacity.check()
    return sorted(places(placement_of(trial)))


def test_a_gang_takes_equal_nodes_of_one_type_though_others_come_first() -> None:
    assert seated(cluster("H100", "A100", "H100", "A100"), a_job("j", 8, 2)) == ["n0", "n2"]


def test_the_type_with_the_least_room_that_holds_it_is_taken() -> None:
    types = ("H100", "A100", "H100", "A100", "H100", "H100")
    assert seated(cluster(*types, rack=3), a_job("j", 8, 2)) == ["n1", "n3"]


def test_a_gang_that_no_one_type_holds_is_mixed_as_before() -> None:
    assert seated(cluster("H100", "A100", "H100", "A100"), a_job("j", 8, 3)) == ["n0", "n1", "n2"]


def test_a_required_domain_goes_before_the_type() -> None:
    mixed = cluster("H100", "A100", "H100", "A100")
    assert seated(mixed, a_job("j", 8, 2, "rack")) == ["n0", "n1"]
    assert seated(cluster("H100", "A100", "A100", "A100"), a_job("j", 8, 2, "rack")) == ["n2", "n3"]


def test_one_type_goes_before_a_closer_domain_that_is_not_required() -> None:
    assert seated(cluster("H100", "A100", "H100", "V100"), a_job("j", 8, 2, preferred="rack")) == ["n0", "n2"]


def test_of_the_types_that_a_job_names_it_gets_one() -> None:
    job = a_job("j", 8, 2, task={"gpu_types": ("A100", "V100")})
    assert seated(cluster("H100", "A100", "V100", "H100", "V100", "H100"), job) == ["n2", "n4"]


def test_replicas_of_a_service_go_where_each_fits_best() -> None:
    job = a_job("j", 8, 2, kind=Kind.SERVICE)
    assert seated(cluster("H100", "A100", "H100", "A100"), job) == ["n0", "n1"]


@pytest.mark.parametrize("how", ["pack", "spread"])
def test_packings_that_take_nodes_one_by_one_mind_no_types(how: str) -> None:
    assert seated(cluster("H100", "A100", "H100", "A100"), a_job("j", 8, 2), how=how) == ["n0", "n1"]


def test_tasks_without_gpus_may_lie_beside_any() -> None:
    # The loader takes all CPUs of a node, so that it leaves the H100s to the workers.
    loader = Role("loader", task=Task(cpus_milli=64_000))
    job = of_roles("j", workers(2, 8, cpus_milli=1_000), loader)
    assert seated(cluster("H100", "A100", "H100"), job) == ["n0", "n1", "n2"]
    fit = Fit(Capacity(Topology(cluster("H100", "A100", "H100"))))
    trial = GangTrial(fit, Packing(), job)
    assert trial.seat()
    assert [
        fit.capacity.topology.nodes[seat.booking.node].gpu_type for seat in trial.seats if seat.booking.devices
    ] == [
        "H100",
        "H100",
    ]


def test_roles_that_name_types_of_their_own_keep_them() -> None:
    learner, actor = workers(1, 8, gpu_types=("H100",)), Role("actor", task=Task(8, ("A100",)))
    assert seated(cluster("A100", "H100", "H100", "A100"), of_roles("j", learner, actor)) == ["n0", "n1"]


def test_an_elastic_gang_gives_up_no_member_for_one_type() -> None:
    types = cluster("H100", "A100", "H100", "A100")
    assert len(seated(types, a_job("j", 8, (1, 4)))) == 4
    assert seated(types, a_job("j", 8, (1, 2))) == ["n0", "n2"]


def test_an_elastic_gang_grows_on_its_own_type_first() -> None:
    fit = Fit(Capacity(Topology(cluster("H100", "A100", "A100", "H100", "H100"))))
    job = a_job("j", 8, (1, 5))
    first = GangTrial(fit, Packing(), a_job("j", 8))
    assert first.seat()
    beside = first.seats[0].booking

    def grown(more: int) -> list[str]:
        trial = GangTrial(fit, Packing(), job)
        seats = trial.grow(job.gang.roles[0], more, beside)
        nodes = [fit.capacity.topology.nodes[seat.booking.node].name for seat in seats]
        trial.undo()
        return nodes

    assert grown(2) == ["n3", "n4"]
    assert grown(4) == ["n3", "n4", "n1", "n2"]
    assert grown(9) == ["n3", "n4", "n1", "n2"]


def test_many_tasks_without_gpus_have_no_type() -> None:
    job = of_roles("j", Role("loader", 100, 100, task=Task(cpus_milli=1_000)))
    assert seated(cluster("H100", "A100"), job) == ["n0", "n1"]


def test_sub_gangs_lie_on_one_type_together() -> None:
    job = of_roles("j", Role("cell", 2, 2, members=(workers(2, 8),), topology=within("rack")))
    types = ("A100", "A100", "H100", "H100", "V100", "V100", "H100", "H100")
    assert seated(cluster(*types), job) == ["n2", "n3", "n6", "n7"]


def test_a_large_gang_is_counted_first_and_comes_to_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    types = cluster("H100", "A100", "H100", "A100", "H100")
    small = seated(types, a_job("j", 8, 2))
    monkeypatch.setattr(gangs, "TASKS_MANY", 1)
    assert seated(types, a_job("j", 8, 2)) == small == ["n1", "n3"]
    assert len(seated(types, a_job("j", 8, 5))) == 5


def test_the_engine_starts_such_a_gang_on_one_type() -> None:
    world = World(cluster("H100", "A100", "H100", "A100"))
    world.run(a_job("j", 8, 2))
    assert sorted(world.where("j")) == ["n0", "n2"]


@given(
    types=st.lists(st.sampled_from(("H100", "A100", "V100")), min_size=2, max_size=7),
    taken=st.lists(st.integers(1, 8), max_size=5),
    gpus=st.sampled_from((1, 2, 4, 8)),
    count=st.integers(2, 12),
    required=st.sampled_from(("", "rack")),
    many=st.booleans(),
)
def test_mixed_is_only_what_no_one_type_could_have_held_and_nothing_is_refused_for_its_type(
    types: list[str], taken: list[int], gpus: int, count: int, required: str, many: bool
) -> None:
    fit = Fit(Capacity(Topology(cluster(*types))))
    for number, each in enumerate(taken):
        GangTrial(fit, Packing(), a_job(f"t{number}", each)).seat()
    before = fit.capacity.fingerprint()
    job = a_job("j", gpus, count, required)
    held = {}
    for name in sorted(dict.fromkeys(types)):
        trial = GangTrial(fit, Packing(), a_job("j", gpus, count, required, task={"gpu_types": (name,)}))
        held[name] = trial.seat()
        trial.undo()
    trial = GangTrial(fit, packing("pack"), job)
    fits = trial.seat()
    trial.undo()
    assert fit.capacity.fingerprint() == before
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gangs, "TASKS_MANY", 1 if many else 64)
        trial = GangTrial(fit, Packing(), job)
        assert trial.seat() == fits or not fits
        used = {fit.capacity.topology.nodes[seat.booking.node].gpu_type for seat in trial.seats}
    assert len(used) <= 1 or not any(held.values())
    assert bool(used) or not any(held.values())
    trial.undo()
    assert fit.capacity.fingerprint() == before
