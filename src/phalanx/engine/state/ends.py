"""Ends: when running attempts are expected to have left, in order; and what is expected of those past that time.

A job that runs longer than it said may end at any moment. So there are two expected times. Reservations count on the
earliest one, which is now. Else a job that is let pass on longer hopes delays the job that is reserved for, and as the
next one does the same, for ever. What users are shown grows in small steps.
"""

from __future__ import annotations

from bisect import bisect_left, insort

from phalanx.engine.state.records import AttemptRecord

OVERRUN_MIN_MS = 5_000
"""The least time that an attempt past its estimate is expected to go on: the estimate is worked out anew after it."""

OVERRUN_PART = 10
"""At most this part of what it has run: a reserved time is put off by a small part of what was waited for already.

Steps double from the least up to that and then grow with the run, so that their number is logarithmic: a job of a
minute that runs for a day has fewer than a hundred.
"""


def still_ms(overrun_ms: int, estimate_ms: int) -> int:
    """How much longer an attempt past its estimate is expected to run: as long again as it is late, within bounds."""
    most_ms = max((estimate_ms + overrun_ms) // OVERRUN_PART, OVERRUN_MIN_MS)
    return min(max(overrun_ms, OVERRUN_MIN_MS), most_ms)


def may_leave_ms(attempt: AttemptRecord, end_ms: int, now: int) -> int:
    """The earliest moment to count on: when it is expected to end, or now, if it should have ended already.

    What it should have ended by counts from when it got its devices, as it did when it was let pass. A start that takes
    long is no reason to let the next one pass.
    """
    starting_ms = max(attempt.started_ms - attempt.created_ms, 0)
    return end_ms if end_ms - starting_ms > now else now


class Ends:
    """Attempts by the moment at which they are expected to end."""

    def __init__(self) -> None:
        self._order: list[tuple[int, str]] = []
        self._attempts: dict[str, tuple[int, AttemptRecord]] = {}

    def expect(self, attempt: AttemptRecord, end_ms: int) -> None:
        """Takes note of when an attempt will end."""
        self.forget(attempt)
        self._attempts[attempt.key] = (end_ms, attempt)
        insort(self._order, (end_ms, attempt.key))

    def forget(self, attempt: AttemptRecord) -> int | None:
        """Takes an attempt out; when it was expected to end."""
        known = self._attempts.pop(attempt.key, None)
        if known is None:
            return None
        del self._order[bisect_left(self._order, (known[0], attempt.key))]
        return known[0]

    def in_order(self) -> list[tuple[int, AttemptRecord]]:
        """All attempts, the first to end first."""
        return [self._attempts[key] for _, key in self._order]
