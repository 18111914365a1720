"""What operators say of nodes and of single GPUs."""

from __future__ import annotations

from phalanx.cluster.cluster import Health
from phalanx.engine.state.state import State
from phalanx.protocol.event import DeviceHealthChanged, Event, NodeHealthChanged
from phalanx.server.loop.wire import ChangeNode
from phalanx.server.refusal import Refusal


def need_rest(state: State, change: ChangeNode) -> None:
    """Raises a refusal if a drain would leave too few nodes whole. One node may be out of service in any case."""
    if change.share_max >= 1.0 or change.health == Health.HEALTHY:
        return
    nodes, out = state.topology.nodes, _out(state)
    most = max(int(len(nodes) * change.share_max), 1)
    if change.node in out or len(out) < most:
        return
    raise Refusal(
        "conflict",
        f"node {change.node} is not drained: {len(out)} of {len(nodes)} nodes are out of service already, and checks "
        f"may have {most} be so; see what is wrong with them, then drain it by hand or allow more (--drain-max)",
    )


def _out(state: State) -> dict[str, None]:
    """Nodes that take no work, or have GPUs that take none."""
    capacity = state.capacity
    return {
        node.name: None
        for number, node in enumerate(state.topology.nodes)
        if capacity.health[number] not in (Health.HEALTHY, Health.SPARE) or capacity.unhealthy[number]
    }


def events_of(change: ChangeNode) -> list[Event]:
    """A change of a node's health, or of the GPUs that it names."""
    health = Health(change.health)
    if not change.gpus:
        return [NodeHealthChanged(change.node, health, change.reason)]
    return [DeviceHealthChanged(change.node, gpu, health, change.reason) for gpu in change.gpus]
