"""Dormitories: what those of one queue have in common who lie in wards."""

from __future__ import annotations

from collections.abc import Mapping

from phalanx.engine.demand import Demand
from phalanx.engine.quotas import Most
from phalanx.engine.wards import Ward
from phalanx.policy.view import Usage


class Dormitory:
    """That of one queue: its place in the tree of queues, whether it has limits, the wards that there are for such, and
    its classes with those they lie in. `looked` is the most that the queue might have back when all who might have been
    helped by that were last put in line; None once one of them has had its turn.
    """

    __slots__ = ("_known", "_least", "classes", "limited", "looked", "place", "wards")

    def __init__(self, place: int, limited: bool, wards: Mapping[Demand, Ward]) -> None:
        self.place = place
        self.limited = limited
        self.wards = wards
        self.classes: dict[int, Ward] = {}
        self._least = Usage(0, 0, 0)
        self._known = 0
        self.looked: Most | None = None

    @property
    def least(self) -> Usage:
        """What each of them needs at least."""
        if self._known != len(self.classes):
            self._known = len(self.classes)
            needs = [ward.need for ward in dict.fromkeys(self.classes.values())]
            self._least = Usage(*(min(amounts) for amounts in zip(*needs, strict=True)))
        return self._least
