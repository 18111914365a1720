"""A study that compares policies: its runs, and what they came to as the page shows it."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

import msgspec

from phalanx.errors import PhalanxError
from phalanx.server.studies.asked import COMPARE, Asked
from phalanx.server.studies.over_time import over_time
from phalanx.server.studies.shelf import REPORT
from phalanx.server.studies.sources import notes_of, specs_of
from phalanx.server.studies.telling import Telling, Watch
from phalanx.simulate.figures.confidence import Interval
from phalanx.simulate.figures.never_fit import never_fit_notes
from phalanx.simulate.figures.result import Result
from phalanx.simulate.report import write_report
from phalanx.simulate.studies.batch import run_one
from phalanx.simulate.studies.study import Case, Study
from phalanx.simulate.studies.table import MEASURES, Measure, comparison_rows, measures_of
from phalanx.simulate.studies.vary import Curve


def compared(study: Study, asked: Asked, telling: Telling) -> dict[str, Any]:
    """Runs the policies one after another. One that goes wrong leaves the others what they are."""
    specs = specs_of(asked.policies, study)
    runs, errors = _run(study, study.cases(specs, asked.seeds), telling)
    shown = [result for case, result in runs if case.seed == study.seed]
    curves = study.curves(runs) if asked.seeds > 1 else []
    has_report = find_spec("plotly") is not None
    if has_report:
        telling(0, 0, "drawing the report")
        failing = f", with failures {asked.faults}" if asked.faults else ""
        write_report(shown, REPORT, f"{asked.trace} on {study.cluster.name}{failing}", curves)
    return {
        "kind": COMPARE,
        "trace": asked.trace,
        "cluster": {"name": study.cluster.name, "nodes": len(study.cluster.nodes), "gpus": study.cluster.gpus},
        "jobs": int(shown[0].summary["jobs"]["submitted"]),
        "seeds": asked.seeds,
        **_table(shown, curves),
        "over_time": over_time(shown),
        "notes": [*notes_of(study, asked), *never_fit_notes(shown[0].summary)],
        "errors": errors,
    }


def _run(study: Study, cases: Sequence[Case], telling: Telling) -> tuple[list[tuple[Case, Result]], list[str]]:
    runs: list[tuple[Case, Result]] = []
    errors: dict[str, None] = {}
    first: PhalanxError | None = None
    for number, case in enumerate(cases):
        try:
            setup = study.setup(case)
            jobs = len(setup.trace.jobs)
            watch = Watch(telling, number * jobs, len(cases) * jobs, case.policy)
            result = run_one(setup, case.policy, study.until_ms, watch, study.window)
        except PhalanxError as error:
            first = first or error
            errors[str(error)] = None
        else:
            # Of further seeds only figures are shown: what became of each job is not kept in memory.
            is_shown = case.seed == study.seed
            runs.append((case, result if is_shown else msgspec.structs.replace(result, jobs=[], stays=[])))
    if not any(case.seed == study.seed for case, _ in runs):
        raise first or AssertionError("a study has a run of its first seed")
    return runs, list(errors)


def _table(shown: Sequence[Result], curves: Sequence[Curve]) -> dict[str, Any]:
    measures = measures_of(shown)
    rows = comparison_rows(shown)
    over_seeds = {(curve.policy, curve.measure.key): curve for curve in curves}
    return {
        "columns": [{"key": each.key, "title": each.title} for each in measures],
        "rows": [
            {
                "policy": row.policy,
                "cells": {
                    measure.key: {
                        "text": _text(measure, over_seeds.get((row.policy, measure.key))) or cell.text,
                        # Over several seeds one run's best says nothing: that takes paired differences.
                        "best": cell.best and not curves,
                    }
                    for measure, cell in zip(MEASURES, row.cells, strict=True)
                    if measure in measures
                },
            }
            for row in rows
        ],
    }


def _text(measure: Measure, curve: Curve | None) -> str:
    if curve is None or not curve.points:
        return ""
    found: Interval = curve.points[0][1]
    margin = "" if found.high is None else f" ± {measure.text(found.high - found.mean)}"
    return measure.text(found.mean) + margin
