"""Quota reservations: what is left of a queue's limit is kept for a job that is overdue and needs more than that.

Else a stream of smaller jobs behind it would take each bit as it comes, and the job that goes first would never start.
A job that draws on another limit is not held up.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import merge
from itertools import takewhile
from typing import NamedTuple

from phalanx.cluster.queues import ancestors
from phalanx.engine.quota.shortfall import Shortfall
from phalanx.engine.state.records import OVERDUE, JobRecord
from phalanx.engine.state.state import State
from phalanx.engine.transaction.transaction import Transaction


class QuotaReservation(NamedTuple):
    """What is kept for a job that is overdue and short of a limit, by queue: of that limit, and of what is guaranteed
    further in.
    """

    late: JobRecord
    limit: str
    resource: int
    kept: list[tuple[str, int]]


class QuotaReservations:
    """The quota reservations of one decision: each begins once the jobs before its job have had their turn.

    They are made and given up in the transaction, with what is known of them: a step that is undone changes nothing.
    """

    def __init__(self, transaction: Transaction) -> None:
        self.transaction = transaction
        self.state = transaction.state
        self._late = tuple(overdue(self.state))
        self._turns = 0
        self.made: tuple[QuotaReservation, ...] = ()

    def keep_from(self, record: JobRecord | None) -> None:
        """Reserves quota for the overdue jobs that go before a job, and no more; for all of them, if it is None."""
        key = self.state.key
        if self._turns and record is not None and not key(self._late[self._turns - 1]) < key(record):
            self.begin_anew()
        while self._turns < len(self._late) and (record is None or key(self._late[self._turns]) < key(record)):
            self._keep(self._late[self._turns])
            self.transaction.put(self, "_turns", self._turns + 1)

    def begin_anew(self) -> None:
        """Something has grown, so that every job may have another turn."""
        for hold in self.made:
            self.transaction.withhold(hold.kept, hold.resource, -1)
        if self._turns:
            self.transaction.put(self, "made", ())
            self.transaction.put(self, "_turns", 0)

    def started(self, record: JobRecord) -> None:
        """A job that gets its devices needs nothing kept."""
        if record.overdue:
            self.begin_anew()
            self.transaction.put(self, "_late", tuple(late for late in self._late if late is not record))

    def waits_on(self, record: JobRecord) -> None:
        """A job that was to have its devices does not get them after all."""
        if record.overdue and may_be_held_up(self.state):
            self.begin_anew()
            self.transaction.put(self, "_late", tuple(sorted((*self._late, record), key=self.state.key)))

    def _keep(self, record: JobRecord) -> None:
        quotas = self.state.quotas
        for short in quotas.over_limits(record.job.queue, record.need):
            kept = quotas.left_below(short)
            if kept:
                self.transaction.withhold(kept, short.resource, 1)
                self.transaction.put(
                    self, "made", (*self.made, QuotaReservation(record, short.at, short.resource, kept))
                )

    def in_the_way_of(self, record: JobRecord, short: Shortfall) -> list[QuotaReservation]:
        """What is kept without which a job could have what it may not; nothing, if it could not even then.

        Where the lendable quota is used up and there are not so many GPUs, it is these that it lacks.
        """
        lends = not short.by_limit and self.state.capacity.free_total >= record.gpus_min
        if not self.made or not (short.by_limit or lends):
            return []
        quotas = self.state.quotas
        for hold in self.made:
            quotas.withhold(hold.kept, hold.resource, -1)
        could = self.state.shortfall(record) is None
        for hold in self.made:
            quotas.withhold(hold.kept, hold.resource, 1)
        around = tuple(ancestors(record.job.queue))
        return [hold for hold in self.made if any(path in around for path, _ in hold.kept)] if could else []


def may_be_held_up(state: State) -> bool:
    """Whether any job may be overdue and short of a limit."""
    return state.waits_are_limited and bool(state.quotas)


def overdue(state: State) -> Iterator[JobRecord]:
    """Overdue jobs, the first first, where there are limits that they may be short of."""
    if not may_be_held_up(state):
        return
    late = [
        takewhile(lambda entry: entry[0][0] == OVERDUE, waiting.jobs)
        for waiting in state.classes.values()
        if waiting.jobs[0][0][0] == OVERDUE
    ]
    yield from (state.jobs[job] for _, job in merge(*late))
