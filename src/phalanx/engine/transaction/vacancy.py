"""Vacancy: what terminating attempts leave, joined by node. Each candidate of a decision may be placed on it, and that
costs as much as there are nodes, not attempts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from phalanx.cluster.capacity import Booking
from phalanx.engine.state.records import AttemptRecord
from phalanx.engine.state.state import State
from phalanx.engine.transaction.undo_log import UndoLog


@dataclass(frozen=True, slots=True)
class NodeVacancy:
    """What is left of one node: so many tasks with devices, of which the `bare` ones come with nothing else."""

    bookings: tuple[Booking, ...]
    joined: Booking
    tasks: int
    bare: int


class Vacancy:
    """That of a decision; it is joined anew once other attempts are terminating. Shared devices are left one by one."""

    def __init__(self) -> None:
        self._leaving: list[AttemptRecord] = []
        self._sharing: list[AttemptRecord] = []
        self._bookings: dict[int, list[Booking]] = {}
        self._by_node: dict[int, NodeVacancy] = {}

    def open(
        self, log: UndoLog, leaving: Mapping[str, AttemptRecord], lent: Mapping[int, int], claims_stay: bool = False
    ) -> None:
        """As if all that are terminating were gone. Lent are devices by node whose claims may be taken back.

        Where `claims_stay`, no claim is taken back and each task needs GPUs: nodes claimed as a whole are left out.
        """
        state = log.state
        # What a job leaves that lost hardware is kept for itself.
        self._catch_up([attempt for attempt in leaving.values() if not state.comes_back(attempt)])
        claimed, everything = state.capacity.claimed, state.capacity.all_devices
        for node, left in self._by_node.items():
            if claims_stay and claimed[node] == everything[node] == left.bare:
                continue
            # Where many give back what they borrow, most of what they leave is claimed by then: no other job has it.
            kept = state.capacity.claimed[node] & ~lent.get(node, 0) if state.quotas else 0
            if left.bare & kept:
                left = _join(booking for booking in left.bookings if booking.needs or booking.devices & ~kept)
            if left.bookings:
                log.vacate_tasks(left.joined, left.tasks)
        for attempt in self._sharing:
            if to_be_had(state, attempt):
                log.vacate([booking for booking in attempt.bookings if not _is_kept(state, booking, lent)])

    def _catch_up(self, leaving: list[AttemptRecord]) -> None:
        """Joins anew what is left of the nodes of further attempts; all of it, if others are terminating no more."""
        known = len(self._leaving)
        if leaving[:known] != self._leaving:
            known, self._sharing, self._bookings, self._by_node = 0, [], {}, {}
        self._leaving = leaving
        changed: dict[int, None] = {}
        for attempt in leaving[known:]:
            if _shares(attempt):
                self._sharing.append(attempt)
                continue
            for booking in attempt.bookings:
                self._bookings.setdefault(booking.node, []).append(booking)
                changed[booking.node] = None
        for node in changed:
            self._by_node[node] = _join(self._bookings[node])


def to_be_had(state: State, leaving: AttemptRecord) -> bool:
    """Whether what a terminating attempt holds can be claimed. Of a shared device that is known once it is left."""
    if not state.capacity.loads or not _shares(leaving):
        return True
    return all(
        not state.capacity.claimed[booking.node] & booking.devices
        and not any(state.capacity.amounts[number].claimed[booking.node] for number, _ in booking.needs)
        for booking in leaving.bookings
    )


def _shares(attempt: AttemptRecord) -> bool:
    return any(booking.portion is not None for booking in attempt.bookings)


def _is_kept(state: State, booking: Booking, lent: Mapping[int, int]) -> bool:
    """Whether claims lie on all that a booking is of, and keep it."""
    if not state.quotas or booking.portion is not None or booking.needs:
        return False
    return not booking.devices & ~(state.capacity.claimed[booking.node] & ~lent.get(booking.node, 0))


def _join(bookings: Iterable[Booking]) -> NodeVacancy:
    """Of one node."""
    together = tuple(bookings)
    devices = bare = 0
    needs: dict[int, int] = {}
    for booking in together:
        devices |= booking.devices
        bare |= 0 if booking.needs else booking.devices
        for number, amount in booking.needs:
            needs[number] = needs.get(number, 0) + amount
    node = together[0].node if together else 0
    tasks = sum(1 for booking in together if booking.devices)
    return NodeVacancy(together, Booking(node, devices, tuple(needs.items())), tasks, bare)
