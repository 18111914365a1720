"""Tentative borrows: what a plan is about to give to jobs that may only borrow it, until a job that is due it
reclaims it."""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import NamedTuple

from phalanx.cluster.capacity import Booking
from phalanx.engine.quota.quotas import Quotas
from phalanx.engine.state.records import AttemptRecord, JobRecord

LOANS_MAX = 16
"""Tentative borrows of one decision, the latest, that are looked at for a job that is due what they give."""

PROMISES_MAX = 32
"""Claims of one decision that go over to jobs that are due them, but for claims of overdue jobs: a bound on work. Where
many jobs are due, that would go on and on; what is left is reclaimed in the next decision."""


class TentativeBorrow(NamedTuple):
    """What a plan is about to give to a job; once victims have left, if that `waits`."""

    record: JobRecord
    bookings: list[Booking]
    waits: bool = False
    victims: tuple[AttemptRecord, ...] = ()


class TentativeBorrows:
    """Tentative borrows of one decision, and which job has made way for which."""

    def __init__(self, quotas: Quotas) -> None:
        self._quotas = quotas
        self._made: list[TentativeBorrow] = []
        self._made_way: dict[str, list[str]] = {}
        self._promises_left = PROMISES_MAX

    def add(self, borrow: TentativeBorrow) -> None:
        """Takes note of one."""
        self._made.append(borrow)

    def due_to(self, record: JobRecord) -> Iterator[TentativeBorrow]:
        """Tentative borrows of other jobs that a job is due, the latest first.

        A job that has made way takes in turn only from jobs that go first for being overdue: it would have gone before
        them. No job makes way twice for the same job, nor for one that has made way for it: else that might go on for
        ever.
        """
        own = record.job.id
        for borrow in self._made[: -LOANS_MAX - 1 : -1]:
            other = borrow.record.job.id
            if not borrow.record.overdue and (own in self._made_way or (borrow.waits and self._promises_left <= 0)):
                continue
            if other in self._made_way.get(own, ()) or own in self._made_way.get(other, ()):
                continue
            if self._quotas.reclaims(record.job.queue, record.need, borrow.record.job.queue):
                yield borrow

    @property
    def any_made_way(self) -> bool:
        """Whether a job stays pending for another."""
        return bool(self._made_way)

    def make_way(self, borrow: TentativeBorrow, taker: JobRecord) -> None:
        """The job that was to have a tentative borrow makes way for another."""
        self._made = [each for each in self._made if each is not borrow]
        self._made_way.setdefault(borrow.record.job.id, []).append(taker.job.id)
        self._promises_left -= borrow.waits and not borrow.record.overdue

    def forget(self, jobs: Container[str]) -> None:
        """Some get other devices than they were to have."""
        self._made = [borrow for borrow in self._made if borrow.record.job.id not in jobs]
