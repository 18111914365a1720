"""Points of a curve: what runs with one number of nodes came to, over seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, isfinite
from typing import NamedTuple

from phalanx.capacity.target import Target
from phalanx.simulate.figures.confidence import Interval, interval

HOURS_MONTH = 730.0
"""8,760 hours of a year ÷ 12, as price lists have it."""


class Sample(NamedTuple):
    """What one run came to: each figure, or None where it is of no job; the GPU time that jobs held, and its share."""

    values: tuple[float | None, ...]
    allocated: float
    gpu_hours: float


@dataclass(frozen=True, slots=True)
class Point:
    """The runs of one policy with one number of nodes, each with another seed."""

    policy: str
    nodes: int
    gpus: int
    usd_month: float
    samples: tuple[Sample, ...]

    def figure(self, index: int) -> Interval | None:
        """The mean of a figure over seeds; None where it is of no job, or jobs never started, in one of the runs."""
        values = [sample.values[index] for sample in self.samples]
        known = [value for value in values if value is not None and isfinite(value)]
        return interval(known) if len(known) == len(values) else None

    @property
    def allocated(self) -> Interval:
        """The share of GPU time that jobs held."""
        return interval([sample.allocated for sample in self.samples])

    @property
    def gpu_hours(self) -> Interval:
        """GPU time that jobs held, whatever came of it."""
        return interval([sample.gpu_hours for sample in self.samples])

    @property
    def usd_held(self) -> float:
        """What the GPU time that jobs held costs, by the mean price of a GPU-hour; the rest stood idle."""
        return self.gpu_hours.mean * self.usd_month / (HOURS_MONTH * self.gpus) if self.gpus else 0.0

    def holds(self, targets: Sequence[Target]) -> bool:
        """Whether every target is met, as sure as the seeds make it: by the upper bound of the mean."""
        return all(upper(self.figure(index)) < target.below_s for index, target in enumerate(targets))


def upper(found: Interval | None) -> float:
    """The highest mean that the runs let expect."""
    if found is None:
        return inf
    return found.mean if found.high is None else found.high
