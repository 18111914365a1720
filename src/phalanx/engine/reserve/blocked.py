"""What is known of reservations that could not be made, and of jobs that do not fit beside those that are."""

from __future__ import annotations

from collections.abc import Hashable

from phalanx.engine.state.records import FOREVER_MS, JobRecord, form_of
from phalanx.engine.transaction.transaction import Transaction
from phalanx.engine.transaction.undo_log import Step
from phalanx.protocol.plan import Reservation


class BlockedReservations:
    """Forms of jobs for which nothing could be reserved: the least length, and behind how many with reservations.

    A longer job of the form, or one behind more, need not be looked at at the same stage of a plan.
    """

    def __init__(self) -> None:
        self._stage: tuple[int, ...] = ()
        self._least: dict[Hashable, tuple[int, int]] = {}

    def knows(self, record: JobRecord, before: int, stage: tuple[int, ...]) -> bool:
        """Whether nothing can be reserved for a job behind so many."""
        if stage != self._stage:
            self._stage = stage
            self._least.clear()
        length_ms, least_before = self._least.get(form_of(record), (FOREVER_MS + 1, 0))
        return length_ms <= record.estimate_ms and least_before <= before

    def note(self, record: JobRecord, before: int) -> None:
        """Nothing could be reserved for a job behind so many."""
        self._least.setdefault(form_of(record), (record.estimate_ms, before))


class BlockedSeats:
    """Forms of jobs that do not fit beside what is reserved for some others, until the plan changes or that.

    Hundreds of queues ask for the same few forms, and each search has all that is reserved blocked first.
    """

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction
        self._step: Step | None = None
        self._reserved: list[Reservation] = []
        self._forms: set[tuple[Hashable, tuple[str, ...]]] = set()

    def knows(self, record: JobRecord, left_for: tuple[str, ...], reserved: list[Reservation]) -> bool:
        """Whether a job does not fit that leaves alone what is reserved for some of all these."""
        step = self._transaction.last_step
        if step is not self._step or not _are_the_same(reserved, self._reserved):
            self._step, self._reserved = step, list(reserved)
            self._forms.clear()
        return self._by_form_alone(record) and (form_of(record), left_for) in self._forms

    def note(self, record: JobRecord, left_for: tuple[str, ...]) -> None:
        """A job does not fit: `knows` was asked before."""
        self._forms.add((form_of(record), left_for))

    def _by_form_alone(self, record: JobRecord) -> bool:
        """Whether neither the length nor the queue of a job decides on where it may lie."""
        state = self._transaction.state
        return not (state.cluster.maintenance or record.asked.gang.elastic or state.policy.chooses_places)


def _are_the_same(some: list[Reservation], others: list[Reservation]) -> bool:
    return len(some) == len(others) and all(one is other for one, other in zip(some, others, strict=True))
