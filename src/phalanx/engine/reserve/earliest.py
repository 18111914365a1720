"""The search for the first moment at which a job could start, and for its place then."""

from __future__ import annotations

from collections.abc import Sequence

from phalanx.cluster.capacity import Booking
from phalanx.engine.reserve.blocks import Blocks
from phalanx.engine.reserve.profile import End, Profile
from phalanx.engine.state.records import JobRecord
from phalanx.engine.transaction.transaction import Transaction
from phalanx.placement.place import placement_of
from phalanx.placement.placement import Placement
from phalanx.protocol.plan import Reservation

SOON_MS = 1_000
"""No reserved time is nearer than this: a job that could start at once does, and the rest is looked at again then."""

MOMENTS_MAX = 64
"""Moments tried for one reservation among several."""

Interval = tuple[int, int, tuple[Booking, ...]]
"""From when to when which devices are reserved: from the earliest moment at which the job could start."""


class EarliestSearch:
    """That of a decision: attempts leave as its profile says, and everything is undone again."""

    def __init__(self, transaction: Transaction, now: int, profile: Profile) -> None:
        self.transaction = transaction
        self.state = transaction.state
        self.now = now
        self._profile = profile

    def find(self, record: JobRecord, intervals: Sequence[Interval]) -> Reservation | None:
        """The first moment at which a job would have a place beside what is reserved for others, and that place."""
        alone = not intervals and not self.state.cluster.maintenance
        return self._beside_none(record) if alone else self._beside_others(record, intervals)

    def _beside_none(self, record: JobRecord) -> Reservation | None:
        """The first moment at which running attempts have left enough: more and more leave, then some come back."""
        ends = self._profile.ends()
        first = self._enough(record, ends)
        mark = self.transaction.mark()
        self._profile.release(ends[:first])
        low, high, step = first, first, 1
        seated = self.place(record)
        while seated is None and high < len(ends):
            low, high, step = high + 1, min(high + step, len(ends)), step * 2
            self._profile.release(ends[low - 1 : high])
            seated = self.place(record)
        self.transaction.undo_to(mark)
        if seated is None:
            return None
        while low < high:
            middle = (low + high) // 2
            self._profile.release(ends[:middle])
            fits = self.place(record)
            self.transaction.undo_to(mark)
            low, high, seated = (low, middle, fits) if fits is not None else (middle + 1, high, seated)
        return self._reservation(record, ends[high - 1][0] if high else self.now, seated)

    def _beside_others(self, record: JobRecord, intervals: Sequence[Interval]) -> Reservation | None:
        """The first moment at which the job fits for as long as it runs, with what is reserved before it left alone."""
        length_ms = record.estimate_ms
        ends = self._profile.ends()
        left = (end_ms for end_ms, _, _ in ends)
        over = (until_ms for _, until_ms, _ in intervals)
        open_again = (window.end_ms for window in self.state.cluster.maintenance)
        moments = sorted(dict.fromkeys((self.now + 1, *left, *over, *open_again)))
        mark, released = self.transaction.mark(), 0
        blocks = Blocks(self.state.capacity, whole_gpus=record.whole_gpus)
        found = None
        for at_ms in [moment for moment in moments if moment > self.now][:MOMENTS_MAX]:
            while released < len(ends) and ends[released][0] <= at_ms:
                self._profile.release(ends[released : released + 1])
                released += 1
            in_the_way = [
                bookings
                for since_ms, until_ms, bookings in intervals
                if since_ms < at_ms + length_ms and at_ms < until_ms
            ]
            blocks.close(in_the_way)
            blocks.lay(in_the_way)
            # Counting is cheaper than trying.
            seated = self.place(record, at_ms) if self.state.capacity.free_total >= record.gpus_min else None
            if seated is not None:
                found = self._reservation(record, at_ms, seated)
                break
        blocks.lift()
        self.transaction.undo_to(mark)
        return found

    def _enough(self, record: JobRecord, ends: list[End]) -> int:
        """How many must have left for their GPUs to suffice by number: fewer need not be tried."""
        gpus = self.state.capacity.free_total
        for left, (_, _, bookings) in enumerate(ends):
            if gpus >= record.gpus_min:
                return left
            gpus += sum(booking.devices.bit_count() for booking in bookings)
        return len(ends)

    def place(self, record: JobRecord, at_ms: int | None = None) -> Placement | None:
        """Where the job would lie as things are in the transaction, at a moment or now; it is not left there."""
        mark = self.transaction.mark()
        seated = self.transaction.seat(record, at_ms)
        if seated is None:
            return None
        placement = placement_of(seated)
        self.transaction.undo_to(mark)
        return placement

    def _reservation(self, record: JobRecord, at_ms: int, placement: Placement) -> Reservation:
        told_ms = max(at_ms, self.now + SOON_MS)
        late = self._profile.late_on(self.state.bookings(record.asked, placement))
        late_ms = max((self._profile.late[attempt.key] for attempt in late), default=0)
        if late_ms <= told_ms:
            return Reservation(record.job.id, told_ms, placement)
        return Reservation(record.job.id, late_ms, placement, earliest_ms=at_ms)
