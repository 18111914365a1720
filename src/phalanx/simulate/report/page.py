"""The page: charts and tables in one file that loads nothing and runs no script but its own two."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeAlias

from phalanx.simulate.figures.result import Result
from phalanx.simulate.report.cdf import jct_cdf, wait_cdf
from phalanx.simulate.report.chart import Chart, Labelled
from phalanx.simulate.report.gantt import gantt
from phalanx.simulate.report.groups import jct_by_queue, served_by_queue, wait_by_queue, wait_by_size
from phalanx.simulate.report.over_time import over_time
from phalanx.simulate.report.quotas import queues_over_time
from phalanx.simulate.report.repeat import NOTHING_TOLD, Repeat, repeat_parts
from phalanx.simulate.report.scripts import ReportError, own_file, plotly_source, security
from phalanx.simulate.report.tables import VALUE_LENGTH_MAX, comparison, grid_table, outcomes
from phalanx.simulate.report.text import labels, page_text, script_json
from phalanx.simulate.report.varied import varied
from phalanx.simulate.studies.vary import Curve

BARS_MAX = 3000
"""Bars of all gantts together: a browser draws each as an element of its own."""

WAITS = (wait_by_queue, jct_by_queue, served_by_queue, wait_by_size)

ONE_AT_A_TIME = ("quotas", "gantt")
"""Sections of which one chart is seen at a time, chosen above it."""

Content: TypeAlias = Chart | str
Section: TypeAlias = tuple[str, str, list[Content]]
"""An anchor, a heading, and what stands below it: charts, or tables as HTML."""


def write_report(
    results: Sequence[Result],
    path: str | Path,
    title: str,
    curves: Sequence[Curve] | None = None,
    repeat: Repeat = NOTHING_TOLD,
) -> None:
    """Writes results as one HTML file that opens anywhere, offline. Equal results make an equal file.

    `repeat` says how the results were made, and of which other runs the curves are.
    """
    page = report_page(results, title, curves or (), repeat)
    try:
        Path(path).write_bytes(page.encode())
    except OSError as error:
        raise ReportError(f"{path}: {error.strerror}") from error


def report_page(
    results: Sequence[Result], title: str, curves: Sequence[Curve] = (), repeat: Repeat = NOTHING_TOLD
) -> str:
    """The text of the file."""
    if not results:
        raise ReportError("a report needs at least one result")
    names = labels(str(result.summary["policy"]) for result in results)
    sections = _sections(list(zip(names, results, strict=True)), curves, repeat)
    return html_page(title, _overview(results, len(repeat.runs)), sections, len(results))


def html_page(title: str, overview: str, sections: Sequence[Section], series: int) -> str:
    """A page of sections under a heading; `series` is how many things its charts compare."""
    scripts = plotly_source(), own_file("page.js")
    heading = page_text(title, VALUE_LENGTH_MAX)
    links = "".join(f'<li><a href="#{key}">{name}</a></li>' for key, name, _ in sections)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{security(scripts)}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{heading}</title>
<style>
{own_file("page.css")}</style>
</head>
<body>
<a class="skip" href="#main">Skip to the content</a>
<header>
<h1>{heading}</h1>
<p class="quiet">{overview}</p>
<nav aria-label="Sections"><ul>{links}</ul></nav>
<noscript><p>The charts need JavaScript. The numbers behind each of them are in the table below it.</p></noscript>
</header>
<main id="main">
{"".join(map(_section, sections))}</main>
<footer>
<p>Made by phalanx {page_text(version("phalanx"))}. Its reference defines every figure, on the page “metrics”.</p>
</footer>
<script type="application/json" id="figures">{script_json(_figures(sections, series))}</script>
<script>{scripts[0]}</script>
<script>{scripts[1]}</script>
</body>
</html>
"""


def _overview(results: Sequence[Result], all_runs: int) -> str:
    submitted = max(int(result.summary["jobs"]["submitted"]) for result in results)
    count = max(all_runs, len(results))
    runs = "1 run" if count == 1 else f"{count:,} runs"
    detail = f" {len(results)} of them are shown in detail." if count > len(results) else ""
    return f"{runs} of {submitted:,} jobs, decided by the scheduler that runs clusters, in virtual time.{detail}"


def _sections(results: Labelled, curves: Sequence[Curve], repeat: Repeat) -> list[Section]:
    bars_max = BARS_MAX // len(results)
    sections: list[Section] = [
        ("outcome", "Outcome", [comparison(results), outcomes(results)]),
        ("jobs", "How long jobs took and waited", [jct_cdf(results), wait_cdf(results)]),
        ("cluster", "The cluster over time", [*over_time(results)]),
        ("fairness", "Waiting times", [each(results) for each in WAITS]),
        ("quotas", "Queues and their quotas", [*queues_over_time(results)]),
        ("gantt", "Where jobs ran", [gantt(i, label, result, bars_max) for i, (label, result) in enumerate(results)]),
        ("repeat", "To repeat it", [*repeat_parts(results, repeat)]),
    ]
    if curves:
        sections.insert(1, ("varied", f"Against {page_text(curves[0].key)}", [*varied(curves)]))
    return [section for section in sections if section[2]]


def _section(section: Section) -> str:
    key, name, content = section
    parts = "\n".join(part if isinstance(part, str) else _chart(part) for part in content)
    if any(isinstance(part, Chart) for part in content):
        parts = f'<div class="charts">\n{parts}\n</div>'
    if key in ONE_AT_A_TIME and len(content) > 1:
        parts = f"{_selector(key, content)}\n{parts}"
    return f'<section aria-labelledby="{key}">\n<h2 id="{key}">{name}</h2>\n{parts}\n</section>\n'


def _selector(key: str, content: Sequence[Content]) -> str:
    """What chooses which of several charts is seen; without JavaScript, and on paper, all are."""
    options = "".join(
        f'<option value="{part.key}">{page_text(part.title, VALUE_LENGTH_MAX)}</option>'
        for part in content
        if isinstance(part, Chart)
    )
    return f'<p class="pick"><label for="pick-{key}">Show</label> <select id="pick-{key}">{options}</select></p>'


def _chart(chart: Chart) -> str:
    title, note = page_text(chart.title, VALUE_LENGTH_MAX), page_text(chart.note, VALUE_LENGTH_MAX)
    opening = '<figure class="wide">' if chart.wide else "<figure>"
    caption = f"<figcaption><h3>{title}</h3><p>{note}</p></figcaption>"
    if not chart.traces:
        return f"{opening}{caption}</figure>"
    attributes = f'class="chart" id="chart-{chart.key}" style="height:{chart.layout["height"]}px"'
    return f"""{opening}
{caption}
<div {attributes} role="img" aria-label="{title}. {note}"></div>
<details><summary>The numbers</summary>{grid_table(chart.grid, f"{chart.title}, in numbers")}</details>
</figure>"""


def _figures(sections: Sequence[Section], results: int) -> dict[str, Any]:
    """What the page's script draws, by the id of its element."""
    return {
        f"chart-{part.key}": {"traces": part.traces, "layout": {"showlegend": results > 1, **part.layout}}
        for _, _, content in sections
        for part in content
        if isinstance(part, Chart) and part.traces
    }
