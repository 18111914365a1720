"""Throughput curves: what one replica of a service was measured to answer, by its GPUs and its concurrency."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from io import StringIO
from math import isfinite

from phalanx.errors import PhalanxError

COLUMNS = ("gpus", "concurrency", "requests_per_s")
POINTS_MAX = 1_000
COUNT_MAX = 100_000


class CurveError(PhalanxError):
    """A file that is no throughput curve."""


@dataclass(frozen=True, slots=True)
class Point:
    """One replica on so many GPUs, with so many requests at a time, answers so many a second.

    By Little's law each request takes concurrency ÷ requests_per_s then.
    """

    gpus: int
    concurrency: int
    requests_per_s: float

    @property
    def service_s(self) -> float:
        """How long a request takes on average once it is served."""
        return self.concurrency / self.requests_per_s


def read_curve(text: str, source: str) -> tuple[Point, ...]:
    """The points of a CSV file with a header of gpus (1 if left out), concurrency and requests_per_s."""
    reader = csv.DictReader(StringIO(text))
    header = tuple(name.strip() for name in reader.fieldnames or ())
    wrong = [name for name in header if name not in COLUMNS]
    missing = [name for name in COLUMNS[1:] if name not in header]
    if wrong or missing:
        raise CurveError(
            f"{source}:1: expected a header of gpus (may be left out), concurrency and requests_per_s, "
            f"got {', '.join(header) or 'nothing'}"
        )
    reader.fieldnames = header
    try:
        points = tuple(_point(row, f"{source}:{reader.line_num}") for row in reader)
    except csv.Error as error:
        raise CurveError(f"{source}:{reader.line_num}: {error}") from None
    if not 1 <= len(points) <= POINTS_MAX:
        raise CurveError(f"{source}: expected 1 to {POINTS_MAX} measurements, got {len(points)}")
    return points


def _point(row: dict[str, str | None], place: str) -> Point:
    if None in row or None in row.values():
        raise CurveError(f"{place}: expected as many values as the header has columns")
    texts = {name: (text or "").strip() for name, text in row.items()}
    rate = _number(texts["requests_per_s"])
    if rate is None:
        raise CurveError(f"{place}: requests_per_s: expected a number above 0, got {texts['requests_per_s']!r}")
    gpus = _count(texts.get("gpus", "1"), "gpus", place)
    return Point(gpus, _count(texts["concurrency"], "concurrency", place), rate)


def _count(text: str, name: str, place: str) -> int:
    if not text.isascii() or not text.isdecimal() or not 1 <= int(text[:12]) <= COUNT_MAX or len(text) > 12:
        raise CurveError(f"{place}: {name}: expected a whole number from 1 to {COUNT_MAX}, got {text!r}")
    return int(text)


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if isfinite(value) and value > 0 else None
