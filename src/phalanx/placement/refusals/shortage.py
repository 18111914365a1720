"""Shortages: what keeps a part of a device off the devices there are. Worked out on request."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

from phalanx.cluster.bits import members
from phalanx.cluster.capacity import MB_PER_GB
from phalanx.cluster.device import DeviceLoad, Mode, Obstacle, Portion, add, fit, obstacle
from phalanx.cluster.mig import GEOMETRIES
from phalanx.placement.fit import Fit
from phalanx.placement.place import largest_task
from phalanx.workload.job import Job


class Barrier(StrEnum):
    """What keeps a part off a device, from what leaves least hope to what leaves most."""

    TAKEN = "taken"
    PROMISED = "promised"
    UNSUPPORTED = "unsupported"
    MODE = "mode"
    SLOT = "slot"
    MEMORY = "memory"
    COMPUTE = "compute"


NEAR = (Barrier.MEMORY, Barrier.COMPUTE, Barrier.SLOT)
"""What keeps a part off a device that is shared as it asks."""


@dataclass(frozen=True, slots=True)
class Shortage:
    """Parts of devices that a job asks for, and why so many devices do not give one.

    `tasks` ask for a part each, and the devices have room for `tasks_most`. `barriers` count the `devices` of healthy
    nodes that it could use and that give none, by what keeps it off. `modes` are those in which devices are shared
    otherwise. Of the devices that are shared as it asks, the one that comes nearest has `memory_mb_most` and
    `compute_permille_most` left, and what it would take there is `wanted`.
    """

    wanted: Portion
    tasks: int
    tasks_most: int
    devices: int
    barriers: tuple[tuple[Barrier, int], ...]
    modes: tuple[Mode, ...]
    memory_mb_most: int
    compute_permille_most: int

    @property
    def barrier(self) -> Barrier | None:
        """What to tell first: of devices that are shared as it asks, what most of them lack; else the most hopeful."""
        counts = dict(self.barriers)
        near = [each for each in NEAR if each in counts]
        if near:
            return max(near, key=lambda each: counts[each])
        return max(counts, key=list(Barrier).index, default=None)


class _Device(NamedTuple):
    """A device, what the job would take of it, and what stands in the way where it is not shared."""

    load: DeviceLoad
    wanted: Portion
    barrier: Barrier | None


def shortage(fit: Fit, job: Job) -> Shortage | None:
    """What the parts of devices that a job asks for lack; None if its largest task takes whole devices."""
    task, count = largest_task(job)
    ask = fit.ask(task, job)
    if not ask.portions or not any(ask.portions):
        return None
    by_compute = task.share is not None and task.share.memory_mb is None
    devices = list(_devices(fit, ask.portions, ask.eligible & fit.capacity.open))
    found = [each.barrier or _barrier(each, by_compute) for each in devices]
    told = list(zip(devices, found, strict=True))
    nearest = max((each for each in told if each[1] in NEAR), key=_left, default=(None, None))[0]
    return Shortage(
        next(portion for portion in ask.portions if portion is not None) if nearest is None else nearest.wanted,
        count,
        sum(_room(each) for each, why in told if why is None),
        len(devices),
        tuple((barrier, found.count(barrier)) for barrier in Barrier if barrier in found),
        tuple(dict.fromkeys(each.load.mode for each, why in told if why is Barrier.MODE and each.load.mode)),
        nearest.load.free_mb if nearest is not None else 0,
        nearest.load.free_permille if nearest is not None else 0,
    )


def _left(told: tuple[_Device, Barrier | None]) -> tuple[int, int]:
    """How near a device comes to giving a part: by what it lacks."""
    (load, wanted, _), barrier = told
    memory_mb, compute = load.free_mb - wanted.memory_mb, load.free_permille - wanted.compute_permille
    return (compute, memory_mb) if barrier is Barrier.COMPUTE else (memory_mb, compute)


def _devices(fit: Fit, portions: tuple[Portion | None, ...], nodes: int) -> Iterator[_Device]:
    capacity = fit.capacity
    for node in members(nodes):
        wanted = portions[fit.kind_of[node]]
        if wanted is None:
            continue
        spec = capacity.topology.nodes[node]
        model = spec.gpu_type if spec.gpu_type in GEOMETRIES else None
        empty = DeviceLoad(model, int(spec.gpu_memory_gb * MB_PER_GB))
        usable, shared, free = capacity.usable_shares(node), capacity.shared[node], capacity.free[node]
        for device in members(capacity.all_devices[node] & ~capacity.unhealthy[node]):
            load = capacity.loads.get((node, device), empty)
            if (free | usable) >> device & 1:
                yield _Device(load, wanted, None)
            else:
                taken = not shared >> device & 1 and not capacity.claimed[node] >> device & 1
                yield _Device(load, wanted, Barrier.TAKEN if taken else Barrier.PROMISED)


def _barrier(device: _Device, by_compute: bool) -> Barrier | None:
    """What keeps a part off; memory that follows from the compute asked for is not what is told of a full device."""
    load, wanted, _ = device
    found = obstacle(load, wanted)
    if found is None:
        return None
    is_full = not wanted.revocable and wanted.compute_permille > load.free_permille
    return Barrier.COMPUTE if found is Obstacle.MEMORY and by_compute and is_full else Barrier(found.value)


def _room(device: _Device) -> int:
    """How many such parts a device still gives."""
    load = replace(device.load, holders=dict(device.load.holders))
    before = len(load.holders)
    while (held := fit(load, device.wanted)) is not None:
        add(load, f"another {len(load.holders)}", held)
        if held.revocable:
            break
    return len(load.holders) - before
