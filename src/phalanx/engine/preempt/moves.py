"""Moves: running jobs that go elsewhere, so that a head fits where they were. Each lands at once on what is free."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from phalanx.cluster.capacity import Booking
from phalanx.engine.preempt.charge import Rank
from phalanx.engine.preempt.way import Context
from phalanx.engine.state.elastic import count_of
from phalanx.engine.state.records import AttemptRecord, JobRecord, Phase, PreemptionGroup
from phalanx.engine.state.windows import closing
from phalanx.engine.state.yielding import spares
from phalanx.engine.transaction.transaction import Closed, Transaction
from phalanx.placement.gang import GangTrial
from phalanx.placement.place import placement_of
from phalanx.placement.placement import Placement
from phalanx.workload.job import Job


@dataclass(frozen=True, slots=True)
class Move:
    """Where an attempt goes."""

    attempt: AttemptRecord
    placement: Placement
    bookings: tuple[Booking, ...]


class Moving:
    """Attempts in the way go elsewhere: onto devices that are free now, so that they need not wait for one another."""

    def __init__(self, transaction: Transaction, head: JobRecord, context: Context) -> None:
        self.transaction = transaction
        self.state = transaction.state
        self.head = head
        self.context = context
        self.moves: tuple[Move, ...] = ()

    def groups(self) -> Iterable[PreemptionGroup]:
        """All."""
        return self.state.runs

    def group_goes(self, attempt: AttemptRecord) -> bool:
        """As the policy says; and an attempt that would be stopped, since it has what the head may reclaim, moves."""
        quotas, head = self.state.quotas, self.head
        if self.state.policy.moves(head, attempt, self.state):
            return True
        return bool(quotas) and quotas.reclaims(head.job.queue, head.need, attempt.job.queue)

    def goes(self, attempt: AttemptRecord) -> bool:
        """An attempt that runs on whole devices, may be stopped at all, lets itself be moved, and saves its work.

        An elastic one shrinks instead, but one that only its policy makes so goes at the size it has. A part of a
        device cannot be had elsewhere at once.
        """
        record = self.state.jobs[attempt.job.id]
        return (
            attempt.phase is Phase.RUNNING
            and attempt.stoppable
            and attempt.job.movable
            and record.saves
            and attempt.key not in self.context.untouchable
            and not record.job.gang.elastic
            and all(booking.portion is None for booking in attempt.bookings)
            and not spares(self.state, self.head, attempt)
        )

    def may_begin(self, groups: Iterable[Mapping[str, AttemptRecord]]) -> bool:
        """Any: what queues have stays as it is."""
        return True

    def rank(self, attempt: AttemptRecord) -> Rank:
        """By priority."""
        return (attempt.job.priority,)

    def together(self, candidates: list[AttemptRecord]) -> list[AttemptRecord]:
        """All: what queues have stays as it is."""
        return candidates

    def seat(self, victims: list[AttemptRecord]) -> GangTrial | None:
        """Places the head where the victims are, and then the victims on what is free beside."""
        mark = self.transaction.mark()
        for victim in victims:
            self.transaction.release(victim.bookings)
        seated = self.transaction.seat(self.head)
        if seated is None:
            return None
        wanted = [seat.booking for seat in seated.seats]
        self.transaction.undo_to(mark)
        for victim in victims:
            self.transaction.cede(victim.bookings)
        self.transaction.claim(wanted)
        moves = [self._land(victim) for victim in victims]
        if not all(moves):
            return None
        self.moves = tuple(move for move in moves if move is not None)
        return seated

    def slack_of(self, victims: list[AttemptRecord]) -> None:
        """Nothing: fewer attempts that go elsewhere may land where more would not."""

    def _land(self, victim: AttemptRecord) -> Move | None:
        with Closed(self.state, closing(self.state, self.state.jobs[victim.job.id], self.context.now)):
            landed = self.transaction.seat_job(_at_its_size(victim))
        if landed is None:
            return None
        return Move(victim, placement_of(landed), tuple(seat.booking for seat in landed.seats))


def _at_its_size(attempt: AttemptRecord) -> Job:
    """What an attempt asks for elsewhere: as many members as it has."""
    job = attempt.job
    if not job.gang.elastic:
        return job
    counts = [(role, count_of(attempt, role)) for role in job.gang.roles]
    roles = tuple(replace(role, replicas_min=count, replicas_max=count) for role, count in counts)
    return replace(job, gang=replace(job.gang, roles=roles))
