"""Figures of several seeds and loads, for people and for programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from phalanx.cli.output import Column
from phalanx.simulate.figures.confidence import Interval
from phalanx.simulate.figures.metrics import SCHEMA
from phalanx.simulate.figures.result import Result
from phalanx.simulate.figures.spread import rounded
from phalanx.simulate.studies.study import Case, Study
from phalanx.simulate.studies.table import BEST, MEASURES, Better, Measure
from phalanx.simulate.studies.vary import LOAD, NODES, Curve

SHOWN = ("completed", "mean_jct", "p95_jct", "mean_wait", "mean_queued", "p95_queued", "allocated", "preemptions")

_FIGURES = tuple(Column(each.key, each.title.upper(), wide=each.key not in SHOWN) for each in MEASURES)
COLUMNS = (Column("policy"), Column(LOAD), *_FIGURES)
COLUMNS_BY_NODES = (Column("policy"), Column(NODES), *_FIGURES)


@dataclass(frozen=True, slots=True)
class Varied:
    """Runs of several loads, numbers of nodes or seeds. `load` is that of runs that were not brought to one."""

    runs: Sequence[tuple[Case, Result]]
    curves: Sequence[Curve]
    load: float

    @classmethod
    def of(cls, study: Study, runs: Sequence[tuple[Case, Result]]) -> Varied:
        """What the runs of a study came to."""
        return cls(runs, study.curves(runs), study.own_load([case for case, _ in runs]))

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns of `rows`."""
        return COLUMNS_BY_NODES if self._by_nodes else COLUMNS

    @property
    def _by_nodes(self) -> bool:
        return any(case.nodes is not None for case, _ in self.runs)

    def objects(self) -> list[dict[str, Any]]:
        """For programs: for each policy its runs and its curves."""
        return [
            {
                "schema": SCHEMA,
                "policy": policy,
                "runs": [
                    {self._key: self._value(case), "seed": case.seed} | result.summary
                    for case, result in self.runs
                    if case.policy == policy
                ],
                "curves": [curve.data() for curve in self.curves if curve.policy == policy],
            }
            for policy in dict.fromkeys(case.policy for case, _ in self.runs)
        ]

    def rows(self) -> list[dict[str, object]]:
        """For people: a row for each load, or number of nodes, and policy; the best mean of each has a star."""
        rows: dict[tuple[float, str], dict[str, object]] = {}
        for curve in self.curves:
            for at, point in curve.points:
                row = rows.setdefault((at, curve.policy), {"policy": curve.policy, self._key: self._as_read(at)})
                rivals = [_mean_at(other, at) for other in self.curves if other.measure is curve.measure]
                star = BEST * _is_best(curve.measure, point.mean, rivals)
                row[curve.measure.key] = _text(curve.measure, point) + star
        return [rows[key] for key in sorted(rows, key=lambda key: key[0])]

    def shown_in_detail(self) -> tuple[list[Result], str]:
        """The runs of the first seed at the highest value, and what they are: a report draws no more than these."""
        highest = max(self._at(case) for case, _ in self.runs)
        seed = min(case.seed for case, _ in self.runs if self._at(case) == highest)
        chosen = [result for case, result in self.runs if (self._at(case), case.seed) == (highest, seed)]
        return chosen, f"in detail: {f'{highest:g} nodes' if self._by_nodes else f'load {highest:.6g}'}, seed {seed}"

    @property
    def _key(self) -> str:
        return NODES if self._by_nodes else LOAD

    def _value(self, case: Case) -> float | int | None:
        return self._as_read(self._at(case))

    def _as_read(self, at: float) -> float | int | None:
        return int(at) if self._by_nodes else rounded(at)

    def _at(self, case: Case) -> float:
        return case.at(self.load)


def _mean_at(curve: Curve, at: float) -> float | None:
    return next((point.mean for value, point in curve.points if value == at), None)


def _is_best(measure: Measure, mean: float, rivals: Sequence[float | None]) -> bool:
    known = [rival for rival in rivals if rival is not None]
    best = min(known) if measure.better is Better.LOWER else max(known)
    return mean == best and min(known) < max(known)


def _text(measure: Measure, point: Interval) -> str:
    if point.high is None:
        return measure.text(point.mean)
    return f"{measure.text(point.mean)} ± {measure.text(point.high - point.mean)}"
