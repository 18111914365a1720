"""Charts of the pages about reliability."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from phalanx.faults.reliability.ettr import PARTS
from phalanx.faults.reliability.replay import SECONDS, Replayed
from phalanx.faults.reliability.tornado import Bar
from phalanx.simulate.report.chart import Chart, Grid, axis, layout

LOST = tuple(part for part in PARTS if part != "work")


def tornado_chart(bars: Sequence[Bar], now: float) -> Chart:
    """A bar to either side of the ratio as it is now, for each figure."""
    ordered = list(reversed(bars))
    traces = tuple(
        {
            "type": "bar",
            "orientation": "h",
            "name": name,
            "y": [bar.figure for bar in ordered],
            "x": [round(getattr(bar, key) - now, 6) for bar in ordered],
            "base": round(now, 6),
            "meta": {"series": series},
        }
        for series, (key, name) in enumerate((("halved", "half of it"), ("doubled", "twice as much")))
    )
    rows = tuple((bar.figure, f"{bar.value:.4g}", f"{bar.halved:.4f}", f"{bar.doubled:.4f}") for bar in bars)
    return Chart(
        "tornado",
        "What the ratio is with half and with twice of each figure",
        "All other figures are left as they are. The longest bar is what buys most. Times are in seconds, the rate in "
        "failures an hour.",
        traces,
        layout(axis("effective training time ratio", tickformat=".1%"), axis(""), barmode="overlay", showlegend=True),
        Grid(("figure", "value", "ratio with half", "ratio with twice"), rows),
        wide=True,
    )


def lost_chart(key: str, title: str, lost: Mapping[str, Mapping[str, float]]) -> Chart:
    """What each of several ways loses, stacked by what it is lost to."""
    parts = list(dict.fromkeys(part for each in lost.values() for part in each))
    traces = tuple(
        {
            "type": "bar",
            "name": part,
            "x": list(lost),
            "y": [round(each.get(part, 0.0), 6) for each in lost.values()],
            "meta": {"series": series},
        }
        for series, part in enumerate(parts)
    )
    rows = tuple((name, *(f"{each.get(part, 0.0):.2%}" for part in parts)) for name, each in lost.items())
    return Chart(
        key,
        title,
        "Each second of the job is in one part only. What is not shown is work that is kept.",
        traces,
        layout(axis(""), axis("part of the time", tickformat=".0%"), barmode="stack", showlegend=True),
        Grid(("strategy", *parts), rows),
        wide=True,
    )


def replay_chart(found: Sequence[Replayed]) -> Chart:
    """Where the time of the 54 days went, for each strategy."""
    lost: dict[str, dict[str, float]] = {}
    for each in found:
        speed = each.strategy.speed
        parts = {name: getattr(each.booked, name) / SECONDS * speed for name in LOST}
        lost[each.strategy.name] = parts | {"missing nodes": 1 - speed}
    return lost_chart("replay", "What each strategy loses", lost)


def curves_chart(
    key: str, title: str, note: str, x: Mapping[str, Any], lines: Mapping[str, Sequence[tuple[float, float]]]
) -> Chart:
    """Ratios against something, a line each."""
    traces = tuple(
        {
            "type": "scatter",
            "mode": "lines",
            "name": name,
            "x": [float(f"{at:.6g}") for at, _ in points],
            "y": [round(value, 6) for _, value in points],
            "line": {"width": 1.8},
            "meta": {"series": series},
        }
        for series, (name, points) in enumerate(lines.items())
    )
    rows = tuple((name, f"{at:.4g}", f"{value:.4f}") for name, points in lines.items() for at, value in points[::8])
    y = axis("effective training time ratio", tickformat=".0%", range=[0, 1.02])
    return Chart(key, title, note, traces, layout(dict(x), y, showlegend=True), Grid(("line", "at", "ratio"), rows))
