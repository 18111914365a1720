"""The profile of ends: which devices will be left when, by running attempts and by those that a plan starts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from phalanx.cluster.capacity import Booking
from phalanx.engine.reserve.overlap import is_in_the_way
from phalanx.engine.state.ends import may_leave_ms, still_ms
from phalanx.engine.state.records import FOREVER_MS, UNSAID_MS, AttemptRecord, JobRecord
from phalanx.engine.transaction.transaction import Transaction
from phalanx.workload.job import Kind

Release = Callable[[Iterable[Booking]], None]

End = tuple[int, AttemptRecord | Release, list[Booking]]
"""When which bookings are free again: those of an attempt, or in the transaction of one that is to start."""


class Underway(NamedTuple):
    """What a plan has done so far to attempts that there are: told to leave, started on what they were
    promised, or lost their claim.
    """

    leaving: dict[str, AttemptRecord]
    promoted: dict[str, AttemptRecord]
    withdrawn: dict[str, AttemptRecord]


class Profile:
    """The ends that a decision knows of. `planned` are those of jobs that it starts; `late` are attempts that should
    have left already, with the time by which they are expected to.
    """

    def __init__(self, transaction: Transaction, now: int, underway: Underway) -> None:
        self.transaction = transaction
        self.state = transaction.state
        self.now = now
        self.planned: list[End] = []
        self.late: dict[str, int] = {}
        self._underway = underway
        self._running: list[tuple[int, AttemptRecord, list[Booking]]] | None = None

    def ends(self) -> list[End]:
        """Which attempts will have left when, the first first: those that run, and those that this plan starts.

        A job without an estimate leaves at an unknown moment, after all others. What is reserved from then on may be
        had until then by a job with an estimate, and by no other. A service without one stays: nothing can be reserved
        on what it holds.
        """
        if self._running is None:
            self._running = []
            for end_ms, attempt in self.state.ends.in_order():
                if end_ms < FOREVER_MS:
                    self._expect(attempt, end_ms)
                elif attempt.job.kind is not Kind.SERVICE:
                    self._running.append((UNSAID_MS, attempt, attempt.bookings))
        withdrawn = self._underway.withdrawn
        running = [end for end in self._running if end[1].key not in withdrawn]
        planned = [(min(at_ms, UNSAID_MS), release, bookings) for at_ms, release, bookings in self.planned]
        return sorted((*running, *planned), key=lambda end: end[0])

    def _expect(self, attempt: AttemptRecord, end_ms: int) -> None:
        """Takes note of when an attempt may leave, and of when it will by what is known, where that is later."""
        assert self._running is not None
        leaves_ms = may_leave_ms(attempt, end_ms, self.now)
        self._running.append((leaves_ms, attempt, attempt.bookings))
        if leaves_ms == self.now:
            self.late[attempt.key] = self.expected_ms(self.state.jobs[attempt.job.id], end_ms)

    def expected_ms(self, record: JobRecord, end_ms: int) -> int:
        """When a job is expected to end, also if it should have ended already."""
        overrun_ms = self.now - end_ms
        return end_ms if overrun_ms < 0 else self.now + still_ms(overrun_ms, record.estimate_ms)

    def _release_of(self, attempt: AttemptRecord) -> Release:
        if attempt.waits and attempt.key not in self._underway.promoted:
            return self.transaction.unclaim
        return self.transaction.vacate if attempt.key in self._underway.leaving else self.transaction.release

    def release(self, ends: list[End]) -> None:
        """Has these leave, on the transaction."""
        for _, leaver, bookings in ends:
            release = self._release_of(leaver) if isinstance(leaver, AttemptRecord) else leaver
            release(bookings)

    def is_late(self, end: End) -> bool:
        """Whether an end is that of an attempt that should have left already."""
        return isinstance(end[1], AttemptRecord) and end[1].key in self.late

    def late_on(self, bookings: list[Booking]) -> list[AttemptRecord]:
        """Attempts that should have left some devices already."""
        found: dict[str, AttemptRecord] = {}
        for booking in bookings if self.late else ():
            for key, attempt in self.state.on_node.get(booking.node, {}).items():
                if key in self.late and key not in found and is_in_the_way(attempt, booking):
                    found[key] = attempt
        return [attempt for key, attempt in found.items() if key not in self._underway.withdrawn]
