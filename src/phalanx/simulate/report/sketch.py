"""Sketches: a figure against the load as a small picture of lines, SVG that any page of text can show."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from phalanx.simulate.report.text import page_text
from phalanx.simulate.studies.vary import Curve

WIDTH, HEIGHT = 640, 320
LEFT, RIGHT, TOP, BOTTOM = 70, 170, 30, 40
COLORS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#555555", "#ee8866")
"""Eight that people with any sight tell apart (after P. Tol's bright and light schemes)."""

BAR_GAP = 3
MARGIN = 1.2
"""What is left above the greatest mean and below the least; bars that go further are cut off there."""


def sketch(title: str, curves: Sequence[Curve]) -> str:
    """The curves with bars for their intervals; the scale of the figure is logarithmic, and all means are above 0."""
    loads = [load for curve in curves for load, _ in curve.points]
    means = [found.mean for curve in curves for _, found in curve.points]
    frame = _Frame(min(loads), max(loads), min(means) / MARGIN, max(means) * MARGIN)
    return "\n".join((*_head(title), *frame.axes(loads, curves[0]), *_lines(frame, curves), "</svg>", ""))


def _head(title: str) -> Iterator[str]:
    box = f'viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12"'
    yield f'<svg xmlns="http://www.w3.org/2000/svg" {box}>'
    yield f"<title>{page_text(title, 200)}</title>"
    yield f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>'
    yield f'<text x="{LEFT}" y="18" font-weight="bold">{page_text(title, 200)}</text>'


class _Frame:
    """Where a load and a value lie in the picture."""

    def __init__(self, first: float, last: float, least: float, most: float) -> None:
        self._first, self._loads = first, (last - first) or 1.0
        self._bottom = math.log(least)
        self._logs = math.log(most) - self._bottom
        self._least, self._most = least, most

    def x(self, load: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (load - self._first) / self._loads

    def y(self, value: float) -> float:
        inside = min(max(value, self._least), self._most)
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (math.log(inside) - self._bottom) / self._logs

    def axes(self, loads: Sequence[float], like: Curve) -> Iterator[str]:
        right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM
        yield f'<path d="M{LEFT} {TOP}V{bottom}H{right}" fill="none" stroke="#777777"/>'
        for load in sorted(dict.fromkeys(loads)):
            yield f'<text x="{self.x(load):.1f}" y="{bottom + 16}" text-anchor="middle">{load:g}</text>'
        for value in (self._least, math.sqrt(self._least * self._most), self._most):
            y = self.y(value)
            yield f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{page_text(like.measure.text(value))}</text>'
            yield f'<path d="M{LEFT} {y:.1f}H{right}" stroke="#dddddd"/>'
        yield f'<text x="{(LEFT + right) / 2}" y="{HEIGHT - 6}" text-anchor="middle">{page_text(like.key)}</text>'


def _lines(frame: _Frame, curves: Sequence[Curve]) -> Iterator[str]:
    for number, curve in enumerate(curves):
        color = COLORS[number % len(COLORS)]
        # Bars at one load stand beside each other.
        aside = BAR_GAP * (number - (len(curves) - 1) / 2)
        drawn = [(frame.x(load) + aside, found) for load, found in curve.points]
        points = " ".join(f"{x:.1f},{frame.y(found.mean):.1f}" for x, found in drawn)
        yield f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="2"/>'
        for x, found in drawn:
            yield f'<circle cx="{x:.1f}" cy="{frame.y(found.mean):.1f}" r="2.5" fill="{color}"/>'
            if found.low is not None and found.high is not None:
                bar = f"M{x:.1f} {frame.y(found.low):.1f}V{frame.y(found.high):.1f}"
                yield f'<path d="{bar}" stroke="{color}" stroke-opacity="0.5"/>'
        y = TOP + 10 + 18 * number
        yield f'<text x="{WIDTH - RIGHT + 12}" y="{y}" fill="{color}">{page_text(curve.policy, 24)}</text>'
