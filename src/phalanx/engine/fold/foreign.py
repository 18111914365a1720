"""Foreign use: what work that is not ours holds of nodes. It is counted as used and never stopped.

What it is said to hold may still be allocated to or claimed by one of our attempts, as when both started at once. Then
it gets what there is, and the rest as soon as that is free.
"""

from __future__ import annotations

from phalanx.cluster.capacity import CPUS, CPUS_LIMIT, MEMORY, MEMORY_LIMIT
from phalanx.engine.state.state import State
from phalanx.protocol.event import ForeignUse


def use(state: State, event: ForeignUse) -> None:
    """Takes on what foreign work holds of a node."""
    if event == state.foreign.get(event.node, ForeignUse(event.node)):
        return
    if event == ForeignUse(event.node):
        del state.foreign[event.node]
    else:
        state.foreign[event.node] = event
    # Reservations count on what is free, and may have lost it.
    state.reservations_stale = True
    settle(state, event.node)


def settle_short(state: State) -> None:
    """Gives foreign work what it lacked and is free by now."""
    for node in list(state.foreign_short):
        settle(state, node)


def settle_all(state: State) -> None:
    """Holds all foreign use anew, on another cluster: what was said of nodes and devices that are gone is forgotten."""
    state.foreign_short.clear()
    for node, said in list(state.foreign.items()):
        if node not in state.topology.number or any(device >= _gpus(state, node) for device in said.devices):
            del state.foreign[node]
        else:
            settle(state, node)


def give_way(state: State, node: str) -> None:
    """Lets go of what foreign work has of a node, until it is settled again."""
    state.capacity.release_foreign(state.topology.number[node])


def settle(state: State, node: str) -> None:
    """Holds what foreign work has of a node, as far as it is free, and takes note of what it still lacks."""
    number = state.topology.number[node]
    said = state.foreign.get(node, ForeignUse(node))
    wanted = sum(1 << device for device in said.devices)
    needs = (
        (CPUS, said.cpus_milli),
        (MEMORY, said.memory_mb),
        (CPUS_LIMIT, said.cpus_milli),
        (MEMORY_LIMIT, said.memory_mb),
    )
    state.capacity.hold_foreign(number, wanted, said.gpus, needs)
    if _is_short(state, number, said, wanted):
        state.foreign_short[node] = None
    else:
        state.foreign_short.pop(node, None)


def _is_short(state: State, node: int, said: ForeignUse, wanted: int) -> bool:
    """Whether one of ours has what foreign work is said to hold. What exceeds the node itself is not waited for."""
    booking = state.capacity.foreign.get(node)
    devices = booking.devices if booking is not None else 0
    if wanted & ~devices or devices.bit_count() < min(wanted.bit_count() + said.gpus, _gpus(state, said.node)):
        return True
    has = dict(booking.needs) if booking is not None else {}
    spec = state.topology.nodes[node]
    return has.get(CPUS, 0) < min(said.cpus_milli, spec.cpus_milli) or has.get(MEMORY, 0) < min(
        said.memory_mb, spec.memory_mb
    )


def _gpus(state: State, node: str) -> int:
    return state.topology.nodes[state.topology.number[node]].gpus
