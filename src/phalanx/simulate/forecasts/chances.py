"""Chances: what is drawn by chance in one of several runs ahead, so that the runs together are no chance.

With a handful of runs, each with draws of its own, all of them may have the job that is waited for last long: drawn by
the same seed again and again, they had in every forecast. So each run has another of as many equally likely parts of
what is possible for a job, in an order of the job's own (Latin hypercube sampling: McKay, Beckman and Conover,
Technometrics 1979). The order goes with the job's id: from one forecast to the next a job keeps its draws.

Jobs that wait together are wrong together: one user has sent many of them, or all say too much. Were their draws
independent, they would balance each other out, and the more jobs are ahead the surer a forecast would be of a wrong
start. So the orders are alike (Iman and Conover, Communications in Statistics 1982): in the first run most jobs are
short, in the last most are long.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import sqrt
from random import Random
from statistics import NormalDist
from zlib import crc32

ORDERS = 1009
"""Orders there are; so few jobs have the same one that it does not matter."""

ALIKE = 0.5
"""The correlation of any two orders, of the scores that are ranked."""


@cache
def orders_of(runs: int, seed: int) -> Sequence[Sequence[int]]:
    """Orders of the parts of so many runs."""
    rng = Random(seed)
    common = [NormalDist().inv_cdf(part / (runs + 1)) for part in range(1, runs + 1)]
    return [_ranks([sqrt(ALIKE) * each + sqrt(1 - ALIKE) * rng.gauss(0, 1) for each in common]) for _ in range(ORDERS)]


def _ranks(values: Sequence[float]) -> Sequence[int]:
    """The rank of each among all, from 1 on."""
    ordered = sorted(values)
    return [1 + ordered.index(value) for value in values]


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
