"""Fitting times between failures: exponential and Weibull, by maximum likelihood with censored spans.

With d failures, hours t and the rate λ, ln L = d·ln λ − λ·Σt, so that λ = d/Σt. With a Weibull shape k and scale s,
ln L = Σ_failed (ln k − k·ln s + (k−1)·ln t) − Σ (t/s)^k, where s^k = Σt^k/d and k solves
Σt^k·ln t/Σt^k − 1/k = mean of ln t over the failed (Lawless, Statistical Models and Methods for Lifetime Data, 2003).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import erfc, exp, gamma, log, sqrt

from phalanx.faults.fit.log import FailureLog, Span

LEAST_HOURS = 1e-6
"""Failures at the very same moment are taken as this far apart: a density has no logarithm at 0."""


@dataclass(frozen=True, slots=True)
class Fitted:
    """A distribution with the figures that fit best. `shape` 1 is exponential.

    `distance` is the largest between its cumulative hazard residuals and what they should be, `p_value` how likely one
    so large is by chance. `aic` is lower for what explains more with fewer figures.
    """

    name: str
    shape: float
    scale_hours: float
    log_likelihood: float
    aic: float
    distance: float
    p_value: float

    @property
    def mean_hours(self) -> float:
        """Mean time between failures of a node."""
        return float(self.scale_hours * gamma(1 + 1 / self.shape))


@dataclass(frozen=True, slots=True)
class Fit:
    """Both, and which of them to take."""

    exponential: Fitted
    weibull: Fitted
    failures: int
    hours: float
    low_per_hour: float
    high_per_hour: float

    @property
    def better(self) -> Fitted:
        """That with the lower AIC."""
        return min(self.exponential, self.weibull, key=lambda each: each.aic)


def fit(log_: FailureLog) -> Fit:
    """Fits both. The rate of the exponential has its 95 % interval, by the logarithm (d has a spread of 1/√d)."""
    spans = [Span(max(span.hours, LEAST_HOURS), span.failed) for span in log_.spans]
    rate = log_.failures / sum(span.hours for span in spans)
    spread = exp(1.96 / sqrt(log_.failures))
    shape = _shape(spans)
    scale = (sum(span.hours**shape for span in spans) / log_.failures) ** (1 / shape)
    return Fit(
        _fitted("exponential", spans, 1.0, 1 / rate, figures=1),
        _fitted("Weibull", spans, shape, scale, figures=2),
        log_.failures,
        log_.hours,
        rate / spread,
        rate * spread,
    )


def _shape(spans: Sequence[Span]) -> float:
    """The Weibull shape, by halving: the left side of the equation above rises with it."""
    failed = [log(span.hours) for span in spans if span.failed]
    mean = sum(failed) / len(failed)
    longest = max(span.hours for span in spans)

    def over(shape: float) -> float:
        # Over the longest, so that no power overflows.
        powers = [(span.hours / longest) ** shape for span in spans]
        weighted = sum(power * log(span.hours) for power, span in zip(powers, spans, strict=True))
        return float(weighted / sum(powers)) - 1 / shape - mean

    return _root(over, 0.02, 50.0)


def _root(function: Callable[[float], float], low: float, high: float) -> float:
    for _ in range(100):
        middle = sqrt(low * high)
        if function(middle) < 0:
            low = middle
        else:
            high = middle
    return sqrt(low * high)


def _fitted(name: str, spans: Sequence[Span], shape: float, scale: float, figures: int) -> Fitted:
    hazards = [((span.hours / scale) ** shape, span) for span in spans]
    failed = sum(log(shape / scale) + (shape - 1) * log(span.hours / scale) for span in spans if span.failed)
    likelihood = failed - sum(hazard for hazard, _ in hazards)
    distance = _distance([(hazard, span.failed) for hazard, span in hazards])
    count = sum(span.failed for span in spans)
    return Fitted(name, shape, scale, likelihood, 2 * figures - 2 * likelihood, distance, _p_value(distance, count))


def _distance(residuals: list[tuple[float, bool]]) -> float:
    """How far the survival of residuals (Kaplan and Meier's, since some are censored) is from that of chance, e^−x."""
    at_risk, survival, distance = len(residuals), 1.0, 0.0
    for hazard, failed in sorted(residuals):
        expected = exp(-hazard)
        distance = max(distance, abs(survival - expected))
        if failed:
            survival *= 1 - 1 / at_risk
            distance = max(distance, abs(survival - expected))
        at_risk -= 1
    return distance


def _p_value(distance: float, count: int) -> float:
    """Kolmogorov's, with Stephens' correction for a few values. Figures were fitted, so the true one is lower."""
    scaled = distance * (sqrt(count) + 0.12 + 0.11 / sqrt(count))
    if scaled < 0.3:
        return 1.0
    total = sum((1.0 if each % 2 else -1.0) * exp(-2 * (each * scaled) ** 2) for each in range(1, 101))
    return min(max(2 * total, 0.0), 1.0)


def surplus_chance(failures: int, expected: float) -> float:
    """How likely a node has so many failures or more where all nodes are alike: a Poisson tail, else a lemon."""
    if expected > 500:
        return 0.5 * erfc((failures - 0.5 - expected) / sqrt(2 * expected))
    term = total = exp(-expected)
    for count in range(1, failures):
        term *= expected / count
        total += term
    return max(1 - total, 0.0) if failures else 1.0
