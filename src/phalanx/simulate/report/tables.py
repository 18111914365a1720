"""The tables of the page: the comparison, what became of the jobs, what would repeat the runs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from phalanx.simulate.figures.never_fit import never_fit_notes
from phalanx.simulate.figures.result import Result
from phalanx.simulate.report.chart import Grid, Labelled
from phalanx.simulate.report.text import page_text
from phalanx.simulate.studies.table import MEASURES, Better, Cell, Measure, comparison_rows, measures_of

VALUE_LENGTH_MAX = 400
_OUTCOMES = ("submitted", "completed", "failed", "cancelled", "never_fit", "unfinished")
_OF_NO_SETTING = ("advice_kept",)
"""What a setup has that is of no use to repeat a run."""

_DIRECTION = {Better.LOWER: "↓ lower", Better.HIGHER: "↑ higher"}


def comparison(results: Labelled) -> str:
    """The figures of each run, with the best of every column marked."""
    measures = measures_of([result for _, result in results])
    head = "".join(
        f'<th scope="col">{measure.title}<small>{_DIRECTION[measure.better]}</small></th>' for measure in measures
    )
    rows = "\n".join(
        _row(label, "".join(_cell(*pair) for pair in zip(MEASURES, row.cells, strict=True) if pair[0] in measures))
        for (label, _), row in zip(results, comparison_rows([result for _, result in results]), strict=True)
    )
    caption = "Below each heading: which way is better. "
    caption += "The best is marked with ★." if len(results) > 1 else "One run; there is nothing to compare it with."
    return _scrolling(
        f'<table><caption>{caption}</caption><thead><tr><th scope="col">policy</th>{head}</tr></thead>\n'
        f"<tbody>\n{rows}\n</tbody></table>",
        "Comparison",
    )


def outcomes(results: Labelled) -> str:
    """How many jobs came to which end."""
    rows = tuple((label, *(f"{result.summary['jobs'][key]:,}" for key in _OUTCOMES)) for label, result in results)
    table = grid_table(Grid(("jobs", *(key.replace("_", " ") for key in _OUTCOMES)), rows), "What became of the jobs")
    if len({result.summary["jobs"]["completed"] for _, result in results}) > 1:
        table += (
            "<p>The policies completed different numbers of jobs, and times to completion are over completed jobs: "
            "compare them with care.</p>"
        )
    return table + _never_fit(results)


def _never_fit(results: Labelled) -> str:
    """What is too small for jobs that can never start: said once, where all runs say the same."""
    notes = dict.fromkeys(note for _, result in results for note in never_fit_notes(result.summary))
    return "".join(f"<p>{page_text(note, VALUE_LENGTH_MAX)}.</p>" for note in notes)


def setup(results: Labelled) -> str:
    """What would repeat each run, a row for each setting; one that all runs share is said once."""
    settings = [dict(_flat(_facts(result))) for _, result in results]
    keys = list(dict.fromkeys(key for own in settings for key in own))
    rows = "\n".join(_row(key, _values([own.get(key, "-") for own in settings])) for key in keys)
    head = "".join(f'<th scope="col">{page_text(label)}</th>' for label, _ in results)
    return _scrolling(
        f'<table class="setup"><thead><tr><th scope="col">setting</th>{head}</tr></thead>\n'
        f"<tbody>\n{rows}\n</tbody></table>",
        "Settings and digests",
    )


def grid_table(grid: Grid, label: str) -> str:
    """A table of texts."""
    head = "".join(f'<th scope="col">{page_text(name)}</th>' for name in grid.header)
    rows = "\n".join(_row(row[0], "".join(f"<td>{page_text(cell)}</td>" for cell in row[1:])) for row in grid.rows)
    return _scrolling(f"<table><thead><tr>{head}</tr></thead>\n<tbody>\n{rows}\n</tbody></table>", label)


def _row(name: str, cells: str) -> str:
    return f'<tr><th scope="row">{page_text(name)}</th>{cells}</tr>'


def _scrolling(table: str, label: str) -> str:
    """Wide tables scroll by themselves; a tab stop lets the keyboard do it."""
    name = page_text(label, VALUE_LENGTH_MAX)
    return f'<div class="scroll" tabindex="0" role="region" aria-label="{name}">{table}</div>'


def _cell(measure: Measure, cell: Cell) -> str:
    exact = "" if cell.value is None else f' title="{f"{cell.value:.10g} {measure.unit}".strip()}"'
    mark = ('<td class="best"', "★ ") if cell.best else ("<td", "")
    return f"{mark[0]}{exact}>{mark[1]}{page_text(cell.text)}</td>"


def _facts(result: Result) -> dict[str, Any]:
    summary = result.summary
    settings = {key: value for key, value in result.setup.items() if key not in _OF_NO_SETTING}
    return {**settings, **{key: summary[key] for key in ("events", "digest", "run") if key in summary}}


def _flat(settings: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, str]]:
    """Settings within settings, under the names of both."""
    for key, value in settings.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{prefix}{key}.")
        elif isinstance(value, str):
            yield f"{prefix}{key}", value
        else:
            yield f"{prefix}{key}", json.dumps(value, ensure_ascii=False, default=str)


def _values(values: Sequence[str]) -> str:
    texts = [page_text(value, VALUE_LENGTH_MAX) for value in values]
    if len(texts) > 1 and len(set(values)) == 1:
        return f'<td colspan="{len(texts)}">{texts[0]}</td>'
    return "".join(f"<td>{text}</td>" for text in texts)
