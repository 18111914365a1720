"""Free capacity: bookings that are held, ceded, claimed and given back, and the indexes over them."""

from __future__ import annotations

import pytest

from builders import racked
from phalanx.cluster.amount import THRESHOLDS_MAX
from phalanx.cluster.capacity import CPUS, CPUS_LIMIT, MEMORY, Booking, Capacity
from phalanx.cluster.cluster import Cluster, Health, Node, Overcommit, flat
from phalanx.cluster.topology import Topology


def capacity_of(cluster: Cluster) -> Capacity:
    return Capacity(Topology(cluster))


@pytest.fixture
def one() -> Capacity:
    """One node of four GPUs and ten CPUs."""
    return capacity_of(Cluster((Node("n0", (), 4, cpus_milli=10_000),)))


def booking(devices: int, cpus: int = 0, node: int = 0) -> Booking:
    return Booking(node, devices, ((CPUS, cpus),) if cpus else ())


def test_what_is_held_is_not_free_and_what_is_released_is_free_again(one: Capacity) -> None:
    one.hold(booking(0b0011, 4_000))
    assert one.free == [0b1100]
    assert one.amounts[CPUS].free == [6_000]
    one.release(booking(0b0011, 4_000))
    assert one.free == [0b1111]
    assert one.amounts[CPUS].free == [10_000]
    one.check()


def test_a_device_given_twice_is_an_error(one: Capacity) -> None:
    one.hold(booking(0b0001))
    with pytest.raises(AssertionError, match="n0: a device is given twice"):
        one.hold(booking(0b0011))


def test_a_device_returned_by_somebody_who_did_not_hold_it_is_an_error(one: Capacity) -> None:
    with pytest.raises(AssertionError, match="n0: a device is returned"):
        one.release(booking(0b0001))


def test_a_claim_on_a_kept_device_is_an_error(one: Capacity) -> None:
    one.hold(booking(0b0001))
    with pytest.raises(AssertionError, match="n0: a claim on a kept device"):
        one.claim(booking(0b0001))


def test_a_device_claimed_twice_is_an_error(one: Capacity) -> None:
    one.claim(booking(0b0001))
    with pytest.raises(AssertionError, match="n0: a device is claimed twice"):
        one.claim(booking(0b0001))


def test_a_ceded_device_can_be_claimed_and_is_free_for_nobody_else(one: Capacity) -> None:
    victim, head = booking(0b0011), booking(0b0110)
    one.hold(victim)
    one.cede(victim)
    assert one.free == [0b1100], "ceding frees nothing yet"
    one.claim(head)
    assert one.free == [0b1000]
    one.keep(victim)
    one.release(victim)
    assert one.free == [0b1001]
    one.unclaim(head)
    one.hold(head)
    assert one.free == [0b1001]
    one.check()


def test_a_claim_that_is_taken_back_leaves_the_holder_as_it_was(one: Capacity) -> None:
    victim = booking(0b0011, 4_000)
    one.hold(victim)
    one.cede(victim)
    before = one.fingerprint()
    one.claim(booking(0b0001, 1_000))
    one.unclaim(booking(0b0001, 1_000))
    assert one.fingerprint() == before


def test_what_a_leaving_holder_cedes_counts_for_one_claim_only(one: Capacity) -> None:
    one.hold(booking(0b0001, 8_000))
    one.cede(booking(0b0001, 8_000))
    assert one.amounts[CPUS].free == [2_000]
    one.claim(booking(0b0001, 9_000))
    assert one.amounts[CPUS].free == [1_000], "what is left beside the claim once the holder is gone"
    one.keep(booking(0b0001, 8_000))
    one.release(booking(0b0001, 8_000))
    assert one.amounts[CPUS].free == [1_000]


def test_limits_may_exceed_what_there_is_by_the_overcommit_and_requests_may_not() -> None:
    capacity = capacity_of(Cluster((Node("n0", cpus_milli=10_000, memory_mb=100),), overcommit=Overcommit(1.5, 2.0)))
    assert capacity.amounts[CPUS].total == [10_000]
    assert capacity.amounts[CPUS_LIMIT].total == [15_000]
    assert capacity.amounts[MEMORY].total == [100]


def test_storage_tiers_are_amounts_in_the_order_of_the_file() -> None:
    nodes = (Node("n0", storage_gb=(("nvme", 10),)), Node("n1", storage_gb=(("hdd", 50), ("nvme", 20))))
    capacity = capacity_of(Cluster(nodes))
    number = capacity.amount_number["storage.nvme"]
    assert number < capacity.amount_number["storage.hdd"]
    assert capacity.amounts[number].total == [10, 20]


def test_nodes_with_at_least_an_amount_are_known_however_many_amounts_are_asked_for() -> None:
    capacity = capacity_of(Cluster(tuple(Node(f"n{i}", cpus_milli=i) for i in range(300))))
    cpus = capacity.amounts[CPUS]
    for need in range(1, THRESHOLDS_MAX * 2):
        assert cpus.at_least(need).bit_count() == 300 - need
    cpus.hold(200, 150)
    assert cpus.at_least(100).bit_count() == 199
    assert cpus.at_least(50).bit_count() == 250
    capacity.check()


def test_domains_with_room_come_tightest_first_and_follow_every_change() -> None:
    capacity = capacity_of(racked(3, 2, gpus=8))

    def rooms(gpus: int, tasks: int) -> list[str]:
        return [domain.name for domain in capacity.rooms("rack", (0,), gpus, tasks, 0, 6)]

    assert rooms(8, 2) == ["r0", "r1", "r2"]
    capacity.hold(booking(0xFF, node=2))
    capacity.hold(booking(0b1, node=4))
    assert rooms(8, 1) == ["r1", "r2", "r0"]
    assert rooms(8, 2) == ["r0"]
    assert rooms(4, 3) == ["r2", "r0"], "a node with seven free takes one task of four, not two"
    capacity.release(booking(0xFF, node=2))
    assert rooms(8, 2) == ["r0", "r1"]
    capacity.check()


def test_only_the_kinds_asked_for_count_as_room() -> None:
    nodes = (Node("a", ("r0",), 8, "A"), Node("b", ("r0",), 8, "B"), Node("c", ("r1",), 8, "B"))
    capacity = capacity_of(Cluster(nodes, ("rack", "node")))
    assert capacity.gpu_types == ("A", "B")
    assert [domain.name for domain in capacity.rooms("rack", (1,), 8, 1, 0, 3)] == ["r0", "r1"]
    assert [domain.name for domain in capacity.rooms("rack", (0,), 8, 1, 0, 3)] == ["r0"]
    assert [domain.name for domain in capacity.rooms("rack", (0, 1), 8, 2, 0, 3)] == ["r0"]


@pytest.mark.parametrize("health", [Health.SUSPECT, Health.DRAINING, Health.FAILED])
def test_only_a_healthy_node_is_open_for_new_work(health: Health) -> None:
    capacity = capacity_of(flat(2, 4))
    capacity.set_health(0, health)
    assert capacity.free == [0, 0b1111]
    assert capacity.open == 0b10
    assert capacity.free_gpus(0b11) == 4
    capacity.set_health(0, Health.HEALTHY)
    assert capacity.free == [0b1111, 0b1111]
    capacity.check()


@pytest.mark.parametrize("health", [Health.SUSPECT, Health.DRAINING, Health.FAILED])
def test_only_a_healthy_device_is_free(one: Capacity, health: Health) -> None:
    one.set_device_health(0, 2, health)
    assert one.free == [0b1011]
    assert one.open == 1
    one.set_device_health(0, 2, Health.HEALTHY)
    assert one.free == [0b1111]
    one.check()


def test_what_a_sick_device_holder_gives_back_stays_closed_until_it_is_healthy(one: Capacity) -> None:
    one.hold(booking(0b0100))
    one.set_device_health(0, 2, Health.FAILED)
    one.release(booking(0b0100))
    assert one.free == [0b1011]


def test_growth_is_remembered_by_node_until_it_is_looked_at() -> None:
    capacity = capacity_of(flat(3, 4))
    capacity.hold(booking(0b1, node=1))
    assert capacity.grown == 0
    capacity.release(booking(0b1, node=1))
    capacity.set_health(2, Health.FAILED)
    assert capacity.grown == 0b010
    capacity.set_health(2, Health.HEALTHY)
    assert capacity.grown == 0b110
