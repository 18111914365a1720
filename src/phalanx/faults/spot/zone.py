"""Zones: where spot nodes can be had, at which price, and when."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from random import Random

from phalanx.errors import PhalanxError

STEP_H = 0.1
"""Traces are a row of steps of six minutes, in each of which spot nodes are there or not."""


class SpotError(PhalanxError):
    """A price, trace or deadline that there cannot be."""


@dataclass(frozen=True, slots=True)
class Zone:
    """Prices of all the job's nodes for an hour, and in which steps there are spot nodes: none after the last."""

    name: str
    spot_usd_h: float
    on_demand_usd_h: float
    there: tuple[bool, ...]

    def __post_init__(self) -> None:
        for name in ("spot_usd_h", "on_demand_usd_h"):
            value = getattr(self, name)
            # Written so that NaN, which fails every comparison, is refused too.
            if not (isfinite(value) and value >= 0):
                raise SpotError(f"zone {self.name}: {name} is {value}: expected a price of at least 0")

    def has_spot(self, step: int) -> bool:
        """Whether there are spot nodes in a step."""
        return step < len(self.there) and self.there[step]

    @property
    def reclaims_per_h(self) -> float:
        """How often spot nodes are taken back, of the hours in which they are there."""
        there = sum(self.there)
        ends = sum(now and not after for now, after in zip(self.there, self.there[1:], strict=False))
        return ends / (there * STEP_H) if there else 0.0


def drawn(seed: int, hours: float, mean_there_h: float, mean_gone_h: float) -> tuple[bool, ...]:
    """A trace by chance: exponential times of there and gone in turn."""
    chance, steps = Random(f"spot {seed}"), round(hours / STEP_H)
    there, found = chance.random() * (mean_there_h + mean_gone_h) < mean_there_h, list[bool]()
    while len(found) < steps:
        mean_h = mean_there_h if there else mean_gone_h
        lasts = max(round(chance.expovariate(1 / mean_h) / STEP_H), 1) if mean_h else 1
        found += [there] * min(lasts, steps - len(found))
        there = not there
    return tuple(found)


def read_trace(text: str, source: str) -> tuple[bool, ...]:
    """A trace from a file: a 0 or 1 a line, for steps of six minutes."""
    found = []
    for number, line in enumerate(text.split(), 1):
        if line not in ("0", "1"):
            raise SpotError(f"{source}: line {number} is {line[:20]!r}: expected 0 or 1 for each six minutes")
        found.append(line == "1")
    if not found:
        raise SpotError(f"{source}: is empty: expected 0 or 1 for each six minutes")
    return tuple(found)
