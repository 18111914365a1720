"""What victims are compared by: lower priorities first, then the least loss.

Once it is pending again, a victim of a higher priority would preempt attempts of lower ones, and each of these the
next. A victim is charged with that. So as few as can be are of the highest priority, then of the next, and only of the
lowest does it count what they lose.
"""

from __future__ import annotations

from collections.abc import Iterable

Rank = tuple[int, ...]
"""What a victim is charged by before its loss: its priority or, before that, how near its queue is."""

LEVELS_MAX = 15
"""Ranks told apart; those above count as one. More would make the sums longer than they are worth."""

LEVEL_BITS = 64
"""Wide enough for what all victims lose together, and for how many there are."""


class Charge:
    """The charges of attempts of some ranks, as numbers that can be added."""

    def __init__(self, ranks: Iterable[Rank]) -> None:
        self._level = {rank: min(level, LEVELS_MAX) for level, rank in enumerate(sorted(dict.fromkeys(ranks)))}

    def of(self, rank: Rank, loss: int) -> int:
        """The charge of one of a rank that would lose so much."""
        level = self._level[rank]
        return (1 << LEVEL_BITS * level) + loss if level else loss
