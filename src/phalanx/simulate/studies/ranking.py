"""Rankings: which policy is how far from the best, over all workloads and loads of a suite."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from phalanx.cluster.cluster import DEFAULT_POLICY
from phalanx.simulate.figures.confidence import Interval, interval
from phalanx.simulate.studies.paired import worse_than_best
from phalanx.simulate.studies.suite import Cell, Failure
from phalanx.simulate.studies.table import Better, Measure, duration_text, index_text, share_text
from phalanx.simulate.studies.vary import Curve

MEAN_JCT = Measure("mean_jct", ("jct_s", "mean"), Better.LOWER, duration_text, "s")
FIGURES = (
    MEAN_JCT,
    Measure("p99_jct", ("jct_s", "p99"), Better.LOWER, duration_text, "s"),
    Measure("allocated", ("gpu_allocated",), Better.HIGHER, share_text),
    Measure("jain", ("fairness", "jain"), Better.HIGHER, index_text),
)
"""What policies are ranked by."""

DRAWN_MAX = 8
"""Policies whose lines are drawn, the best of the ranking; all of them are in the numbers below each chart."""

NEAR = 1.05
"""So many times the best is as good as it."""

Place = tuple[str, float]
"""A workload and a load."""


@dataclass(frozen=True, slots=True)
class Standing:
    """A policy over all places: its mean rank, how many times the best it is (geometric mean), where it is near it.

    `foresees` says that it knows what no real cluster does; `near_equals` in how many places it is near the best of
    those that do not.
    """

    policy: str
    rank: float
    ratios: Mapping[str, float]
    near: int
    worst: Mapping[str, tuple[float, Place]]
    foresees: bool = False
    near_equals: int = 0


@dataclass(frozen=True, slots=True)
class Distance:
    """How many times the best a policy is in one figure of one place, and which that is: of all, and of its equals.

    Its equals are those without foresight, whatever it has itself.
    """

    figure: Measure
    place: Place
    ratio: float
    best: str
    ratio_equals: float
    best_equal: str

    @property
    def is_near(self) -> bool:
        """Whether it is as good as the best of all."""
        return self.ratio <= NEAR

    @property
    def is_near_equals(self) -> bool:
        """Whether it is as good as the best of those without foresight."""
        return self.ratio_equals <= NEAR


@dataclass(frozen=True, slots=True)
class Ranking:
    """What a suite came to. `means` are by figure, place and policy; `foreseeing` know what no real cluster does.

    `failures` are runs that are in none of it, `caveats` what one has to know of the rest. `close` are the policies
    that paired differences do not tell from the best, by figure and place.
    """

    policies: tuple[str, ...]
    places: tuple[Place, ...]
    means: Mapping[str, Mapping[Place, Mapping[str, Interval]]]
    standings: tuple[Standing, ...]
    foreseeing: tuple[str, ...] = ()
    failures: tuple[Failure, ...] = ()
    caveats: tuple[str, ...] = ()
    close: Mapping[str, Mapping[Place, tuple[str, ...]]] = field(default_factory=dict)

    def not_told_apart(self, figure: Measure, place: Place) -> tuple[str, ...]:
        """The best of a place and those that paired differences over seeds do not tell from it; none with one seed."""
        return self.close.get(figure.key, {}).get(place, ())

    @property
    def compared(self) -> int:
        """Figures times places: in how many comparisons each policy stands."""
        return len(FIGURES) * len(self.places)

    @property
    def subject(self) -> str:
        """The policy that the page is about: the default one, or, if that was not run, the first of the ranking."""
        defaults = (each for each in self.policies if each.partition(":")[0] == DEFAULT_POLICY)
        return next(defaults, self.standings[0].policy)

    def curves(self, workload: str, policies: Sequence[str], figures: Sequence[Measure] = FIGURES) -> Iterator[Curve]:
        """Figures of policies on a workload against the load."""
        for figure in figures:
            for policy in policies:
                points = tuple(
                    (load, self.means[figure.key][name, load][policy])
                    for name, load in self.places
                    if name == workload and policy in self.means[figure.key][name, load]
                )
                if points:
                    yield Curve("load", policy, figure, points)

    def rows(self) -> list[dict[str, Any]]:
        """For people and programs: a row for each policy, the best first."""
        return [
            {
                "policy": each.policy,
                "foresight": each.foresees,
                "rank": round(each.rank, 2),
                **{key: round(value, 3) for key, value in each.ratios.items()},
                "near_best": f"{each.near}/{self.compared}",
                "near_best_equal": f"{each.near_equals}/{self.compared}",
            }
            for each in self.standings
        ]

    def distances(self, policy: str) -> Iterator[Distance]:
        """How far a policy is from the best, figure by figure, in every place where it was run."""
        for place in self.places:
            for figure in FIGURES:
                found = distance(figure, place, self.means[figure.key][place], policy, self.foreseeing)
                if found is not None:
                    yield found


def ranked(cells: Sequence[Cell], foreseeing: Sequence[str] = (), failures: Sequence[Failure] = ()) -> Ranking:
    """The ranking of cells. A policy that lacks a place is not ranked there."""
    policies = tuple(dict.fromkeys(cell.policy for cell in cells))
    places = tuple(sorted(dict.fromkeys((cell.workload, cell.load) for cell in cells)))
    means = {figure.key: {place: _means(figure, place, cells) for place in places} for figure in FIGURES}
    close = {figure.key: {place: _close(figure, place, cells) for place in places} for figure in FIGURES}
    known = tuple(policy for policy in policies if policy in foreseeing)
    standings = [_standing(policy, means, known) for policy in policies]
    standings.sort(key=lambda each: (each.rank, each.policy))
    return Ranking(policies, places, means, tuple(standings), known, tuple(failures), tuple(_caveats(cells)), close)


def _caveats(cells: Sequence[Cell]) -> Iterator[str]:
    """Jobs that never ended, which are missing from the times of their policies, and solvers that gave no answer."""
    left, kept = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for cell in cells:
        jobs = cell.summary.get("jobs", {})
        left[cell.workload, cell.policy] += jobs.get("unfinished", 0) + jobs.get("never_fit", 0)
        kept[cell.workload, cell.policy] += cell.advice_kept
    for (workload, policy), jobs in sorted((+left).items()):
        counted = "1 job" if jobs == 1 else f"{jobs:,} jobs"
        yield f"{workload}, {policy}: {counted} never ended, of all runs: they are missing from its times"
    for (workload, policy), times in sorted((+kept).items()):
        often = "once" if times == 1 else f"{times:,} times"
        yield f"{workload}, {policy}: its solver found no answer {often}, of all runs; the last advice was kept"


def _means(figure: Measure, place: Place, cells: Sequence[Cell]) -> dict[str, Interval]:
    values: dict[str, list[float]] = {}
    for cell in cells:
        value = figure.of(cell.summary) if (cell.workload, cell.load) == place else None
        if value is not None:
            values.setdefault(cell.policy, []).append(value)
    return {policy: interval(own) for policy, own in values.items()}


def _close(figure: Measure, place: Place, cells: Sequence[Cell]) -> tuple[str, ...]:
    """The best and what is not told from it, of policies that have the figure on every seed."""
    values: dict[str, dict[int, float]] = {}
    for cell in cells:
        value = figure.of(cell.summary) if (cell.workload, cell.load) == place else None
        if value is not None:
            values.setdefault(cell.policy, {})[cell.seed] = value
    seeds = sorted({seed for own in values.values() for seed in own})
    whole = {policy: [own[seed] for seed in seeds] for policy, own in values.items() if len(own) == len(seeds)}
    if len(seeds) < 2 or not whole:
        return ()
    best, worse = worse_than_best(figure, whole)
    return (best, *(policy for policy, found in worse.items() if found.low is None or found.low <= 0))


def ratio_to_best(figure: Measure, means: Mapping[str, Interval], policy: str) -> float | None:
    """How many times the best a policy is: 1 is the best, more is worse, whichever way the figure is better."""
    return _times(figure, means[policy].mean, means[best_of(figure, means)].mean) if policy in means else None


def best_of(figure: Measure, means: Mapping[str, Interval]) -> str:
    """The best policy; of equals the first."""
    best = min if figure.better is Better.LOWER else max
    return best(means, key=lambda policy: means[policy].mean)


def distance(
    figure: Measure, place: Place, means: Mapping[str, Interval], policy: str, foreseeing: Sequence[str]
) -> Distance | None:
    """How far a policy is from the best of all and from the best without foresight; None if it has no such figure."""
    ratio = ratio_to_best(figure, means, policy)
    if ratio is None:
        return None
    equals = {name: mean for name, mean in means.items() if name not in foreseeing}
    best, best_equal = best_of(figure, means), best_of(figure, equals) if equals else policy
    to_equals = _times(figure, means[policy].mean, means[best_equal].mean)
    return Distance(figure, place, ratio, best, ratio if to_equals is None else to_equals, best_equal)


def _times(figure: Measure, own: float, best: float) -> float | None:
    if own <= 0 or best <= 0:
        return 1.0 if own == best else None
    return own / best if figure.better is Better.LOWER else best / own


def _standing(
    policy: str, means: Mapping[str, Mapping[Place, Mapping[str, Interval]]], foreseeing: tuple[str, ...]
) -> Standing:
    ranks: list[float] = []
    ratios: dict[str, float] = {}
    worst: dict[str, tuple[float, Place]] = {}
    near = near_equals = 0
    for figure in FIGURES:
        found: list[tuple[float, Place]] = []
        for place, own in means[figure.key].items():
            away = distance(figure, place, own, policy, foreseeing)
            if away is None:
                continue
            found.append((away.ratio, place))
            near += away.is_near
            near_equals += away.is_near_equals
            ranks.append(_rank(figure, own, policy))
        if found:
            ratios[figure.key] = math.exp(math.fsum(math.log(ratio) for ratio, _ in found) / len(found))
            worst[figure.key] = max(found)
    rank = math.fsum(ranks) / len(ranks) if ranks else math.inf
    return Standing(policy, rank, ratios, near, worst, policy in foreseeing, near_equals)


def _rank(figure: Measure, means: Mapping[str, Interval], policy: str) -> float:
    """1 for the best; those that are equal share the mean of their places."""
    own = means[policy].mean
    better = sum(each.mean < own if figure.better is Better.LOWER else each.mean > own for each in means.values())
    equal = sum(each.mean == own for each in means.values())
    return better + (equal + 1) / 2
