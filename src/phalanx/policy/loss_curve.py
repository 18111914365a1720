"""Loss curves: how many steps a training will take until it converges, from the losses it has reported so far.

The model is that of Optimus (Peng et al., EuroSys 2018, §3.1) for stochastic gradient descent, which converges as 1/k:
loss = 1 / (b0·k + b1) + b2, with no coefficient below 0. For a given b2 the rest is linear in 1 / (loss − b2); the b2
that leaves the least error is searched for on a grid, twice, the second time around the best of the first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from operator import mul

from phalanx.policy.least_squares import non_negative

Sample = tuple[float, float]
"""A step and the loss there."""

SAMPLES_MIN = 4
"""With fewer samples than this three coefficients say nothing."""

SAMPLES_MAX = 48
"""Samples that are kept of a job: with more, every other one is dropped, so that they reach back to its beginning."""

GRID = 16


@dataclass(frozen=True, slots=True)
class LossCurve:
    """A fitted curve. `error` is the root of the mean square it is off by, over the drop of the loss so far."""

    b0: float
    b1: float
    b2: float
    error: float

    def at(self, step: float) -> float:
        """The loss at a step."""
        return 1.0 / (self.b0 * step + self.b1) + self.b2

    def converges_at(self, epoch_steps: float, drop: float) -> float | None:
        """The step from which on an epoch lowers the loss by less than `drop`; None if there is no such step.

        The drop of an epoch of E steps from u = b0·k + b1 on is h / (u·(u + h)) with h = b0·E; it is solved for u.
        """
        h = self.b0 * epoch_steps
        if h <= 0 or drop <= 0:
            return None
        u = (sqrt(h * h + 4 * h / drop) - h) / 2
        return max((u - self.b1) / self.b0, 0.0)


def thinned(samples: list[Sample]) -> list[Sample]:
    """The samples, or every other one of too many."""
    return samples if len(samples) <= SAMPLES_MAX else samples[::2]


def fit(samples: Sequence[Sample]) -> LossCurve | None:
    """The curve that comes closest to the samples; None if they are too few, or the loss does not fall."""
    if len(samples) < SAMPLES_MIN or min(loss for _, loss in samples) <= 0:
        return None
    least, most = min(loss for _, loss in samples), max(loss for _, loss in samples)
    if most <= least:
        return None
    # No floor above the last of the losses, nor so near to them that 1 / (loss − floor) is all noise.
    best = _best(samples, [least * i / GRID for i in range(GRID)], most - least)
    if best is not None:
        width = least / GRID
        near = [best.b2 + width * (i - GRID // 2) / (GRID // 2 + 1) for i in range(GRID + 1)]
        best = _best(samples, [floor for floor in near if 0 <= floor < least], most - least)
    return best if best is not None and best.b0 > 0 else None


def _best(samples: Sequence[Sample], floors: Sequence[float], drop: float) -> LossCurve | None:
    found = [curve for curve in (_with_floor(samples, floor, drop) for floor in floors) if curve is not None]
    return min(found, key=lambda curve: curve.error, default=None)


def _with_floor(samples: Sequence[Sample], floor: float, drop: float) -> LossCurve | None:
    """The best curve that ends at this floor.

    An error d of the loss is d / (loss − floor)² in its inverse: rows are weighted by that, so that losses count alike.
    """
    weights = [(loss - floor) * (loss - floor) for _, loss in samples]
    rows = [(weight * step, weight) for weight, (step, _) in zip(weights, samples, strict=True)]
    b0, b1 = non_negative(rows, [loss - floor for _, loss in samples])
    if b1 <= 0:
        return None
    curve = LossCurve(b0, b1, floor, 0.0)
    off = [curve.at(step) - loss for step, loss in samples]
    squares = sum(map(mul, off, off))
    return LossCurve(b0, b1, floor, sqrt(squares / len(samples)) / drop)
