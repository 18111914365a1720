"""The Gittins index: how likely work is to end soon, for what that takes, by how much of it has been done."""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate

INDEX_SCALE = 10**18
"""The index is a fraction; scaled so, whole numbers tell apart what differs."""


class Gittins:
    """The Gittins index of an attained service: the best chance of ending within the quantum per service it takes.

    With samples d of total service and quantum Δ, at service a: P is the share of those longer than a that end by
    a + Δ, E the mean of min(d − a, Δ) over them, and the index P / E (Gittins, Bandit Processes, 1979).
    """

    def __init__(self, samples: tuple[int, ...], quantum_s: int) -> None:
        self.samples = sorted(1000 * sample for sample in samples)
        self.quantum = 1000 * quantum_s
        self._sums = (0, *accumulate(self.samples))

    def _within(self, attained: int) -> tuple[int, int, int]:
        """Samples no longer than this service, those that end within the quantum, and all the rest, as positions."""
        first = bisect_right(self.samples, attained)
        last = bisect_right(self.samples, attained + self.quantum)
        return first, last, len(self.samples)

    def of_theory(self, attained: int) -> int:
        """The index, as an integer."""
        first, last, count = self._within(attained)
        if first == count:
            return 0
        spent = self._sums[last] - self._sums[first] - attained * (last - first) + self.quantum * (count - last)
        return INDEX_SCALE * (last - first) // spent

    def of_code(self, attained: int) -> int:
        """As the authors' simulator has it, which adds up whole sizes instead of what is left of them."""
        first, last, count = self._within(attained)
        if first == count:
            return 0
        spent = self._sums[last] - self._sums[first] + self.quantum * (count - last)
        return INDEX_SCALE * (last - first) // spent
