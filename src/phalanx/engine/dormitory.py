"""Dormitories: what those of one queue have in common who lie in wards."""

from __future__ import annotations

from collections.abc import Mapping

from phalanx.engine.demand import Demand
from phalanx.engine.quotas import Most
from phalanx.engine.wards import Ward


class Dormitory:
    """That of one queue: its place in the tree of queues, whether it has limits, the wards that there are for such, and
    its classes with those they lie in.
    """

    __slots__ = ("_known", "_least", "classes", "limited", "place", "wards")

    def __init__(self, place: int, limited: bool, wards: Mapping[Demand, Ward]) -> None:
        self.place = place
        self.limited = limited
        self.wards = wards
        self.classes: dict[int, Ward] = {}
        self._least: Most = []
        self._known = 0

    def may_be_helped(self, most: Most) -> bool:
        """Whether anybody may need so little."""
        if self._known != len(self.classes):
            self._known = len(self.classes)
            needs = [ward.need for ward in dict.fromkeys(self.classes.values())]
            self._least = [min(amounts) for amounts in zip(*needs, strict=True)]
        least = self._least
        return bool(least) and least[0] <= most[0] and least[1] <= most[1] and least[2] <= most[2]
