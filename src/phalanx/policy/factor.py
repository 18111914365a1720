"""Factors and measures: from what a policy works out the place of a job and of its queue, to be shown to people."""

from __future__ import annotations

from typing import NamedTuple


class Factor(NamedTuple):
    """One part of what a job is worth: a value from 0 to 1 and what it weighs."""

    name: str
    value: float
    weight: int

    @property
    def points(self) -> float:
        """What it adds to the priority."""
        return self.weight * self.value


class Measure(NamedTuple):
    """Something that a policy goes by when it compares a queue with those beside it; None is without end."""

    name: str
    value: float | None
