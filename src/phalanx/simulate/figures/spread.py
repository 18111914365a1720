"""Spreads: the mean and percentiles of values, and figures as they are printed."""

from __future__ import annotations

import math
from collections.abc import Sequence

DECIMALS = 6
PERCENTS = (50, 95, 99)


def spread(values: Sequence[float]) -> dict[str, float | None]:
    """The mean and percentiles of values; without values, all null."""
    ordered = sorted(values)
    mean = math.fsum(ordered) / len(ordered) if ordered else None
    return {"mean": rounded(mean)} | {f"p{percent}": rounded(percentile(ordered, percent)) for percent in PERCENTS}


def percentile(ordered: Sequence[float], percent: int) -> float | None:
    """The nearest rank: the smallest of the values that at least `percent` per cent of them do not exceed.

    It is always one of the values, so that it needs no rule for the space between two of them.
    """
    if not ordered:
        return None
    # Whole numbers all the way: a rank that comes out as 94.99999 would take the wrong value.
    rank = -(-percent * len(ordered) // 100)
    return ordered[max(rank, 1) - 1]


def rounded(value: float | None) -> float | None:
    """A figure as it is printed: six decimals, so that equal runs print equal text."""
    if value is None:
        return None
    if not math.isfinite(value):
        raise ValueError(f"expected a finite figure, found {value}")
    # Adding zero turns -0.0, which prints differently, into 0.0.
    return round(float(value), DECIMALS) + 0.0
