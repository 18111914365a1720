"""Chances: what is drawn by chance in one of several runs ahead, so that the runs together are no chance.

With a handful of runs, each with draws of its own, all of them may have the job that is waited for last long: drawn by
the same seed again and again, they had in every forecast. So each run has another of as many equally likely parts of
what is possible for a job, in an order of the job's own (Latin hypercube sampling: McKay, Beckman and Conover,
Technometrics 1979). The order goes with the job's id: from one forecast to the next a job keeps its draws.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from zlib import crc32

ORDERS = 1009
"""Orders there are; so few jobs have the same one that it does not matter."""


def orders_of(runs: int, seed: int) -> list[list[int]]:
    """Orders of the parts of so many runs."""
    rng = Random(seed)
    return [rng.sample(range(1, runs + 1), runs) for _ in range(ORDERS)]


class Chances:
    """What one of several runs draws."""

    def __init__(self, number: int, seed: int, orders: Sequence[Sequence[int]]) -> None:
        self.rng = Random(f"{seed}/{number}")
        self._number = number
        self._orders = orders

    def part(self, name: str) -> float:
        """Where among all that is possible for something this run is: with 9 runs one of 0.1, 0.2, … 0.9, so that 8 of
        10 lie between the first and the last.
        """
        order = self._orders[crc32(name.encode()) % len(self._orders)]
        return order[self._number] / (len(order) + 1)
