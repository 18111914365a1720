"""Figures of several seeds and loads, for people and for programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from phalanx.cli.output import Column
from phalanx.simulate.figures.confidence import Interval
from phalanx.simulate.figures.metrics import SCHEMA, rounded
from phalanx.simulate.figures.result import Result
from phalanx.simulate.studies.study import Case, Study
from phalanx.simulate.studies.table import BEST, MEASURES, Better, Measure
from phalanx.simulate.studies.vary import Curve

SHOWN = ("completed", "mean_jct", "p95_jct", "mean_wait", "allocated", "preemptions")

COLUMNS = (
    Column("policy"),
    Column("load"),
    *(Column(measure.key, measure.title.upper(), wide=measure.key not in SHOWN) for measure in MEASURES),
)


@dataclass(frozen=True, slots=True)
class Varied:
    """Runs of several loads or seeds. `load` is that of runs that were not brought to one."""

    runs: Sequence[tuple[Case, Result]]
    curves: Sequence[Curve]
    load: float

    @classmethod
    def of(cls, study: Study, runs: Sequence[tuple[Case, Result]]) -> Varied:
        """What the runs of a study came to."""
        return cls(runs, study.curves(runs), study.own_load([case for case, _ in runs]))

    def objects(self) -> list[dict[str, Any]]:
        """For programs: for each policy its runs and its curves."""
        return [
            {
                "schema": SCHEMA,
                "policy": policy,
                "runs": [
                    {"load": rounded(self._load(case)), "seed": case.seed} | result.summary
                    for case, result in self.runs
                    if case.policy == policy
                ],
                "curves": [curve.data() for curve in self.curves if curve.policy == policy],
            }
            for policy in dict.fromkeys(case.policy for case, _ in self.runs)
        ]

    def rows(self) -> list[dict[str, object]]:
        """For people: a row for each load and policy; the best mean of a load has a star."""
        rows: dict[tuple[float, str], dict[str, object]] = {}
        for curve in self.curves:
            for at, point in curve.points:
                row = rows.setdefault((at, curve.policy), {"policy": curve.policy, "load": rounded(at)})
                rivals = [_mean_at(other, at) for other in self.curves if other.measure is curve.measure]
                star = BEST * _is_best(curve.measure, point.mean, rivals)
                row[curve.measure.key] = _text(curve.measure, point) + star
        return [rows[key] for key in sorted(rows, key=lambda key: key[0])]

    def shown_in_detail(self) -> tuple[list[Result], str]:
        """The runs of the first seed at the highest load, and what they are: a report draws no more than these."""
        highest = max(self._load(case) for case, _ in self.runs)
        seed = min(case.seed for case, _ in self.runs if self._load(case) == highest)
        chosen = [result for case, result in self.runs if (self._load(case), case.seed) == (highest, seed)]
        return chosen, f"in detail: load {highest:.6g}, seed {seed}"

    def _load(self, case: Case) -> float:
        return self.load if case.load is None else case.load


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
