"""Factors: the parts of which a policy adds up what a job is worth, to be shown to people."""

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
