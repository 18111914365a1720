"""A figure against what is varied: a line for each policy in the band of its confidence."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from phalanx.simulate.report.chart import DASHES, Chart, Grid, axis, layout
from phalanx.simulate.report.clock import unit_for
from phalanx.simulate.report.series import short
from phalanx.simulate.report.text import chart_text, labels
from phalanx.simulate.studies.table import Measure, duration_text, share_text
from phalanx.simulate.studies.vary import Curve

_SYMBOLS = ("circle", "square", "diamond", "cross", "x", "triangle-up")


def varied(curves: Sequence[Curve]) -> list[Chart]:
    """A chart for each measure that has points."""
    drawn = [curve for curve in curves if curve.points]
    measures = dict.fromkeys(curve.measure for curve in drawn)
    return [_chart(measure, [curve for curve in drawn if curve.measure == measure]) for measure in measures]


def _chart(measure: Measure, curves: Sequence[Curve]) -> Chart:
    key = curves[0].key
    named = list(zip(labels(curve.policy for curve in curves), curves, strict=True))
    largest = max(point.mean for curve in curves for _, point in curve.points)
    scale, y = _value_axis(measure, largest)
    return Chart(
        f"varied-{measure.key.replace('_', '-')}",
        f"{measure.title[0].upper()}{measure.title[1:]} against {key}",
        f"The mean over seeds; {measure.better} is better. The band holds the true mean with 95 % confidence "
        "(Student's t); a value that was run with one seed has none.",
        tuple(trace for series, (name, curve) in enumerate(named) for trace in _traces(name, series, curve, scale)),
        layout(axis(key), y, showlegend=len(curves) > 1),
        Grid(
            ("policy", key, "mean", "95 % from", "to", "seeds"),
            tuple((name, *figures) for name, curve in named for figures in _figures(curve)),
        ),
    )


def _value_axis(measure: Measure, largest: float) -> tuple[float, dict[str, Any]]:
    """What a value is divided by, and the axis for it."""
    if measure.text is duration_text:
        unit = unit_for(largest)
        return unit.seconds, axis(unit.name, rangemode="tozero")
    if measure.text is share_text:
        return 1.0, axis("", rangemode="tozero", tickformat=".0%")
    return 1.0, axis(measure.unit, rangemode="tozero")


def _traces(name: str, series: int, curve: Curve, scale: float) -> Iterable[dict[str, Any]]:
    yield from _band(series, curve, scale)
    yield {
        "type": "scatter",
        "mode": "lines+markers",
        "name": chart_text(name),
        "x": [at for at, _ in curve.points],
        "y": [short(point.mean / scale) for _, point in curve.points],
        "line": {"width": 1.8, "dash": DASHES[series % len(DASHES)]},
        "marker": {"symbol": _SYMBOLS[series % len(_SYMBOLS)], "size": 7},
        "legendgroup": str(series),
        "meta": {"series": series},
    }


def _band(series: int, curve: Curve, scale: float) -> Iterable[dict[str, Any]]:
    """The outline of the band: along its upper edge, and back along the lower. No figure is ever below 0."""
    points = [(at, point.low, point.high) for at, point in curve.points if point.low is not None]
    if points:
        yield {
            "type": "scatter",
            "mode": "lines",
            "x": [at for at, _, _ in points] + [at for at, _, _ in reversed(points)],
            "y": [short((high or 0.0) / scale) for _, _, high in points]
            + [short(max(low or 0.0, 0.0) / scale) for _, low, _ in reversed(points)],
            "fill": "toself",
            "line": {"width": 0},
            "hoverinfo": "skip",
            "showlegend": False,
            "legendgroup": str(series),
            "meta": {"series": series, "band": True},
        }


def _figures(curve: Curve) -> Iterable[tuple[str, ...]]:
    text = curve.measure.text
    for at, point in curve.points:
        bounds = ("-" if bound is None else text(bound) for bound in (point.low, point.high))
        yield (f"{at:g}", text(point.mean), *bounds, str(point.count))
