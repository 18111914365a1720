"""Dormitories: what those of one queue have in common who lie in wards."""

from __future__ import annotations

from collections.abc import Mapping

from phalanx.engine.demand import Demand
from phalanx.engine.quotas import UNBOUNDED, Most
from phalanx.engine.ward import Ward


class Dormitory:
    """That of one queue: its place in the tree of queues, whether it has limits, the wards that there are for such, and
    its classes with those they lie in. The `unseen` are laid down once somebody looks at the queue. None needs fewer
    GPUs than `least`, by quota.

    `asked` is whether it was asked who may have something back; then `looked` is what the queue might have
    back when all who might have been helped by that were last put in line; None once one of them has had its turn.
    """

    __slots__ = ("asked", "classes", "least", "limited", "looked", "place", "queue", "unseen", "wards")

    def __init__(self, queue: str, place: int, limited: bool, wards: Mapping[Demand, Ward]) -> None:
        self.queue = queue
        self.place = place
        self.limited = limited
        self.wards = wards
        self.classes: dict[int, Ward] = {}
        self.unseen: list[int] = []
        self.asked = False
        self.least = UNBOUNDED
        self.looked: list[Most] | None = None
