"""Ranks: which device of a placement is which rank of a job's parallel plan, and what a step then costs."""

from __future__ import annotations

from dataclasses import replace

from phalanx.cluster.cluster import CLUSTER, NODE
from phalanx.cluster.topology import Topology
from phalanx.placement.cost import StepCost, step_cost
from phalanx.placement.fabric import Fabric, Path
from phalanx.placement.mesh import lay_out
from phalanx.placement.placement import Placement
from phalanx.workload.job import Job
from phalanx.workload.parallel import ParallelPlan, Traffic

DEFAULT_TRAFFIC = Traffic(layers=80, micro_batches=8)
"""For a job that has a plan but says nothing of its sizes: those of a 70B model."""


def fabric_of(topology: Topology) -> Fabric:
    """The cluster's links, one per index of a device's position. Each network card of a node is a lane out of it."""
    levels = topology.cluster.levels
    links = [topology.link(level) for level in (CLUSTER, *levels)]
    at = levels.index(NODE)
    cards = max((node.nics for node in topology.nodes), default=0)
    links[at] = replace(links[at], lanes=max(links[at].lanes, cards))
    return Fabric((*levels, "device"), tuple(links))


def with_mesh(topology: Topology, job: Job, placement: Placement) -> Placement:
    """The placement with its devices in rank order; as it is, if the job has no plan or no plan fits its size."""
    plan = plan_for(job, placement.gpus)
    if plan is None:
        return placement
    devices = [(slot.node, device) for slot in placement.slots for device in slot.devices]
    paths = _paths(topology, devices)
    fabric = fabric_of(topology)
    for within in _tp_levels(topology):
        order = lay_out(paths, plan, job.traffic or DEFAULT_TRAFFIC, fabric, within)
        if order is not None:
            return replace(placement, mesh=tuple(devices[i] for i in order))
    return placement


def plan_for(job: Job, gpus: int) -> ParallelPlan | None:
    """The job's plan at a size: an elastic job has more or fewer data-parallel replicas."""
    plan = job.parallel
    if plan is None or gpus % (plan.tp * plan.pp):
        return None
    return replace(plan, dp=gpus // (plan.tp * plan.pp))


def communication(topology: Topology, job: Job, placement: Placement) -> StepCost | None:
    """What a step of the job spends on communication where it lies; None for a job without a plan."""
    plan = plan_for(job, placement.gpus)
    if plan is None or not placement.mesh:
        return None
    paths = _paths(topology, list(placement.mesh))
    return step_cost(plan, job.traffic or DEFAULT_TRAFFIC, paths, fabric_of(topology))


def _paths(topology: Topology, devices: list[tuple[str, int]]) -> list[Path]:
    return [topology.position(topology.number[node], device) for node, device in devices]


def _tp_levels(topology: Topology) -> tuple[int, ...]:
    """Lengths of path prefixes that a TP group may share: the node first, wider domains only if no node will do."""
    node = topology.cluster.levels.index(NODE) + 1
    return tuple(range(node, -1, -1))
