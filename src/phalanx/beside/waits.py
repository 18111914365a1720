"""Waits: how long each job waited for the other scheduler, and how long it would have for phalanx."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean


@dataclass(frozen=True, slots=True)
class Wait:
    """How long one job waited either way, from when it was first seen."""

    theirs_ms: int
    ours_ms: int


@dataclass(frozen=True, slots=True)
class Summary:
    """What came of some waits: their means in seconds, and for how many jobs ours was shorter, or longer."""

    theirs_s: float
    ours_s: float
    earlier: int
    later: int


def summary(waits: Sequence[Wait], alike_ms: int = 0) -> Summary:
    """Sums up waits. Two that differ by no more than `alike_ms` count as the same."""
    return Summary(
        round(fmean(each.theirs_ms for each in waits) / 1000, 1) if waits else 0.0,
        round(fmean(each.ours_ms for each in waits) / 1000, 1) if waits else 0.0,
        sum(each.theirs_ms - each.ours_ms > alike_ms for each in waits),
        sum(each.ours_ms - each.theirs_ms > alike_ms for each in waits),
    )
