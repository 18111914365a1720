"""Spares: idle nodes that take no work but that of jobs which have lost a node."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import TracebackType

from phalanx.cluster.bits import members
from phalanx.cluster.capacity import Booking
from phalanx.cluster.cluster import Health
from phalanx.engine.state.state import State


class SparesOpened:
    """A block in which spares take work as any other node does."""

    def __init__(self, state: State) -> None:
        self.capacity = state.capacity
        self.nodes = list(members(state.capacity.with_health[Health.SPARE]))

    def __enter__(self) -> None:
        self._set(Health.HEALTHY)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._set(Health.SPARE)

    def _set(self, health: Health) -> None:
        grown = self.capacity.grown
        for node in self.nodes:
            self.capacity.set_health(node, health)
        self.capacity.grown = grown


def settle(state: State) -> None:
    """Has every domain have its spares: the last of its nodes that are idle. What is too many takes work again."""
    recovery, capacity = state.cluster.recovery, state.capacity
    wanted = recovery.spares if recovery is not None else 0
    for first, last in _domains(state):
        spares = [node for node in range(first, last) if capacity.health[node] is Health.SPARE]
        for node in spares[: max(len(spares) - wanted, 0)]:
            capacity.set_health(node, Health.HEALTHY)
        lacking = wanted - len(spares)
        if lacking <= 0:
            continue
        idle = (node for node in reversed(range(first, last)) if _is_idle(state, node))
        for node, _ in zip(idle, range(lacking), strict=False):
            capacity.set_health(node, Health.SPARE)
            state.reservations_stale = True
            if state.replacing:
                # A job may have been waiting for just that.
                capacity.grown |= state.topology.bit[node]


def take(state: State, bookings: Iterable[Booking]) -> None:
    """Spares that a job gets are nodes like any other from now on."""
    for booking in bookings:
        if state.capacity.health[booking.node] is Health.SPARE:
            state.capacity.set_health(booking.node, Health.HEALTHY)


def _domains(state: State) -> Iterator[tuple[int, int]]:
    recovery, topology = state.cluster.recovery, state.topology
    if recovery is None or recovery.per not in topology.domains:
        yield 0, len(topology.nodes)
        return
    for domain in topology.domains[recovery.per]:
        yield domain.first, domain.last


def _is_idle(state: State, node: int) -> bool:
    capacity = state.capacity
    return (
        capacity.health[node] is Health.HEALTHY
        and not state.on_node.get(node)
        and node not in capacity.foreign
        and bool(capacity.all_devices[node])
        and capacity.free[node] == capacity.all_devices[node]
        and state.topology.nodes[node].name not in state.closed
    )
