"""Ranks: which device of a placement is which rank of a job's parallel plan, and what a step then costs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import pairwise

from phalanx.cluster.cluster import CLUSTER, NODE
from phalanx.cluster.topology import Topology
from phalanx.placement.cost import StepCost, step_cost
from phalanx.placement.fabric import Fabric, Path
from phalanx.placement.mesh import lay_out
from phalanx.placement.placement import Placement, Slot
from phalanx.workload.job import Job
from phalanx.workload.parallel import ParallelPlan, Traffic

DEFAULT_TRAFFIC = Traffic(layers=80, micro_batches=8)
"""For a job that has a plan but says nothing of its sizes: those of a 70B model."""


Device = tuple[str, int]
"""A node's name and the number of a device of it."""


def fabric_of(topology: Topology, gpu_types: Collection[str] = ()) -> Fabric:
    """The cluster's links, one per index of a device's position; defaults are those of the GPU types, or of all.

    A domain has as many lanes as may send out of it at once. A level that is as fast as the next one inside it tells
    nothing apart, except at the border of the node, where network cards may be fewer than GPUs.
    """
    levels = topology.cluster.levels
    given = [topology.link(level, gpu_types) for level in (CLUSTER, *levels)]
    links = [
        link if link.lanes > 1 else replace(link, lanes=topology.lanes(level))
        for link, level in zip(given, levels, strict=False)
    ]
    same = [
        i
        for i, (outer, inner) in enumerate(pairwise(given))
        if outer == inner and outer.lanes == 1 and levels[i] != NODE
    ]
    return Fabric((*levels, "device"), (*links, given[-1]), tuple(same))


def ranked(topology: Topology, job: Job, slots: tuple[Slot, ...]) -> Placement:
    """Slots numbered anew, so that a step of the job's plan is cheap, and which device then is which parallel rank.

    A launcher numbers its processes task by task, so ranks go through the devices as the slots stand. Where tasks have
    several devices, the mesh may be cheaper than that: what a program gains that makes its groups by coordinates.
    """
    ranks = _ranks(topology, job, slots)
    if ranks is None:
        return Placement(slots)
    ordered = ranks.ordered(slots)
    return Placement(ordered, ranks.mesh(ordered))


def with_mesh(topology: Topology, job: Job, placement: Placement) -> Placement:
    """The placement with its devices by parallel rank, if the job has a plan that fits its size.

    Slots stay as they are: a member that stays when members join or leave keeps its place among those that stay.
    """
    ranks = _ranks(topology, job, placement.slots)
    return placement if ranks is None else replace(placement, mesh=ranks.mesh(placement.slots))


def plan_for(job: Job, gpus: int) -> ParallelPlan | None:
    """The job's plan at a size: an elastic job has more or fewer data-parallel replicas."""
    plan = job.parallel
    if plan is None or not gpus or gpus % (plan.tp * plan.pp):
        return None
    return replace(plan, dp=gpus // (plan.tp * plan.pp))


def communication(topology: Topology, job: Job, placement: Placement) -> StepCost | None:
    """What a step of the job spends on communication where it lies; None for a job without a plan."""
    plan = plan_for(job, placement.gpus)
    if plan is None or not placement.mesh:
        return None
    paths = _paths(topology, placement.mesh)
    fabric = fabric_of(topology, _gpu_types(topology, placement.mesh))
    return step_cost(plan, job.traffic or DEFAULT_TRAFFIC, paths, fabric)


def _ranks(topology: Topology, job: Job, slots: Sequence[Slot]) -> _Ranks | None:
    """None if the job has no plan, or none of this size, or if tasks share a device, of which each would be a rank."""
    devices = _devices(slots)
    plan = plan_for(job, len(devices))
    if plan is None or len(set(devices)) < len(devices):
        return None
    return _Ranks(topology, plan, job.traffic or DEFAULT_TRAFFIC, devices)


class _Ranks:
    """The orders in which the devices of a placement can be the ranks of a plan."""

    def __init__(self, topology: Topology, plan: ParallelPlan, traffic: Traffic, devices: tuple[Device, ...]) -> None:
        self._topology = topology
        self._plan = plan
        self._traffic = traffic
        self._fabric = fabric_of(topology, _gpu_types(topology, devices))
        self._devices = devices

    def ordered(self, slots: tuple[Slot, ...]) -> tuple[Slot, ...]:
        """The slots in the cheapest order, ranked anew from the first; what is nested in a role stays as it is."""
        if any("/" in slot.role for slot in slots):
            return slots
        rank_of = {device: rank for rank, device in enumerate(self._laid_out)}
        orders = dict.fromkeys((slots, *(_sorted(slots, rank_of, key) for key in (min, sum))))
        best = min(orders, key=lambda order: self._step_ms(_devices(order))) if len(orders) > 1 else slots
        return tuple(replace(slot, rank=rank) for rank, slot in enumerate(best, start=slots[0].rank))

    def mesh(self, slots: tuple[Slot, ...]) -> tuple[Device, ...]:
        """The devices by rank: as the slots stand, unless several go to a task and another order is cheaper."""
        as_they_stand = _devices(slots)
        if all(len(slot.devices) <= 1 for slot in slots) or self._laid_out == as_they_stand:
            return as_they_stand
        return min((as_they_stand, self._laid_out), key=self._step_ms)

    @cached_property
    def _laid_out(self) -> tuple[Device, ...]:
        """The cheapest order that is found, whatever task a device belongs to."""
        paths = _paths(self._topology, self._devices)
        orders = (
            lay_out(paths, self._plan, self._traffic, self._fabric, within) for within in _tp_levels(self._topology)
        )
        return next((tuple(self._devices[i] for i in order) for order in orders if order is not None), self._devices)

    def _step_ms(self, devices: tuple[Device, ...]) -> float:
        return step_cost(self._plan, self._traffic, _paths(self._topology, devices), self._fabric).total_ms


def _sorted(
    slots: tuple[Slot, ...], rank_of: Mapping[Device, int], key: Callable[[Iterable[int]], int]
) -> tuple[Slot, ...]:
    """The slots of each role by the ranks that a layout gives their devices, in the places that the role has."""
    ordered = sorted(slots, key=lambda slot: key([rank_of[slot.node, device] for device in slot.devices] or [0]))
    turns: dict[str, list[Slot]] = {}
    for slot in reversed(ordered):
        turns.setdefault(slot.role, []).append(slot)
    return tuple(turns[slot.role].pop() for slot in slots)


def _devices(slots: Sequence[Slot]) -> tuple[Device, ...]:
    return tuple((slot.node, device) for slot in slots for device in slot.devices)


def _paths(topology: Topology, devices: Sequence[Device]) -> list[Path]:
    return [topology.position(topology.number[node], device) for node, device in devices]


def _gpu_types(topology: Topology, devices: Sequence[Device]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(topology.nodes[topology.number[node]].gpu_type for node, _ in devices))


def _tp_levels(topology: Topology) -> tuple[int, ...]:
    """Lengths of path prefixes that a TP group may share: the node first, wider domains only if no node will do."""
    node = topology.cluster.levels.index(NODE) + 1
    return tuple(range(node, -1, -1))
