"""Ends: when those who run are expected to have left, in order."""

from __future__ import annotations

from bisect import bisect_left, insort

from phalanx.engine.records import AttemptRecord


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
        """Everybody, the first to end first."""
        return [self._attempts[key] for _, key in self._order]
