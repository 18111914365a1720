"""A ward: kinds of waiting jobs of all queues that are placed alike."""

from __future__ import annotations

from collections.abc import Sequence

from phalanx.engine.demand import Demand


class Ward:
    """Members of one demand. `limited` are those of queues with limits: what these may have does not follow from what
    the pool has. It is open while members may have what they need, and a place.

    `resting` are those who have had their turn, until something grows. Where one of them was refused, and the others
    would be, the ward is full; `looked` tells how much had grown by then. Of queues that are `standing` all members
    stand in line as well.
    """

    __slots__ = ("demand", "full", "is_open", "limited", "looked", "narrow", "need", "resting", "standing")

    def __init__(self, demand: Demand, limited: bool) -> None:
        self.demand = demand
        self.need = demand.need
        self.limited = limited
        self.resting: list[int] = []
        self.is_open = False
        self.full = False
        self.looked = 0
        self.narrow = False
        self.standing: dict[str, None] = {}

    def is_covered(self, pool: Sequence[int]) -> bool:
        """Whether the pool has what a member needs."""
        gpus, cpus, memory = self.need
        return gpus <= pool[0] and cpus <= pool[1] and memory <= pool[2]
