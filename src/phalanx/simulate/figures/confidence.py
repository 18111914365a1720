"""Confidence: how well a few runs tell the mean of many."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

LEVEL = 0.95
_STEPS = 60
"""Halvings of an interval below 2⁷: far below what a float can tell apart near 2."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean and the bounds between which the true one lies with 95 % confidence; one value alone has no bounds."""

    mean: float
    low: float | None
    high: float | None
    count: int


def interval(values: Sequence[float]) -> Interval:
    """The mean ± t · s ÷ √n of independent values, where t is Student's quantile for n − 1 degrees of freedom."""
    count = len(values)
    if not count:
        raise ValueError("an interval needs at least one value")
    mean = fmean(values)
    if count == 1:
        return Interval(mean, None, None, 1)
    margin = t_quantile(count - 1) * stdev(values) / math.sqrt(count)
    return Interval(mean, mean - margin, mean + margin, count)


def t_quantile(freedom: int) -> float:
    """How many standard errors to either side hold 95 % of Student's distribution."""
    if freedom < 1:
        raise ValueError(f"expected at least 1 degree of freedom, found {freedom}")
    low, high = 1.0, 16.0
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if _within(middle, freedom) < LEVEL else (low, middle)
    return high


def _within(t: float, freedom: int) -> float:
    """The probability of a value between −t and t: the finite sums of Abramowitz and Stegun, 26.7.3 and 26.7.4."""
    angle = math.atan(t / math.sqrt(freedom))
    sine, square = math.sin(angle), math.cos(angle) ** 2
    odd = freedom % 2
    term = math.cos(angle) if odd else 1.0
    total = 0.0
    for power in range(1 + odd, freedom, 2):
        total += term
        term *= square * power / (power + 1)
    return 2 / math.pi * (angle + sine * total) if odd else sine * total
