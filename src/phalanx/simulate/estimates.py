"""Estimates: how long jobs of a trace say they take, made from a seed.

A trace tells how long jobs ran. Users do not know that when they submit them. What they say instead is modelled as in
the literature on backfilling; a job keeps its true length, and policies and forecasts see only what it says.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import ceil, isfinite
from random import Random
from typing import ClassVar, NamedTuple

from phalanx.document.error import brief
from phalanx.errors import PhalanxError
from phalanx.simulate.trace import Trace, TraceJob
from phalanx.workload.job import Kind

MINUTE_MS, HOUR_MS, DAY_MS, WEEK_MS = 60_000, 3_600_000, 86_400_000, 604_800_000

ROUND_MS = (
    *(minutes * MINUTE_MS for minutes in (5, 10, 15, 20, 30, 45)),
    *(hours * HOUR_MS for hours in (1, 2, 3, 4, 5, 6, 8, 10, 12, 18)),
    *(days * DAY_MS for days in (1, 2, 3)),
    WEEK_MS,
)
"""What users say: some twenty round values are nearly all that is ever said (Tsafrir, Etsion and Feitelson, "Modeling
User Runtime Estimates", JSSPP 2005). Which ones differs from site to site; these are ours."""

AMOUNT_MAX = 1_000_000
"""The greatest factor: far beyond what any user says, and no length becomes more than a number can hold."""


class EstimatesError(PhalanxError):
    """Estimates that cannot be read."""

    exit_code: ClassVar[int] = 2


def _exact(length_ms: int, amount: float, random: Random) -> float:
    return length_ms


def _factor(length_ms: int, amount: float, random: Random) -> float:
    return amount * length_ms


def _spread(length_ms: int, amount: float, random: Random) -> float:
    """As likely too short as too long."""
    return random.uniform(1 - amount, 1 + amount) * length_ms


def _badness(length_ms: int, amount: float, random: Random) -> float:
    """Uniform in [r, (f + 1)·r], with the badness factor f of Mu'alem and Feitelson, as Tsafrir and Feitelson write it
    in "The Dynamics of Backfilling", IISWC 2006.
    """
    return random.uniform(1, 1 + amount) * length_ms


def _round(length_ms: int, amount: float, random: Random) -> float:
    """The part of its estimate that a job uses is spread evenly (Mu'alem and Feitelson, IEEE TPDS 2001); the estimate
    is then the next round value. No user says more than the greatest of these for a job that is shorter than that.
    """
    wanted_ms = length_ms / (1.0 - random.random())
    if length_ms > ROUND_MS[-1]:
        return ceil(length_ms / WEEK_MS) * WEEK_MS
    return ROUND_MS[min(bisect_left(ROUND_MS, wanted_ms), len(ROUND_MS) - 1)]


class _Model(NamedTuple):
    """How an estimate is made of a length, an example of its number, and what that may be."""

    estimate: Callable[[int, float, Random], float]
    example: str = ""
    is_allowed: Callable[[float], bool] = lambda amount: True
    expected: str = ""


MODELS = {
    "exact": _Model(_exact),
    "factor": _Model(_factor, "1.3", lambda amount: amount > 0, "more than 0"),
    "spread": _Model(_spread, "0.3", lambda amount: 0 <= amount < 1, "less than 1"),
    "f": _Model(_badness, "4", lambda amount: amount >= 0, "0 or more"),
    "round": _Model(_round),
}


@dataclass(frozen=True, slots=True)
class Estimates:
    """A model of what users say, with its number where it has one."""

    model: str
    amount: float = 0.0

    def of(self, trace: Trace, seed: int) -> Trace:
        """The trace with what each job says. That follows from the seed and its id, so it is the same at every load."""
        return replace(trace, jobs=tuple(self._told(job, seed) for job in trace.jobs))

    def _told(self, job: TraceJob, seed: int) -> TraceJob:
        if job.kind is Kind.SERVICE:
            return job
        estimate_ms = MODELS[self.model].estimate(job.duration_ms, self.amount, Random(f"{seed}/{job.id}"))
        return replace(job, estimate_ms=max(round(estimate_ms), min(job.duration_ms, 1)))


def estimates_of(text: str) -> Estimates:
    """Estimates as they are written on a command line: `exact`, `round`, `factor=1.3`, `spread=0.3`, `f=4`."""
    name, equals, written = text.partition("=")
    model = MODELS.get(name)
    if model is None:
        every = [f"{name}={model.example}" if model.example else name for name, model in MODELS.items()]
        raise EstimatesError(f"--estimates {brief(text)}: expected {', '.join(every[:-1])} or {every[-1]}")
    if not model.example:
        if equals:
            raise EstimatesError(f"--estimates {brief(text)}: {name} has no number")
        return Estimates(name)
    return Estimates(name, _amount(text, written, model, f"{name}={model.example}"))


def _amount(text: str, written: str, model: _Model, example: str) -> float:
    try:
        amount = float(written)
    except ValueError:
        amount = float("nan")
    if not isfinite(amount):
        raise EstimatesError(f"--estimates {brief(text)}: expected a number, as in {example}")
    if not model.is_allowed(amount):
        raise EstimatesError(f"--estimates {brief(text)}: expected {model.expected}")
    if amount > AMOUNT_MAX:
        raise EstimatesError(f"--estimates {brief(text)}: expected at most {AMOUNT_MAX:,}")
    return amount
