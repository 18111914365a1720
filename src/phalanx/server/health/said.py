"""What operators say of nodes and of single GPUs."""

from __future__ import annotations

from phalanx.cluster.cluster import Health
from phalanx.protocol.event import DeviceHealthChanged, Event, NodeHealthChanged
from phalanx.server.loop.wire import ChangeNode


def events_of(change: ChangeNode) -> list[Event]:
    """A change of a node's health, or of the GPUs that it names."""
    health = Health(change.health)
    if not change.gpus:
        return [NodeHealthChanged(change.node, health, change.reason)]
    return [DeviceHealthChanged(change.node, gpu, health, change.reason) for gpu in change.gpus]
