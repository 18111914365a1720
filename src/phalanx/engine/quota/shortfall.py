"""What a queue lacks of its quota, and what sets the most that it could have."""

from __future__ import annotations

from typing import NamedTuple

from phalanx.cluster.queues import UNITS

NAMED_MAX = 8
"""Queues that an error names, of those to which something is guaranteed."""


class Shortfall(NamedTuple):
    """Which resource a queue may not have so much more of, and where that is decided.

    `at` is the queue whose limit (`by_limit`) or budget (`by_budget`) is used up; empty, the lendable quota is.
    """

    queue: str
    at: str
    resource: int
    asked: int
    left: int
    by_limit: bool = False
    by_budget: bool = False


class QueueCeiling(NamedTuple):
    """What could ever be had of a resource at a queue (`at`, empty: the cluster): all but other queues' guarantees.

    `guaranteed` are those other queues, by path, without the one that asks.
    """

    at: str
    whole: int
    guaranteed: tuple[tuple[str, int], ...]

    @property
    def most(self) -> int:
        """What is left."""
        return self.whole - sum(amount for _, amount in self.guaranteed)

    def words(self, path: str, resource: int) -> str:
        """The arithmetic for a user of a queue."""
        whole = f"the limit of {self.at} is" if self.at else "the cluster has"
        text = f"{'its limit is' if self.at == path else whole} {said(self.whole, resource)}"
        if not self.guaranteed:
            return text
        (first, most), *rest = self.guaranteed[:NAMED_MAX]
        kept = [f"{first} is guaranteed {said(most, resource)}"]
        kept += (f"{other} {said(amount, resource)}" for other, amount in rest)
        more = f", and {len(self.guaranteed) - NAMED_MAX} others more" if len(self.guaranteed) > NAMED_MAX else ""
        return f"{text}, of which {', '.join(kept)}{more}"


def said(amount: int, resource: int) -> str:
    """An amount of a resource in the unit people use."""
    return f"{amount / UNITS[resource]:g}"
