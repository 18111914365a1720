"""What is known of reservations that could not be made."""

from __future__ import annotations

from collections.abc import Hashable

from phalanx.engine.state.records import FOREVER_MS, JobRecord, form_of


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
