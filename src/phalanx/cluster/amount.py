"""Amounts: how much of one divisible resource (CPU, memory, NICs, a storage tier) every node has left."""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from phalanx.cluster.bits import from_flags, from_members, members

THRESHOLDS_MAX = 128
"""Distinct requests an Amount keeps an index for. Past it the index starts anew; answers stay exact."""

DOUBT_SHARE = 8
"""One node in so many, up to which looking at the nodes in doubt one by one is cheaper than going through all."""


class Amount:
    """One resource over all nodes, with an index that answers "which nodes have at least x" exactly.

    Real job mixes ask for few distinct amounts, so the index keeps a set of nodes per amount asked for and flips
    single bits as a node crosses it.

    What is free is what is left beside the larger of two sums: what is held now, and what will be held once
    terminating holders (ceding) have left and the claims that wait for them are in.
    """

    __slots__ = ("_at_least", "_bit", "_thresholds", "ceding", "claimed", "free", "held", "name", "total")

    def __init__(self, name: str, total: list[int], bit: list[int]) -> None:
        self.name = name
        self.total = total
        self.free = list(total)
        self.held = [0] * len(total)
        self.ceding = [0] * len(total)
        self.claimed = [0] * len(total)
        self._bit = bit
        self._thresholds: list[int] = []
        self._at_least: list[int] = []

    def at_least(self, need: int) -> int:
        """The nodes with at least `need` free."""
        at = bisect_left(self._thresholds, need)
        if at == len(self._thresholds) or self._thresholds[at] != need:
            at = self._watch(need)
        return self._at_least[at]

    def _watch(self, need: int) -> int:
        if len(self._thresholds) >= THRESHOLDS_MAX:
            self._thresholds.clear()
            self._at_least.clear()
        at = bisect_left(self._thresholds, need)
        having = self._having(need, at)
        self._thresholds.insert(at, need)
        self._at_least.insert(at, having)
        return at

    def _having(self, need: int, at: int) -> int:
        """The nodes with at least `need` free, by what is known of the amounts asked for next to it."""
        free = self.free
        below = self._at_least[at - 1] if at else (1 << len(free)) - 1
        above = self._at_least[at] if at < len(self._at_least) else 0
        in_doubt = below & ~above
        if in_doubt.bit_count() * DOUBT_SHARE > len(free):
            return from_flags([has >= need for has in free])
        return above | from_members([node for node in members(in_doubt) if free[node] >= need], len(free))

    def hold(self, node: int, change: int) -> None:
        """Adds to what is held on a node; a negative change gives back."""
        self.held[node] += change
        self._refresh(node)

    def cede(self, node: int, change: int) -> None:
        """Adds to what is held by terminating attempts."""
        self.ceding[node] += change
        self._refresh(node)

    def leave(self, node: int, change: int) -> None:
        """Takes from what is held and from what is being left at once, so that the index is looked at once."""
        self.held[node] -= change
        self.ceding[node] -= change
        self._refresh(node)

    def claim(self, node: int, change: int) -> None:
        """Adds to what is claimed while terminating attempts are still there."""
        self.claimed[node] += change
        self._refresh(node)

    def _refresh(self, node: int) -> None:
        held = self.held[node]
        promised = held - self.ceding[node] + self.claimed[node]
        self.put(node, self.total[node] - (held if held > promised else promised))

    def put(self, node: int, new: int) -> None:
        """Sets what is free on a node."""
        old = self.free[node]
        if new == old:
            return
        self.free[node] = new
        low, high = (old, new) if old < new else (new, old)
        thresholds = self._thresholds
        at = bisect_right(thresholds, low)
        while at < len(thresholds) and thresholds[at] <= high:
            self._at_least[at] ^= self._bit[node]
            at += 1

    def check(self) -> None:
        """Asserts that the index says what the numbers say."""
        for need, nodes in zip(self._thresholds, self._at_least, strict=True):
            assert nodes == from_flags([free >= need for free in self.free]), f"{self.name}: a stale index"
        assert all(free >= 0 for free in self.free), f"{self.name} is given out twice"
