"""Trials: what a plan would do, done on the State and undone step by step. Nothing is copied."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from types import TracebackType
from typing import Any

from phalanx.cluster.capacity import Booking
from phalanx.engine.elastic import within
from phalanx.engine.records import AttemptRecord, JobRecord
from phalanx.engine.state import State
from phalanx.placement.gang import GangTrial, Seat
from phalanx.policy.view import Usage
from phalanx.workload.gang import Role
from phalanx.workload.job import Job

Step = tuple[Callable[[Any], None], Any]


class Trial:
    """Changes to capacity that end with the `with` block, or earlier by `undo_to`."""

    def __init__(self, state: State) -> None:
        self.state = state
        self._undo: list[Step] = []
        self._grown = 0

    def __enter__(self) -> Trial:
        self._grown = self.state.capacity.grown
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.undo_to(0)
        self.state.capacity.grown = self._grown

    def mark(self) -> int:
        """A point to come back to."""
        return len(self._undo)

    def undo_to(self, mark: int) -> None:
        """Takes back every step since a mark, the last first."""
        while len(self._undo) > mark:
            undo, what = self._undo.pop()
            undo(what)

    def seat(self, record: JobRecord) -> GangTrial | None:
        """Seats a gang on what is free; its devices stay taken for the rest of the trial."""
        if self.state.capacity.free_total < record.gpus_min:
            return None
        job = record.asked
        if self.state.quotas and job.gang.elastic:
            job = replace(job, gang=within(job.gang, lambda need: self._allows(job.queue, need)))
        return self.seat_job(job)

    def _allows(self, queue: str, need: Usage) -> bool:
        return self.state.quotas.shortfall(queue, need) is None

    def seat_job(self, job: Job) -> GangTrial | None:
        """Likewise, whatever its queue may have."""
        trial = GangTrial(self.state.fit, self.state.packing, job)
        if not trial.seat():
            return None
        release = self.state.capacity.release
        self._undo.extend((release, seat.booking) for seat in trial.seats)
        return trial

    def use(self, queue: str, what: Usage, sign: int) -> None:
        """As if a queue used so much more (1) or less (-1)."""
        self.state.suppose(queue, what, sign)
        self._undo.append((lambda used: self.state.suppose(queue, used, -sign), what))

    def release(self, bookings: Iterable[Booking]) -> None:
        """As if those who hold these were gone."""
        for booking in bookings:
            self.state.capacity.release(booking)
            self._undo.append((self.state.capacity.hold, booking))

    def vacate(self, bookings: Iterable[Booking]) -> None:
        """As if those who are leaving these were gone. What of them was promised stays promised."""
        for booking in bookings:
            self.state.capacity.keep(booking)
            self.state.capacity.release(booking)
            self._undo.append((self._occupy, booking))

    def _occupy(self, booking: Booking) -> None:
        self.state.capacity.hold(booking)
        self.state.capacity.cede(booking)

    def grow(self, attempt: AttemptRecord, role: Role, more: int) -> list[Seat]:
        """Seats up to so many more members of a role beside those an attempt has."""
        trial = GangTrial(self.state.fit, self.state.packing, attempt.job)
        trial.first_rank = 1 + max(slot.rank for slot in attempt.placement.slots)
        seats = trial.grow(role, more, attempt.bookings[0])
        release = self.state.capacity.release
        self._undo.extend((release, seat.booking) for seat in seats)
        return seats

    def cede(self, bookings: Iterable[Booking]) -> None:
        """As if somebody were told to leave these."""
        for booking in bookings:
            self.state.capacity.cede(booking)
            self._undo.append((self.state.capacity.keep, booking))

    def keep(self, bookings: Iterable[Booking]) -> None:
        """As if somebody who was told to leave these might stay."""
        for booking in bookings:
            self.state.capacity.keep(booking)
            self._undo.append((self.state.capacity.cede, booking))

    def claim(self, bookings: Iterable[Booking]) -> None:
        """As if somebody were promised what others still hold."""
        for booking in bookings:
            self.state.capacity.claim(booking)
            self._undo.append((self.state.capacity.unclaim, booking))

    def hold(self, bookings: Iterable[Booking]) -> bool:
        """As if somebody held these; not if anybody is in the way of any of them."""
        mark = self.mark()
        for booking in bookings:
            if self.state.capacity.held_by_others(booking):
                self.undo_to(mark)
                return False
            self.state.capacity.hold(booking)
            self._undo.append((self.state.capacity.release, booking))
        return True

    def unclaim(self, bookings: Iterable[Booking]) -> None:
        """As if a promise were taken back."""
        for booking in bookings:
            self.state.capacity.unclaim(booking)
            self._undo.append((self.state.capacity.claim, booking))

    def promote(self, attempt: AttemptRecord) -> bool:
        """As if a promise were kept: what was claimed is held. Not while somebody is still in the way."""
        mark = self.mark()
        self.unclaim(attempt.bookings)
        if self.hold(attempt.bookings):
            return True
        self.undo_to(mark)
        return False
