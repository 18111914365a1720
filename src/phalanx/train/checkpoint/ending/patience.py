"""How long the memory of a dead trainer is kept from its successor for parts that may never come."""

from __future__ import annotations

from collections.abc import Callable

PARTS_PATIENCE_S = 2.0
"""How long a successor that wants the memory waits for parts that other ranks may never write."""


class PartsPatience:
    """Runs while all that is left is to wait for parts of other ranks, and a successor waits for the memory.

    Writing an own part may take as long as it takes: it ends. So what was waited before parts alone were missing does
    not count.
    """

    def __init__(self) -> None:
        self._ends_s: float | None = None

    def is_over(self, now_s: float, *, parts_alone: bool, is_awaited: Callable[[], bool]) -> bool:
        """Whether it has run out, as things stand at a moment of the monotonic clock."""
        if not parts_alone:
            self._ends_s = None
            return False
        if self._ends_s is None and is_awaited():
            self._ends_s = now_s + PARTS_PATIENCE_S
        return self._ends_s is not None and now_s > self._ends_s
