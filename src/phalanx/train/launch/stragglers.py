"""Which ranks are slow: those that compute much longer than the others, by what they tell of their steps.

All ranks of a step end it together, so its length says nothing of one of them; what each computes before it waits does.
A slow rank is named, never ended.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import NamedTuple

SLOW_FACTOR = 2.0
SLOW_LEAST_S = 0.05
"""Less is noise of the machine's, whatever the factor."""

LOOKS = 3
"""A rank is slow that was so in so many looks in a row, each at the median of its last steps."""


class Verdict(NamedTuple):
    """A rank began to be slow, or ceased to be."""

    rank: int
    host: str
    is_slow: bool
    text: str

    def __str__(self) -> str:
        where = f"rank {self.rank} on {self.host}"
        return (
            f"{where} is slow: {self.text}; it is left alone"
            if self.is_slow
            else f"{where} is as fast as the others again: {self.text}"
        )


class Stragglers:
    """Looks at the seconds that ranks compute, and has a word to say when a rank begins to be slow or ceases to be."""

    def __init__(self) -> None:
        self._looks: dict[int, int] = {}

    def look(self, busy_s: Mapping[int, float], hosts: Mapping[int, str]) -> list[Verdict]:
        """What is to be said after another look; each thing once."""
        said = []
        for rank, own_s in sorted(busy_s.items()):
            others_s = [other_s for other, other_s in busy_s.items() if other != rank]
            typical_s = statistics.median(others_s) if others_s else own_s
            before = self._looks.get(rank, 0)
            is_slow = own_s > SLOW_FACTOR * typical_s and own_s > typical_s + SLOW_LEAST_S
            self._looks[rank] = before + 1 if is_slow else 0
            if is_slow and before + 1 == LOOKS:
                times = own_s / max(typical_s, 1e-9)
                text = f"it computes {own_s:.3f} s a step, the others {typical_s:.3f} s ({times:.1f} times)"
                said.append(Verdict(rank, hosts[rank], True, text))
            elif not is_slow and before >= LOOKS:
                said.append(Verdict(rank, hosts[rank], False, f"{own_s:.3f} s a step"))
        return said
