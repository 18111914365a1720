"""Paired differences: runs of two policies on the same seed differ by their policies alone, so seeds cancel out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import fsum
from typing import Any

from phalanx.simulate.figures.confidence import Interval, interval
from phalanx.simulate.figures.result import Result
from phalanx.simulate.figures.spread import rounded
from phalanx.simulate.studies.table import Better, Measure, is_alike


@dataclass(frozen=True, slots=True)
class Difference:
    """By how much a policy is worse than the best in one figure, over the seeds that both were run with."""

    measure: Measure
    at: float
    policy: str
    best: str
    worse: Interval

    @property
    def is_told_apart(self) -> bool:
        """Whether the runs tell the policy from the best: the interval of the differences is above 0."""
        return self.worse.low is not None and self.worse.low > 0

    def data(self) -> dict[str, Any]:
        """Plain data, for programs."""
        return {
            "metric": self.measure.name,
            "at": rounded(self.at),
            "policy": self.policy,
            "best": self.best,
            "worse_by": rounded(self.worse.mean),
            "low": rounded(self.worse.low),
            "high": rounded(self.worse.high),
            "seeds": self.worse.count,
            "told_apart": self.is_told_apart,
        }


def differences(measure: Measure, at: float, runs: Mapping[str, Mapping[int, Result]]) -> Iterator[Difference]:
    """The difference of each policy to the best, of results by policy and seed at one value of what is varied.

    None where runs of a seed are not alike, such as times to completion of other jobs, or fewer than two seeds have
    the figure under every policy.
    """
    values = {policy: _values(measure, own) for policy, own in runs.items()}
    seeds = [seed for seed in next(iter(values.values()), {}) if all(seed in own for own in values.values())]
    alike = all(is_alike(measure, [own[seed] for own in runs.values()]) for seed in seeds)
    if len(seeds) < 2 or len(values) < 2 or not alike:
        return
    best, worse = worse_than_best(measure, {name: [own[seed] for seed in seeds] for name, own in values.items()})
    for policy, found in worse.items():
        yield Difference(measure, at, policy, best, found)


def worse_than_best(measure: Measure, values: Mapping[str, Sequence[float]]) -> tuple[str, dict[str, Interval]]:
    """The policy with the best mean, and by how much each other one is worse, of values by policy in order of seeds."""
    sign = 1 if measure.better is Better.LOWER else -1
    best = min(values, key=lambda policy: sign * fsum(values[policy]))
    return best, {
        policy: interval([sign * (mine - its) for mine, its in zip(own, values[best], strict=True)])
        for policy, own in values.items()
        if policy != best
    }


def clear_best(found: Sequence[Difference]) -> str | None:
    """The policy that every other one is told apart from; None where there is none."""
    return found[0].best if found and all(each.is_told_apart for each in found) else None


def not_told_apart(found: Sequence[Difference]) -> tuple[str, ...]:
    """The best and those that the runs do not tell from it, where these are some but not all."""
    close = [each.policy for each in found if not each.is_told_apart]
    return (found[0].best, *close) if close and len(close) < len(found) else ()


def _values(measure: Measure, runs: Mapping[int, Result]) -> dict[int, float]:
    found = {seed: measure.of(result.summary) for seed, result in runs.items()}
    return {seed: value for seed, value in found.items() if value is not None}
