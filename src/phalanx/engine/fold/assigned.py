"""Assigned devices: an engine that chooses devices itself says which; the State takes them, or undoes the gang."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from phalanx.cluster.bits import members
from phalanx.engine.fold import foreign
from phalanx.engine.fold.ending import want_stopped
from phalanx.engine.fold.holding import arrive, depart
from phalanx.engine.state.records import AttemptRecord, Phase, StopReason
from phalanx.engine.state.state import State
from phalanx.placement.placement import Placement, Slot
from phalanx.placement.required import meets_required

SETTLED = (Phase.STARTING, Phase.RUNNING, Phase.SUSPENDING, Phase.SUSPENDED, Phase.RESUMING)
"""Phases in which an attempt holds its placement and nothing else."""

Exchanges = list[tuple[AttemptRecord, Placement]]


def assign(state: State, attempt: AttemptRecord, slots: tuple[Slot, ...]) -> None:
    """Has an attempt hold the devices that it was given.

    A device that another attempt was planned on is exchanged with that one, of which the engine will say what it has.
    The gang is undone where nothing can be exchanged, or where its required topology does not hold any more.
    """
    if attempt.phase not in SETTLED or attempt.waits or slots == attempt.placement.slots:
        return
    old, new = attempt.placement, _with_slots(attempt.placement, slots)
    _return_claims(state, new)
    nodes = dict.fromkeys((*old.nodes, *new.nodes))
    for node in nodes:
        foreign.give_way(state, node)
    _let_go(state, attempt)
    exchanges = _exchanges(state, new) if _is_possible(state, attempt, new) else None
    _hold_all(state, [(attempt, old)] if exchanges is None else [*exchanges, (attempt, new)])
    for node in nodes:
        foreign.settle(state, node)
    state.reservations_stale = True
    if exchanges is None or not meets_required(attempt.job.gang, new, state.topology):
        want_stopped(state, attempt, StopReason.MISPLACED)


def _with_slots(placement: Placement, slots: tuple[Slot, ...]) -> Placement:
    """A placement on other devices. The mesh names them in the order in which it named those that they stand for."""
    new = {
        (before.node, was): (after.node, device)
        for before, after in zip(placement.slots, slots, strict=True)
        for was, device in zip(before.devices, after.devices, strict=True)
    }
    return Placement(slots, tuple(new[device] for device in placement.mesh))


def _return_claims(state: State, placement: Placement) -> None:
    """Attempts with a claim on one of the devices go back to the pending jobs."""
    for node, devices in _devices(state, placement):
        for other in list(state.on_node.get(node, {}).values()):
            if other.waits and any(each.node == node and each.devices & devices for each in other.bookings):
                want_stopped(state, other, StopReason.HARDWARE)


def _devices(state: State, placement: Placement) -> Iterator[tuple[int, int]]:
    for slot in placement.slots:
        yield state.topology.number[slot.node], sum(1 << device for device in slot.devices)


def _is_possible(state: State, attempt: AttemptRecord, new: Placement) -> bool:
    """Whether nodes have the amounts that the tasks ask for. Parts of devices and cells stay where they were put."""
    if state.cells is not None or any(slot.portion is not None for slot in new.slots):
        return False
    left: dict[tuple[int, int], int] = {}
    for booking in state.bookings(attempt.job, new):
        for number, amount in booking.needs:
            at = (booking.node, number)
            left[at] = left.get(at, state.capacity.amounts[number].free[booking.node]) - amount
    return min(left.values(), default=0) >= 0


def _exchanges(state: State, new: Placement) -> Exchanges | None:
    """Attempts that are on the devices, and where each is put instead; None where one of them cannot be."""
    found: Exchanges = []
    wanted: dict[int, int] = {}
    for node, devices in _devices(state, new):
        wanted[node] = wanted.get(node, 0) | devices
    spare = {node: state.capacity.unused(node) & ~devices for node, devices in wanted.items()}
    if any(devices & (state.capacity.shared[node] | state.capacity.cutting[node]) for node, devices in wanted.items()):
        return None
    for other in _holders(state, wanted):
        if other.phase not in SETTLED or any(slot.portion is not None for slot in other.placement.slots):
            return None
        slots = [_moved(state, slot, wanted, spare) for slot in other.placement.slots]
        kept = tuple(slot for slot in slots if slot is not None)
        if len(kept) < len(slots):
            return None
        found.append((other, _with_slots(other.placement, kept)))
    return found


def _holders(state: State, wanted: dict[int, int]) -> list[AttemptRecord]:
    found = {}
    for node, devices in wanted.items():
        for other in state.on_node.get(node, {}).values():
            if not other.waits and any(each.node == node and each.devices & devices for each in other.bookings):
                found[other.key] = other
    return list(found.values())


def _moved(state: State, slot: Slot, wanted: dict[int, int], spare: dict[int, int]) -> Slot | None:
    """A slot with unused devices of its node in place of those that are wanted; None where there are too few."""
    node = state.topology.number[slot.node]
    taken = wanted.get(node, 0)
    devices = []
    for device in slot.devices:
        if not taken >> device & 1:
            devices.append(device)
        elif spare[node]:
            devices.append(next(members(spare[node])))
            spare[node] ^= 1 << devices[-1]
        else:
            return None
    return replace(slot, devices=tuple(devices))


def _hold_all(state: State, placed: Exchanges) -> None:
    for attempt, _ in placed[:-1]:
        _let_go(state, attempt)
    for attempt, placement in placed:
        attempt.placement = placement
        attempt.bookings = state.bookings(attempt.job, placement)
        for booking in attempt.bookings:
            state.capacity.hold(booking)
            arrive(state, attempt, booking)


def _let_go(state: State, attempt: AttemptRecord) -> None:
    for booking in attempt.bookings:
        state.capacity.release(booking)
        depart(state, attempt, booking)
