"""Shapes: what jobs of a workload are like. A handful of figures each, with where they come from."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, log
from random import Random

DURATION_MIN_MS, DURATION_MAX_MS = 1_000, 5_000_000_000
"""The longest job of the distilled Philly trace ran 4,628,226 s."""


@dataclass(frozen=True, slots=True)
class Lognormal:
    """A part of a mixture of durations: its weight, its median, and the deviation of the logarithm."""

    weight: float
    median_s: float
    sigma: float

    def draw_s(self, rng: Random) -> float:
        """One duration."""
        return self.median_s * exp(self.sigma * rng.gauss(0.0, 1.0))


@dataclass(frozen=True, slots=True)
class LogUniform:
    """A part of a mixture of durations whose logarithm is equally likely between two ends."""

    weight: float
    least_s: float
    most_s: float

    def draw_s(self, rng: Random) -> float:
        """One duration."""
        return self.least_s * exp(rng.random() * log(self.most_s / self.least_s))


@dataclass(frozen=True, slots=True)
class Size:
    """Jobs of one number of GPUs: their share of all jobs and how long they run."""

    gpus: int
    share: float
    durations: tuple[Lognormal | LogUniform, ...]

    def draw_ms(self, rng: Random) -> int:
        """One duration, within bounds."""
        left = rng.random()
        for part in self.durations:
            left -= part.weight
            if left < 0:
                break
        return min(max(int(part.draw_s(rng) * 1000), DURATION_MIN_MS), DURATION_MAX_MS)


@dataclass(frozen=True, slots=True)
class Shape:
    """A workload: the mix of sizes, how jobs end, when they come, and how unequal queues are.

    `day_swing` is the first harmonic of arrivals over the day, `weekend` the rate of a weekend's day over that of a
    working day, `queue_skew` the exponent of Zipf's law for the shares of queues and of users within them.
    """

    name: str
    sizes: tuple[Size, ...]
    models: tuple[str, ...]
    failed: float
    cancelled: float
    day_swing: float
    weekend: float
    queue_skew: float


_PHILLY_SMALL = (Lognormal(0.187, 65, 0.17), Lognormal(0.216, 2_030, 0.51), Lognormal(0.597, 1_330, 1.96))
_PHILLY_PAIR = (Lognormal(0.644, 18, 0.34), Lognormal(0.184, 44, 1.45), Lognormal(0.172, 89_000, 1.24))
_PHILLY_FOUR = (Lognormal(0.277, 203, 1.12), Lognormal(0.550, 27_300, 1.68), Lognormal(0.173, 117_000, 0.43))
_PHILLY_NODE = (Lognormal(0.319, 503, 1.58), Lognormal(0.249, 15_200, 0.78), Lognormal(0.432, 198_000, 0.82))
_PHILLY_LARGE = (Lognormal(0.526, 643, 2.41), Lognormal(0.335, 79_700, 0.67), Lognormal(0.139, 313_000, 0.71))

PHILLY = Shape(
    "philly",
    # Shares and durations are fitted (expectation maximisation) to the 82,247 jobs of the distilled Philly trace.
    sizes=(
        Size(1, 0.9317, _PHILLY_SMALL),
        Size(2, 0.0221, _PHILLY_PAIR),
        Size(4, 0.0227, _PHILLY_FOUR),
        Size(8, 0.0200, _PHILLY_NODE),
        Size(16, 0.0026, _PHILLY_LARGE),
        Size(32, 0.0008, _PHILLY_LARGE),
        Size(64, 0.0001, _PHILLY_LARGE),
    ),
    models=("resnet50", "resnet152", "inception3", "vgg16", "vgg19", "alexnet", "googlenet", "lstm", "transformer"),
    # Jeon et al., ATC'19, table 6: of all jobs 17.2 % were unsuccessful and 13.5 % killed.
    failed=0.172,
    cancelled=0.135,
    day_swing=0.29,
    weekend=0.52,
    queue_skew=1.5,
)

_GAVEL_DURATIONS = (LogUniform(0.8, 60 * 10**1.5, 60 * 10**3), LogUniform(0.2, 60 * 10**3, 60 * 10**4))

GAVEL = Shape(
    "gavel",
    # Narayanan et al., OSDI'20, for their simulations: 70 % of jobs have one worker, 25 % two to four (their code: 10
    # and 15 %), 5 % eight; a job runs 10^x minutes, x uniform in [1.5, 3] for 80 % of jobs and in [3, 4] for the rest.
    sizes=(
        Size(1, 0.70, _GAVEL_DURATIONS),
        Size(2, 0.10, _GAVEL_DURATIONS),
        Size(4, 0.15, _GAVEL_DURATIONS),
        Size(8, 0.05, _GAVEL_DURATIONS),
    ),
    models=("resnet18", "resnet50", "transformer", "lm", "recommendation", "cyclegan", "a3c"),
    failed=0.0,
    cancelled=0.0,
    day_swing=0.0,
    weekend=1.0,
    queue_skew=0.0,
)

_EVALUATION = (Lognormal(1.0, 120, 1.2),)
_FINE_TUNING = (Lognormal(0.5, 900, 1.4), Lognormal(0.5, 14_400, 1.0))
_PRETRAINING = (Lognormal(0.6, 3_600, 1.6), Lognormal(0.4, 86_400, 1.0))

LLM = Shape(
    "llm",
    # Our own figures after the picture of Hu et al., NSDI'24: most jobs are short evaluations, a few large gangs that
    # pretrain take nearly all GPU time. In their two clusters 40 and 43 % of jobs failed, 6 and 7.5 % were cancelled.
    sizes=(
        Size(1, 0.55, _EVALUATION),
        Size(2, 0.12, _EVALUATION),
        Size(4, 0.08, _EVALUATION),
        Size(8, 0.17, _FINE_TUNING),
        Size(32, 0.04, _FINE_TUNING),
        Size(64, 0.02, _PRETRAINING),
        Size(128, 0.01, _PRETRAINING),
        Size(256, 0.006, _PRETRAINING),
        Size(512, 0.004, _PRETRAINING),
    ),
    models=("llama-7b", "llama-13b", "llama-70b", "mixtral-8x7b", "gpt-175b"),
    failed=0.40,
    cancelled=0.07,
    day_swing=0.29,
    weekend=0.52,
    queue_skew=1.0,
)

SHAPES = {shape.name: shape for shape in (PHILLY, GAVEL, LLM)}
