"""Devices in the view: which jobs have each GPU of a node, and what it is used for."""

from __future__ import annotations

from typing import Any

import msgspec

from phalanx.cluster.bits import members
from phalanx.cluster.cluster import Health
from phalanx.cluster.device import DeviceLoad
from phalanx.engine.state.records import AttemptRecord, Phase
from phalanx.engine.state.state import State

FREE, CLAIMED, SUSPENDED, ALLOCATED, RUNNING = "free", "claimed", "suspended", "allocated", "running"
USES = (FREE, CLAIMED, SUSPENDED, ALLOCATED, RUNNING)
"""What a device may be used for. Of several on one device, the last counts."""

PHASE_USE = {
    Phase.RUNNING: RUNNING,
    Phase.RESIZING: RUNNING,
    Phase.SUSPENDING: SUSPENDED,
    Phase.SUSPENDED: SUSPENDED,
    Phase.RESUMING: SUSPENDED,
}
"""The use of what an attempt holds; allocated, where nothing else is said: it is being started or stopped."""


class Part(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a task has of a device that is shared."""

    job: str
    rank: int
    mode: str
    compute_permille: int
    memory_mb: int
    profile: str = ""
    offset: int | None = None


class Device(msgspec.Struct, frozen=True, omit_defaults=True):
    """A GPU: its use, the jobs that have or claim it, its health where it differs from its node's, and how it is
    shared. `instances` are those of MIG: where each begins, and its profile.
    """

    use: str = FREE
    jobs: list[str] = []
    health: str = ""
    parts: list[Part] = []
    instances: list[tuple[int, str]] = []


_devices = msgspec.json.Decoder(list[Device])


def devices_of(text: str) -> list[Device]:
    """The devices of a node, from its row."""
    return _devices.decode(text)


def devices_on(state: State, number: int) -> list[Device]:
    """The devices of a node, by their numbers. Those that foreign work holds are allocated, and have no job."""
    count, foreign = state.topology.nodes[number].gpus, state.capacity.foreign.get(number)
    taken = 0 if foreign is None else foreign.devices
    uses = [ALLOCATED if taken >> device & 1 else FREE for device in range(count)]
    jobs: list[dict[str, None]] = [{} for _ in range(count)]
    for attempt in state.on_node.get(number, {}).values():
        use = _use(attempt)
        for booking in attempt.bookings:
            if booking.node == number:
                for device in members(booking.devices):
                    uses[device] = max(uses[device], use, key=USES.index)
                    jobs[device][attempt.job.id] = None
    capacity = state.capacity
    return [
        Device(
            uses[device],
            list(jobs[device]),
            _health(capacity.device_health.get((number, device))),
            *_shared(capacity.loads.get((number, device))),
        )
        for device in range(count)
    ]


def out_of_service(devices: list[Device]) -> list[dict[str, Any]]:
    """The devices of a node that take no new work of themselves, whatever becomes of their node."""
    return [{"gpu": number, "health": device.health} for number, device in enumerate(devices) if device.health]


def _use(attempt: AttemptRecord) -> str:
    return CLAIMED if attempt.waits else PHASE_USE.get(attempt.phase, ALLOCATED)


def _health(health: Health | None) -> str:
    return "" if health is None or health is Health.HEALTHY else health.value


def _shared(load: DeviceLoad | None) -> tuple[list[Part], list[tuple[int, str]]]:
    """How a device is shared, and into which instances it is cut."""
    if load is None:
        return [], []
    parts = [
        Part(
            holder.rpartition("#")[0],
            int(holder.rpartition("#")[2]) if holder.rpartition("#")[2].isdecimal() else 0,
            portion.mode.value,
            portion.compute_permille,
            portion.memory_mb,
            portion.mig_profile or "",
            portion.mig_offset,
        )
        for holder, portion in load.holders.items()
    ]
    return parts, [(instance.offset, instance.profile) for instance in load.layout or ()]
