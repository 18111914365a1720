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
from phalanx.simulate.studies.paired import Difference, clear_best, differences, not_told_apart
from phalanx.simulate.studies.study import Case, Study
from phalanx.simulate.studies.table import AMONG_BEST, BEST, MEASURES, Measure
from phalanx.simulate.studies.vary import LOAD, NODES, Curve

SHOWN = ("completed", "mean_jct", "p95_jct", "mean_wait", "mean_queued", "p95_queued", "allocated", "preemptions")

_FIGURES = tuple(Column(each.key, each.title.upper(), wide=each.key not in SHOWN) for each in MEASURES)
COLUMNS = (Column("policy"), Column(LOAD), *_FIGURES)
COLUMNS_BY_NODES = (Column("policy"), Column(NODES), *_FIGURES)


DIFFERENCES = (Column("figure"), Column("best"), Column("worse", "WORSE BY"), Column("told_apart"))


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
        """For programs: for each policy its runs, its curves, and its paired differences to the best."""
        found = [each for column in self.by_column().values() for each in column]
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
                "differences": [each.data() for each in found if each.policy == policy],
            }
            for policy in dict.fromkeys(case.policy for case, _ in self.runs)
        ]

    def rows(self) -> list[dict[str, object]]:
        """For people: a row for each load, or number of nodes, and policy.

        A star marks the best of those where the paired differences tell it from all others; where they tell it from
        some only, it and those left have a tilde.
        """
        rows: dict[tuple[float, str], dict[str, object]] = {}
        marks = self._marks()
        for curve in self.curves:
            for at, point in curve.points:
                row = rows.setdefault((at, curve.policy), {"policy": curve.policy, self._key: self._as_read(at)})
                row[curve.measure.key] = _text(curve.measure, point) + marks.get(
                    (curve.measure.key, at, curve.policy), ""
                )
        return [rows[key] for key in sorted(rows, key=lambda key: key[0])]

    def _marks(self) -> dict[tuple[str, float, str], str]:
        """What marks a policy in a column, at one value."""
        marks: dict[tuple[str, float, str], str] = {}
        for (key, at), found in self.by_column().items():
            best = clear_best(found)
            if best is not None:
                marks[key, at, best] = BEST
            marks |= {(key, at, policy): AMONG_BEST for policy in not_told_apart(found)}
        return marks

    def by_column(self) -> dict[tuple[str, float], list[Difference]]:
        """The paired differences to the best, for each measure and value."""
        runs: dict[float, dict[str, dict[int, Result]]] = {}
        for case, result in self.runs:
            runs.setdefault(self._at(case), {}).setdefault(case.policy, {})[case.seed] = result
        return {
            (measure.key, at): list(differences(measure, at, own)) for measure in MEASURES for at, own in runs.items()
        }

    def difference_rows(self) -> list[dict[str, object]]:
        """For people: by how much each policy is worse than the best of a column that is shown."""
        return [
            {
                "policy": each.policy,
                self._key: self._as_read(each.at),
                "figure": each.measure.title,
                "best": each.best,
                "worse": _text(each.measure, each.worse),
                "told_apart": "yes" if each.is_told_apart else "no",
            }
            for (key, _), found in self.by_column().items()
            if key in SHOWN
            for each in found
        ]

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


def _text(measure: Measure, point: Interval) -> str:
    if point.high is None:
        return measure.text(point.mean)
    return f"{measure.text(point.mean)} ± {measure.text(point.high - point.mean)}"
