"""Relocations: running jobs that gather on one node, for their own sake or to leave other nodes whole."""

from __future__ import annotations

from dataclasses import replace

from phalanx.cluster.bits import members
from phalanx.cluster.capacity import Booking
from phalanx.cluster.cluster import NODE
from phalanx.cluster.device import Portion, fit
from phalanx.engine.preempt.moves import Move
from phalanx.engine.state.records import AttemptRecord, Phase, tasks_of
from phalanx.engine.transaction.transaction import Transaction
from phalanx.placement.place import slots_of
from phalanx.placement.placement import Placement, Slot
from phalanx.placement.ranks import with_mesh
from phalanx.workload.gang import Gang


def landing(transaction: Transaction, attempt: AttemptRecord, node: int) -> Move | None:
    """Where an attempt goes that gathers on a node, on devices that are free.

    Tasks that are there stay, but for those on devices that other jobs share, where there is a free device. None if it
    may not move, or does not fit. What it lands on stays taken for the rest of the transaction.
    """
    if not _may_move(transaction, attempt):
        return None
    mark = transaction.mark()
    slots: list[Slot] = []
    bookings: list[Booking] = []
    for slot, booking in zip(attempt.placement.slots, attempt.bookings, strict=True):
        stays = (slot, booking) if booking.node == node else None
        settled = stays is not None and not _crowded(transaction, attempt, booking)
        moved = stays if settled else _landed(transaction, attempt, node, slot, booking) or stays
        if moved is None:
            transaction.undo_to(mark)
            return None
        slots.append(moved[0])
        bookings.append(moved[1])
    if bookings == attempt.bookings:
        return None
    placement = with_mesh(transaction.state.topology, attempt.job, Placement(tuple(slots)))
    return Move(attempt, placement, tuple(bookings))


def _crowded(transaction: Transaction, attempt: AttemptRecord, booking: Booking) -> bool:
    """Whether another job has a part of the same device."""
    if booking.portion is None:
        return False
    holders = transaction.state.capacity.load(booking.node, booking.devices.bit_length() - 1).holders
    return any(holder.rpartition("#")[0] != attempt.job.id for holder in holders)


def _may_move(transaction: Transaction, attempt: AttemptRecord) -> bool:
    """An attempt that runs and may be stopped at all, and does not ask to be closer than on one node."""
    levels = transaction.state.topology.cluster.levels_inside
    topologies = (attempt.job.gang.topology, *(role.topology for role in attempt.job.gang.roles))
    return (
        attempt.phase is Phase.RUNNING
        and attempt.stoppable
        and not attempt.job.gang.elastic
        and transaction.state.cells is None
        and not any(level != NODE and level in levels for each in topologies for level in (each.required,))
    )


def _landed(
    transaction: Transaction, attempt: AttemptRecord, node: int, slot: Slot, booking: Booking
) -> tuple[Slot, Booking] | None:
    """Takes what one task needs of the node."""
    state = transaction.state
    ask = state.fit.ask(state.jobs[attempt.job.id].tasks[slot.role], attempt.job)
    if not state.fit.passing(ask) & state.topology.bit[node]:
        return None
    count = booking.devices.bit_count()
    if state.capacity.free[node].bit_count() < count:
        return None
    devices = state.topology.layouts[node].pick(state.capacity.free[node], count) if count else 0
    portion = _portion(transaction, node, devices, booking.portion)
    if booking.portion is not None and portion is None:
        return None
    new = Booking(node, devices, ask.needs, portion, booking.holder)
    if not transaction.hold((new,)):
        return None
    name = state.topology.nodes[node].name
    return replace(slot, node=name, devices=tuple(members(devices)), portion=portion), new


def _portion(transaction: Transaction, node: int, devices: int, portion: Portion | None) -> Portion | None:
    """The same part of another device."""
    if portion is None:
        return None
    wanted = replace(portion, turn=None, mig_offset=None, beside="")
    return fit(transaction.state.capacity.load(node, devices.bit_length() - 1), wanted)


def guaranteed(transaction: Transaction, attempt: AttemptRecord, gang: Gang) -> Move | None:
    """Where a revocable attempt goes to have a guaranteed share, maybe on the device it is on; None if it cannot.

    Its tasks get new ranks, so that they may hold the new share beside the old one until the backend has changed them.
    """
    state = transaction.state
    if any(task.share is None or task.share.revocable for task in tasks_of(gang.roles).values() if task.gpus):
        return None
    first = 1 + max(slot.rank for slot in attempt.placement.slots)
    seated = transaction.seat_job(replace(attempt.job, gang=gang), first_rank=first)
    if seated is None:
        return None
    placement = Placement(slots_of(state.topology, seated.seats, first))
    return Move(attempt, placement, tuple(seat.booking for seat in seated.seats))
