"""A chart: a figure for plotly as plain data, with the same in words and numbers for readers that do not see it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from phalanx.simulate.figures.result import Result
from phalanx.simulate.figures.spread import spread
from phalanx.simulate.report.series import Points
from phalanx.simulate.report.text import chart_text
from phalanx.simulate.studies.table import count_text, duration_text

HEIGHT_PX = 340
DASHES = ("solid", "dash", "dot", "dashdot", "longdash")
"""One fewer or more than divides the number of colours: lines that share one differ in the other."""

SPREAD_HEADER = ("policy", "jobs", "mean", "p50", "p95", "p99", "longest")

Labelled: TypeAlias = Sequence[tuple[str, Result]]
"""Results, each with a label that no other has. A result's place is the number of its series in every chart."""


@dataclass(frozen=True, slots=True)
class Grid:
    """A table of texts: a header, and rows whose first cell names them."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Chart:
    """`note` says what is drawn and how to read it. Without traces there is nothing to draw, and `note` says why.

    Colours are none of its business: a trace names the number of its series in `meta`, and the page colours it for the
    light or dark it is seen in.
    """

    key: str
    title: str
    note: str
    traces: tuple[dict[str, Any], ...]
    layout: dict[str, Any]
    grid: Grid
    wide: bool = False


def layout(x: dict[str, Any], y: dict[str, Any], **more: Any) -> dict[str, Any]:
    """What all charts share: two axes that make room for their labels, and the legend on top."""
    return {
        "height": HEIGHT_PX,
        "margin": {"l": 56, "r": 16, "t": 16, "b": 48},
        "xaxis": {"automargin": True, **x},
        "yaxis": {"automargin": True, **y},
        "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"},
        "hovermode": "closest",
        **more,
    }


def axis(title: str, **options: Any) -> dict[str, Any]:
    """An axis with its title."""
    return {"title": {"text": title}, **options}


def share_axis(title: str) -> dict[str, Any]:
    """An axis from 0 to 100 %."""
    return axis(title, tickformat=".0%", range=[0, 1.02])


def line(label: str, series: int, points: Points) -> dict[str, Any]:
    """A line that keeps each value until the next, as time series and cumulative shares do."""
    xs, ys = points
    return {
        "type": "scatter",
        "mode": "lines",
        "name": chart_text(label),
        "x": xs,
        "y": ys,
        "line": {"shape": "hv", "width": 1.8, "dash": DASHES[series % len(DASHES)]},
        "meta": {"series": series},
    }


def spread_row(label: str, values: Sequence[float]) -> tuple[str, ...]:
    """Durations in figures, under `SPREAD_HEADER`."""
    figures = [*spread(values).values(), max(values, default=None)]
    return label, count_text(len(values)), *("-" if figure is None else duration_text(figure) for figure in figures)
