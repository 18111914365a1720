"""How much of what is free nobody could use."""

from __future__ import annotations

from phalanx.cluster.capacity import Booking, Capacity
from phalanx.cluster.cluster import Cluster, Health, Node
from phalanx.cluster.topology import Topology
from phalanx.placement.fit import Fit
from phalanx.placement.fragmentation import fragmentation, largest_gang
from phalanx.workload.gang import Gang, Role, Task
from phalanx.workload.job import Job

JOB = Job("1", Gang((Role(),)))


def capacity_with_free(*free: int) -> Capacity:
    """Nodes of eight GPUs in racks of two, with so many left free."""
    nodes = tuple(Node(f"n{i}", (f"r{i // 2}",), 8) for i in range(len(free)))
    capacity = Capacity(Topology(Cluster(nodes, ("rack", "node"))))
    for i, left in enumerate(free):
        capacity.hold(Booking(i, (1 << 8 - left) - 1, ()))
    return capacity


def test_free_gpus_on_nodes_that_take_no_task_of_the_mix_are_lost() -> None:
    fit = Fit(capacity_with_free(4, 4))
    assert fragmentation(fit, {Task(gpus=8): 1.0}, JOB) == 1.0
    assert fragmentation(fit, {Task(gpus=4): 1.0}, JOB) == 0.0


def test_the_rest_beside_the_tasks_that_fit_is_lost() -> None:
    fit = Fit(capacity_with_free(3, 5))
    assert fragmentation(fit, {Task(gpus=2): 1.0}, JOB) == 2 / 8


def test_a_mix_is_the_mean_of_its_tasks_by_weight() -> None:
    fit = Fit(capacity_with_free(4, 4))
    assert fragmentation(fit, {Task(gpus=8): 1.0, Task(gpus=4): 3.0}, JOB) == 0.25


def test_a_full_cluster_is_not_fragmented() -> None:
    assert fragmentation(Fit(capacity_with_free(0, 0)), {Task(gpus=1): 1.0}, JOB) == 0.0


def test_the_largest_gang_is_told_for_the_cluster_and_for_a_level() -> None:
    capacity = capacity_with_free(8, 4, 8, 8)
    assert largest_gang(capacity, 8) == 3
    assert largest_gang(capacity, 8, "rack") == 2
    assert largest_gang(capacity, 2, "node") == 4
    capacity.set_health(2, Health.DRAINING)
    assert largest_gang(capacity, 8, "rack") == 1
