"""Rows: what a benchmark prints. A target is the most a value may be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypedDict

Tell = Callable[[str], None]
"""Takes a line of progress."""


class Row(TypedDict):
    """One figure. A ratio names both its sides; a figure that only stands beside others has no target."""

    name: str
    value: float | None
    unit: str
    target: float | None
    met: bool | None


def row(name: str, value: float | None, unit: str, target: float | None = None) -> Row:
    """A figure with its target; one that could not be measured has no value and meets none."""
    met = None if target is None else value is not None and value <= target
    return Row(name=name, value=None if value is None else round(value, 6), unit=unit, target=target, met=met)


def ratio(ours: float | None, theirs: float | None) -> float | None:
    """How many times theirs ours is. Nothing beside nothing is 1; something beside nothing has no ratio."""
    if ours is None or theirs is None:
        return None
    if theirs:
        return ours / theirs
    return None if ours else 1.0


def quantile(values: Sequence[float], share: float) -> float | None:
    """The value that a share of the values do not exceed; None if there are no values."""
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)] if ordered else None
