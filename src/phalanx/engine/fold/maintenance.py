"""Maintenance: nodes that are to be empty at a time known beforehand.

A job that says how long it runs is not placed where it would not have left by then. One that does not say, and may be
stopped, may run there until then. What still runs at that time is stopped with notice, and goes on elsewhere or later.
"""

from __future__ import annotations

from phalanx.cluster.cluster import Health
from phalanx.engine.fold import ending
from phalanx.engine.state.records import StopReason
from phalanx.engine.state.state import State
from phalanx.engine.state.windows import under_way


def set_out(state: State) -> None:
    """Has the nodes close and open at their times, from now on."""
    for window in state.cluster.maintenance:
        for at_ms in (window.start_ms, window.end_ms):
            if at_ms > state.now:
                state.set_timer(at_ms, "maintenance", "")
    keep(state, state.now)


def is_edge(state: State, at_ms: int) -> bool:
    """Whether nodes close or open at a moment."""
    return any(at_ms in (window.start_ms, window.end_ms) for window in state.cluster.maintenance)


def keep(state: State, at_ms: int) -> None:
    """Closes the nodes whose time has come, and opens those whose time is over, at an edge that is due."""
    due = open_again(state)
    for window in state.cluster.maintenance:
        if window.end_ms == at_ms:
            # Jobs that were kept off have another try, also where no wake-up has closed the nodes meanwhile.
            for name in window.nodes:
                state.capacity.grown |= state.topology.bit[state.topology.number[name]]
    for name in due:
        if name not in state.closed:
            _close(state, name)


def open_again(state: State) -> dict[str, None]:
    """Opens the nodes that are closed and need not be; those that are to be closed now."""
    due = dict.fromkeys(node for window in under_way(state) for node in window.nodes)
    for name in [name for name in state.closed if name not in due]:
        state.capacity.set_health(state.topology.number[name], state.closed.pop(name))
        state.reservations_stale = True
    return due


def _close(state: State, name: str) -> None:
    node = state.topology.number[name]
    health = state.capacity.health[node]
    # Another node is the spare by the time it opens again.
    state.closed[name] = Health.HEALTHY if health is Health.SPARE else health
    if state.capacity.health[node] is not Health.FAILED:
        state.capacity.set_health(node, Health.DRAINING)
    state.reservations_stale = True
    for attempt in list(state.on_node.get(node, {}).values()):
        ending.want_stopped(state, attempt, StopReason.MAINTENANCE)


def reopen(state: State) -> None:
    """Has every node be as healthy as it would be without maintenance."""
    for name, health in state.closed.items():
        state.capacity.set_health(state.topology.number[name], health)
    state.closed.clear()
