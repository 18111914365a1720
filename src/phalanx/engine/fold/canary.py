"""Canaries: jobs that run on a suspect node, which takes no other new work, to find out whether it is well again."""

from __future__ import annotations

from phalanx.cluster.bits import members
from phalanx.cluster.cluster import Health
from phalanx.engine.fold.attempts import open_attempt
from phalanx.engine.state.state import State
from phalanx.placement.placement import Placement, Slot
from phalanx.protocol.event import CanaryPlaced
from phalanx.protocol.plan import Claim
from phalanx.workload.gang import Task
from phalanx.workload.job import Job


def check_canary(state: State, event: CanaryPlaced) -> None:
    """Raises ValueError if a job cannot run as canary on a node as things are."""
    record, number = state.record(event.job), state.topology.number.get(event.node)
    if number is None:
        raise ValueError(f"there is no node {event.node!r}")
    if state.cells is not None:
        raise ValueError(f"canary {event.job}: the cells of virtual clusters say where jobs go, and know no canaries")
    if not record.held or record.attempt is not None or record.final is not None or record.kept is not None:
        raise ValueError(f"canary {event.job} {record.state.sentence}: only a held job that is pending is placed")
    if state.capacity.health[number] is not Health.SUSPECT:
        health = state.capacity.health[number].value
        raise ValueError(f"canary {event.job}: node {event.node} is {health}, only a suspect one needs a canary")
    task = task_of(record.job)
    if task is None:
        raise ValueError(f"canary {event.job}: expected a job of one task with whole GPUs")
    free = devices_for(state, number, task.gpus)
    if free is None:
        raise ValueError(f"canary {event.job}: node {event.node} has no {task.gpus} devices that nothing holds")


def task_of(job: Job) -> Task | None:
    """The only task of a job, with whole GPUs; None of a job of another kind."""
    roles = job.gang.roles
    if len(roles) != 1 or roles[0].members or roles[0].replicas_max != 1 or roles[0].task.share is not None:
        return None
    return roles[0].task


def devices_for(state: State, node: int, gpus: int) -> tuple[int, ...] | None:
    """The first devices of a node that nothing holds and that are not broken; None if there are too few."""
    free = list(members(state.capacity.unused(node) & ~state.capacity.unhealthy[node]))
    return tuple(free[:gpus]) if len(free) >= gpus else None


def place_canary(state: State, event: CanaryPlaced) -> None:
    """Gives a canary a claim on devices of its node: the next decision starts it there."""
    record, number = state.jobs[event.job], state.topology.number[event.node]
    task = task_of(record.job)
    devices = devices_for(state, number, task.gpus) if task is not None else None
    assert devices is not None, f"canary {event.job} was checked"
    slot = Slot(0, record.job.gang.roles[0].name, event.node, devices)
    open_attempt(state, Claim(event.job, record.next_attempt, Placement((slot,)), waits=True))
