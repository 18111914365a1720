"""Rankings: which policy is how far from the best, over all workloads and loads of a suite."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from phalanx.simulate.confidence import Interval, interval
from phalanx.simulate.suite import Cell
from phalanx.simulate.table import Better, Measure, duration_text, index_text, share_text

FIGURES = (
    Measure("mean_jct", ("jct_s", "mean"), Better.LOWER, duration_text, "s"),
    Measure("p99_jct", ("jct_s", "p99"), Better.LOWER, duration_text, "s"),
    Measure("allocated", ("gpu_allocated",), Better.HIGHER, share_text),
    Measure("jain", ("fairness", "jain"), Better.HIGHER, index_text),
)
"""What policies are ranked by."""

NEAR = 1.05
"""So many times the best is as good as it."""

Place = tuple[str, float]
"""A workload and a load."""


@dataclass(frozen=True, slots=True)
class Standing:
    """A policy over all places: its mean rank, how many times the best it is (geometric mean), where it is near it."""

    policy: str
    rank: float
    ratios: Mapping[str, float]
    near: int
    worst: Mapping[str, tuple[float, Place]]


@dataclass(frozen=True, slots=True)
class Ranking:
    """What a suite came to. `means` are by figure, place and policy."""

    policies: tuple[str, ...]
    places: tuple[Place, ...]
    means: Mapping[str, Mapping[Place, Mapping[str, Interval]]]
    standings: tuple[Standing, ...]

    @property
    def compared(self) -> int:
        """Figures times places: in how many comparisons each policy stands."""
        return len(FIGURES) * len(self.places)

    def rows(self) -> list[dict[str, Any]]:
        """For people and programs: a row for each policy, the best first."""
        return [
            {
                "policy": each.policy,
                "rank": round(each.rank, 2),
                **{key: round(value, 3) for key, value in each.ratios.items()},
                "near_best": f"{each.near}/{self.compared}",
            }
            for each in self.standings
        ]


def ranked(cells: Sequence[Cell]) -> Ranking:
    """The ranking of cells. A policy that lacks a place is not ranked there."""
    policies = tuple(dict.fromkeys(cell.policy for cell in cells))
    places = tuple(sorted(dict.fromkeys((cell.workload, cell.load) for cell in cells)))
    means = {figure.key: {place: _means(figure, place, cells) for place in places} for figure in FIGURES}
    standings = [_standing(policy, means) for policy in policies]
    return Ranking(policies, places, means, tuple(sorted(standings, key=lambda each: (each.rank, each.policy))))


def _means(figure: Measure, place: Place, cells: Sequence[Cell]) -> dict[str, Interval]:
    values: dict[str, list[float]] = {}
    for cell in cells:
        value = figure.of(cell.summary) if (cell.workload, cell.load) == place else None
        if value is not None:
            values.setdefault(cell.policy, []).append(value)
    return {policy: interval(own) for policy, own in values.items()}


def ratio_to_best(figure: Measure, means: Mapping[str, Interval], policy: str) -> float | None:
    """How many times the best a policy is: 1 is the best, more is worse, whichever way the figure is better."""
    if policy not in means:
        return None
    own, all_means = means[policy].mean, [each.mean for each in means.values()]
    best = min(all_means) if figure.better is Better.LOWER else max(all_means)
    if own <= 0 or best <= 0:
        return 1.0 if own == best else None
    return own / best if figure.better is Better.LOWER else best / own


def _standing(policy: str, means: Mapping[str, Mapping[Place, Mapping[str, Interval]]]) -> Standing:
    ranks: list[float] = []
    ratios: dict[str, float] = {}
    worst: dict[str, tuple[float, Place]] = {}
    near = 0
    for figure in FIGURES:
        found: list[tuple[float, Place]] = []
        for place, own in means[figure.key].items():
            ratio = ratio_to_best(figure, own, policy)
            if ratio is None:
                continue
            found.append((ratio, place))
            near += ratio <= NEAR
            ranks.append(_rank(figure, own, policy))
        if found:
            ratios[figure.key] = math.exp(math.fsum(math.log(ratio) for ratio, _ in found) / len(found))
            worst[figure.key] = max(found)
    rank = math.fsum(ranks) / len(ranks) if ranks else math.inf
    return Standing(policy, rank, ratios, near, worst)


def _rank(figure: Measure, means: Mapping[str, Interval], policy: str) -> float:
    """1 for the best; those that are equal share the mean of their places."""
    own = means[policy].mean
    better = sum(each.mean < own if figure.better is Better.LOWER else each.mean > own for each in means.values())
    equal = sum(each.mean == own for each in means.values())
    return better + (equal + 1) / 2
