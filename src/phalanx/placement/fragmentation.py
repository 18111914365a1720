"""Fragmentation: how much of what is free no job could use, and the largest gang that fits now."""

from __future__ import annotations

from collections.abc import Mapping

from phalanx.cluster.bits import members
from phalanx.cluster.capacity import Capacity
from phalanx.placement.fit import Fit
from phalanx.workload.gang import Task
from phalanx.workload.job import Job


def fragmentation(fit: Fit, mix: Mapping[Task, float], job: Job) -> float:
    """The share of free GPUs, 0 to 1, that a mix of tasks cannot use: the mean over the mix, by its weights.

    For one task these are all free GPUs of nodes that do not take it, and on other nodes the rest that is left when as
    many are placed as fit (the measure of Weng et al., ATC 2023, for whole GPUs). The job lends labels and tolerations.
    """
    capacity = fit.capacity
    free = capacity.free_gpus(capacity.open)
    weight = sum(mix.values())
    if not free or not weight:
        return 0.0
    return sum(share * _unusable(fit, task, job) for task, share in mix.items()) / (weight * free)


def _unusable(fit: Fit, task: Task, job: Job) -> int:
    capacity = fit.capacity
    passing = fit.passing(fit.ask(task, job))
    usable = 0
    for free, nodes in enumerate(capacity.with_free):
        if free >= task.gpus > 0:
            usable += (free - free % task.gpus) * (nodes & passing).bit_count()
    return capacity.free_gpus(capacity.open) - usable


def largest_gang(capacity: Capacity, gpus: int, level: str = "") -> int:
    """How many tasks of `gpus` GPUs fit now at once: in the whole cluster, or in the roomiest domain of a level."""
    if level in capacity.topology.domains:
        return max((_tasks(capacity, gpus, domain.nodes) for domain in capacity.topology.domains[level]), default=0)
    if level in capacity.topology.cluster.levels:
        return max((capacity.free[node].bit_count() // gpus for node in members(capacity.open)), default=0)
    return _tasks(capacity, gpus, capacity.open)


def _tasks(capacity: Capacity, gpus: int, nodes: int) -> int:
    return sum([(nodes & having).bit_count() * (free // gpus) for free, having in capacity.by_free(gpus)])
