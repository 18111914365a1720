"""What terminating attempts leave, one booking after the other: the specification of `Vacancy`."""

from __future__ import annotations

from collections.abc import Mapping

from phalanx.cluster.capacity import Booking
from phalanx.engine.state.records import AttemptRecord
from phalanx.engine.state.state import State
from phalanx.engine.transaction.undo_log import UndoLog
from phalanx.engine.transaction.vacancy import Vacancy, to_be_had


class PlainVacancy(Vacancy):
    """Likewise, joined by nothing and kept for nothing."""

    def open(
        self, log: UndoLog, leaving: Mapping[str, AttemptRecord], lent: Mapping[int, int], claims_stay: bool = False
    ) -> None:
        """As if all that are terminating were gone, but for bookings that claims lie on wholly."""
        state = log.state
        left = [booking for attempt in leaving.values() if to_be_had(state, attempt) for booking in attempt.bookings]
        if state.quotas:
            left = [booking for booking in left if not _is_kept(state, booking, lent)]
        log.vacate(left)


def _is_kept(state: State, booking: Booking, lent: Mapping[int, int]) -> bool:
    node, devices, needs, portion, _ = booking
    return portion is None and not needs and not devices & ~(state.capacity.claimed[node] & ~lent.get(node, 0))
