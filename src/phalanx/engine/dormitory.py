"""Dormitories: what those of one queue have in common who lie down at once."""

from __future__ import annotations

from phalanx.engine.demand import Demand
from phalanx.engine.queue_keys import Entry
from phalanx.engine.quotas import EVERY, Most, Quotas
from phalanx.engine.wards import Ward

Bunk = tuple[list[Entry], list[int], list[int]]
"""For those who need the same: their entries in the tree of their ward, all who come into that ward, and all of the
queue who lie down in line or all who do not."""


class Dormitory:
    """That of one queue: its place in the tree of queues, whether it has limits, and the most that its jobs may have
    back from others. Who may have something back is `lucky`; the others lie in bunks, in line or not.
    """

    __slots__ = ("bunks", "in_line", "limited", "lucky", "most", "not_in_line", "place")

    def __init__(self, place: int, queue: str, quotas: Quotas) -> None:
        self.place = place
        self.limited = quotas.accounts[queue].limited
        most = quotas.reclaimable(queue)
        # Who needs nothing of something may have none of it back.
        self.most: Most = [max(amount, 0) for amount in most] if most is not None else [-1] * len(EVERY)
        self.lucky: list[Entry] = []
        self.bunks: dict[Demand, Bunk] = {}
        self.in_line: list[int] = []
        self.not_in_line: list[int] = []

    def bunk(self, ward: Ward, in_line: bool) -> Bunk:
        """Where those lie down who need the same."""
        if in_line:
            return ward.tree.newcomers(self.place), ward.in_line, self.in_line
        return [], ward.not_in_line, self.not_in_line
