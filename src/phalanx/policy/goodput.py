"""Goodput: how much a job gets done with so many GPUs, at the batch that suits them best (Qiao et al., OSDI 2021).

Goodput is throughput times efficiency. With noise scale φ and first batch m0 a batch m has the efficiency
(φ + m0) / (φ + m): noisy gradients make good use of large batches. The time of a step is what is computed, a part of
the batch on each GPU, and what is sent, more of it the more GPUs there are, and another amount between nodes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import inf

from phalanx.policy.least_squares import non_negative

Measured = tuple[tuple[tuple[int, int, int], float], ...]
"""GPUs, nodes and batch, and the time of a step with them in milliseconds."""

PRIOR = 0.02
"""What perfect scaling weighs beside a measured step."""

BATCHES = 12
"""So many times a batch may grow by half before no larger one is looked at."""


def terms(gpus: int, nodes: int, batch: float) -> tuple[float, ...]:
    """The terms of a step's time: computing, what does not change, and sending in a node and between nodes (§3.2).

    Computing and sending are added up, as if they never overlapped: γ = 1 in the paper's terms.
    """
    inside, between = float(gpus > 1 and nodes == 1), float(nodes > 1)
    more = max(gpus - 2, 0)
    return (batch / gpus, 1.0, inside, inside * more, between, between * more)


@dataclass(frozen=True, slots=True)
class Goodput:
    """What is known of a job. Without a noise scale its batch stays what it is."""

    coefficients: tuple[float, ...]
    batch_first: float
    batch_max: float
    noise_scale: float | None

    def with_batch(self, gpus: int, nodes: int, batch: float) -> float:
        step_ms = sum(a * b for a, b in zip(self.coefficients, terms(gpus, nodes, batch), strict=True))
        return 1000 * batch / step_ms * self._efficiency(batch) if step_ms > 0 else inf

    def _efficiency(self, batch: float) -> float:
        if self.noise_scale is None:
            return 1.0
        return (self.noise_scale + self.batch_first) / (self.noise_scale + batch)

    def batches(self) -> list[float]:
        if self.noise_scale is None:
            return [self.batch_first]
        grown = [self.batch_first * 1.5**i for i in range(BATCHES)]
        return [*(batch for batch in grown if batch < self.batch_max), max(self.batch_max, self.batch_first)]


@lru_cache(maxsize=1 << 14)
def best(goodput: Goodput, gpus: int, nodes: int) -> float:
    """Useful samples a second, at the best batch."""
    return max(goodput.with_batch(gpus, nodes, batch) for batch in goodput.batches())


@lru_cache(maxsize=1 << 12)
def fit(measured: Measured) -> tuple[float, ...]:
    """The coefficients that come closest to what was measured, by relative error.

    What was never measured is taken to cost nothing: a job is thought to scale perfectly until it is known better. So
    that it takes some time on one GPU, too, perfect scaling down to that weighs a little beside what was measured.
    """
    rows, values = [], []
    for (gpus, nodes, batch), step_ms in measured:
        rows.append([term / step_ms for term in terms(gpus, nodes, batch)])
        rows.append([PRIOR * term / (step_ms * gpus) for term in terms(1, 1, batch)])
        values += [1.0, PRIOR]
    return non_negative(rows, values)
