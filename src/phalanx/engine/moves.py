"""Moves: running jobs that go elsewhere, so that a head fits where they were. Each lands at once on what is free."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from phalanx.cluster.capacity import Booking
from phalanx.engine.maintenance import closing
from phalanx.engine.records import AttemptRecord, Group, JobRecord, Phase
from phalanx.engine.trial import Closed, Trial
from phalanx.engine.victims import Context
from phalanx.placement.gang import GangTrial
from phalanx.placement.place import placement_of
from phalanx.placement.placement import Placement


@dataclass(frozen=True, slots=True)
class Move:
    """Where an attempt goes."""

    attempt: AttemptRecord
    placement: Placement
    bookings: tuple[Booking, ...]


class Moving:
    """Those in the way go elsewhere: onto devices that nobody has now, so that they need not wait for one another."""

    def __init__(self, trial: Trial, head: JobRecord, context: Context) -> None:
        self.trial = trial
        self.state = trial.state
        self.head = head
        self.context = context
        self.moves: tuple[Move, ...] = ()

    def groups(self) -> Iterable[Group]:
        """All."""
        return self.state.runs

    def group_goes(self, attempt: AttemptRecord) -> bool:
        """As the policy says."""
        return self.state.policy.moves(self.head, attempt, self.state)

    def goes(self, attempt: AttemptRecord) -> bool:
        """Who runs at its full size on whole devices, may be stopped at all, lets itself be moved, and saves its work.

        An elastic one shrinks instead, and what is cut of a device cannot be had elsewhere at once.
        """
        return (
            attempt.phase is Phase.RUNNING
            and attempt.stoppable
            and attempt.job.movable
            and self.state.jobs[attempt.job.id].saves
            and attempt.key not in self.context.untouchable
            and not attempt.job.gang.elastic
            and all(booking.portion is None for booking in attempt.bookings)
            and not self.state.spares(self.head, attempt)
        )

    def seat(self, victims: list[AttemptRecord]) -> GangTrial | None:
        """Seats the head where the victims are, and then the victims on what is free beside."""
        mark = self.trial.mark()
        for victim in victims:
            self.trial.release(victim.bookings)
        seated = self.trial.seat(self.head)
        if seated is None:
            return None
        wanted = [seat.booking for seat in seated.seats]
        self.trial.undo_to(mark)
        for victim in victims:
            self.trial.cede(victim.bookings)
        self.trial.claim(wanted)
        moves = [self._land(victim) for victim in victims]
        if not all(moves):
            return None
        self.moves = tuple(move for move in moves if move is not None)
        return seated

    def _land(self, victim: AttemptRecord) -> Move | None:
        with Closed(self.state, closing(self.state, self.state.jobs[victim.job.id], self.context.now)):
            landed = self.trial.seat_job(victim.job)
        if landed is None:
            return None
        return Move(victim, placement_of(landed), tuple(seat.booking for seat in landed.seats))
