"""Sweeps: one submission, a member for every point of what is to be tried."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from itertools import product
from math import exp, floor, log

from phalanx.workload.halving import Halving

Point = tuple[tuple[str, str], ...]
"""The value of every parameter, as it is handed to the program."""

_MASK = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Choice:
    """A parameter with a few values."""

    name: str
    values: tuple[str, ...]

    def at(self, place: float) -> str:
        """The value at a place from 0 to 1."""
        return self.values[int(place * len(self.values))]


@dataclass(frozen=True, slots=True)
class Range:
    """A parameter between two numbers; whole ones, if both are. With `log` every factor is as likely as any other."""

    name: str
    least: Decimal
    most: Decimal
    log: bool = False

    def at(self, place: float) -> str:
        """The value at a place from 0 to 1."""
        whole = self.least == int(self.least) and self.most == int(self.most)
        least, most = float(self.least), float(self.most) + whole
        value = exp(log(least) + place * log(most / least)) if self.log else least + place * (most - least)
        return str(min(floor(value), int(self.most))) if whole else f"{value:.6g}"


Parameter = Choice | Range


@dataclass(frozen=True, slots=True)
class Sweep:
    """What members try, by index, and how those are found that are stopped early. A member has only its own point."""

    points: tuple[Point, ...]
    halving: Halving | None = None


def grid(choices: tuple[Choice, ...]) -> tuple[Point, ...]:
    """Every combination of values, the last parameter changing fastest."""
    names = [choice.name for choice in choices]
    combinations = product(*(choice.values for choice in choices))
    return tuple(tuple(zip(names, values, strict=True)) for values in combinations)


def drawn(parameters: tuple[Parameter, ...], samples: int, seed: int) -> tuple[Point, ...]:
    """So many points at random, the same for the same seed; more samples begin with the same points."""
    chance = _uniform(seed)
    return tuple(
        tuple((parameter.name, parameter.at(next(chance))) for parameter in parameters) for _ in range(samples)
    )


def _uniform(seed: int) -> Iterator[float]:
    """Numbers from 0 up to 1, by SplitMix64 (Steele, Lea and Flood, OOPSLA 2014): a function of the seed alone."""
    state = seed & _MASK
    while True:
        state = (state + 0x9E3779B97F4A7C15) & _MASK
        mixed = ((state ^ state >> 30) * 0xBF58476D1CE4E5B9) & _MASK
        mixed = ((mixed ^ mixed >> 27) * 0x94D049BB133111EB) & _MASK
        yield ((mixed ^ mixed >> 31) >> 11) / (1 << 53)
