"""Spares: idle nodes that take no work but that of jobs which have lost a node."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import TracebackType

from phalanx.cluster.bits import members, span
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
    """Has every domain have its spares: the last of its nodes that are idle.

    No domain ever gets more, so that where there are as many as there should be, all domains have theirs.
    """
    recovery, capacity, topology = state.cluster.recovery, state.capacity, state.topology
    wanted = recovery.spares if recovery is not None else 0
    # Asked at every record: mostly there is nothing to do.
    there = capacity.with_health[Health.SPARE].bit_count()
    idle_nodes = capacity.open & capacity.idle
    if there == wanted * _domain_count(state) or not idle_nodes:
        return
    for domain in _domains(state):
        spares = capacity.with_health[Health.SPARE] & domain
        lacking = wanted - spares.bit_count()
        idle = idle_nodes & domain if lacking > 0 else 0
        while idle and lacking > 0:
            node = idle.bit_length() - 1
            idle ^= topology.bit[node]
            if _is_idle(state, node):
                _keep(state, node)
                lacking -= 1


def settle_anew(state: State) -> None:
    """Likewise in another cluster, in which nodes may lie in other domains."""
    for node in members(state.capacity.with_health[Health.SPARE]):
        state.capacity.set_health(node, Health.HEALTHY)
    settle(state)


def _keep(state: State, node: int) -> None:
    state.capacity.set_health(node, Health.SPARE)
    state.reservations_stale = True
    if state.replacing:
        # A job may have been waiting for just that.
        state.capacity.grown |= state.topology.bit[node]


def take(state: State, bookings: Iterable[Booking]) -> None:
    """Spares that a job gets are nodes like any other from now on."""
    for booking in bookings:
        if state.capacity.health[booking.node] is Health.SPARE:
            state.capacity.set_health(booking.node, Health.HEALTHY)


def _domain_count(state: State) -> int:
    recovery, domains = state.cluster.recovery, state.topology.domains
    return len(domains[recovery.per]) if recovery is not None and recovery.per in domains else 1


def _domains(state: State) -> Iterator[int]:
    """The nodes of each domain."""
    recovery, topology = state.cluster.recovery, state.topology
    if recovery is None or recovery.per not in topology.domains:
        yield topology.everything
        return
    for domain in topology.domains[recovery.per]:
        yield span(domain.first, domain.last)


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
