"""Occurrences as a CSV, so that a run can be repeated with the very same ones."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from io import StringIO
from math import isfinite

from phalanx.document.error import brief
from phalanx.document.units import duration_ms
from phalanx.errors import PhalanxError
from phalanx.faults.generate.occurrence import Occurrence, What

COLUMNS = ("at_s", "what", "nodes", "cause", "detect_s", "repair_s", "notice_s", "factor")
TIMES = ("at_s", "detect_s", "repair_s", "notice_s")
REQUIRED = ("at_s", "what", "nodes")


class OccurrenceError(PhalanxError):
    """A line that is no occurrence, with its file and number."""


def as_csv(occurrences: Iterable[Occurrence]) -> str:
    """One line each; several nodes are separated by semicolons."""
    file = StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(COLUMNS)
    for each in occurrences:
        times = (_seconds(time_ms) for time_ms in (each.detect_ms, each.repair_ms, each.notice_ms))
        row = (_seconds(each.at_ms), each.what, ";".join(each.nodes), each.cause, *times, f"{each.factor:g}")
        writer.writerow(row)
    return file.getvalue()


def is_occurrences(first_line: str) -> bool:
    """Whether a CSV with this header tells of occurrences, and not of the health of nodes."""
    names = next(csv.reader([first_line]), [])
    return "what" in [name.strip() for name in names]


def occurrences_of(text: str, source: str, nodes: Sequence[str]) -> tuple[Occurrence, ...]:
    """Reads them, in the order of time. A line that does not fit the cluster is an error that names it."""
    rows = csv.reader(StringIO(text))
    header = [name.strip() for name in next(rows, [])]
    for name in header:
        if name not in COLUMNS or header.count(name) > 1:
            raise OccurrenceError(
                f"{source}: line 1: column {brief(name)!r}: expected each once of {', '.join(COLUMNS)}"
            )
    for name in REQUIRED:
        if name not in header:
            raise OccurrenceError(f"{source}: line 1: there is no column {name}")
    reader = _Reader(source, frozenset(nodes))
    found = [reader.occurrence(rows.line_num, dict(zip(header, row, strict=False))) for row in rows if any(row)]
    return tuple(sorted(found, key=lambda each: each.at_ms))


class _Reader:
    def __init__(self, source: str, nodes: frozenset[str]) -> None:
        self.source, self.nodes = source, nodes

    def occurrence(self, line: int, row: dict[str, str]) -> Occurrence:
        names = tuple(name.strip() for name in row.get("nodes", "").split(";") if name.strip())
        for name in names:
            if name not in self.nodes:
                example = min(self.nodes, default="it has none")
                raise self._error(line, "nodes", name, f"nodes of the cluster, such as {example}")
        if not names:
            raise self._error(line, "nodes", "", "at least one node")
        text = row.get("what", "").strip()
        if text not in tuple(What):
            raise self._error(line, "what", text, f"one of {', '.join(What)}")
        at_ms, detect_ms, repair_ms, notice_ms = (self._ms(line, row, name) for name in TIMES)
        cause, factor = row.get("cause", ""), self._factor(line, row)
        return Occurrence(at_ms, What(text), names, cause, detect_ms, repair_ms, notice_ms, factor)

    def _ms(self, line: int, row: dict[str, str], name: str) -> int:
        text = row.get(name, "").strip()
        value = duration_ms(text or "0")
        if value is None or (name == "at_s" and not text):
            raise self._error(line, name, text, "seconds of at least 0")
        return value

    def _factor(self, line: int, row: dict[str, str]) -> float:
        text = row.get("factor", "").strip() or "1"
        try:
            value = float(text)
        except ValueError:
            value = -1.0
        if not (isfinite(value) and 0 < value <= 1):
            raise self._error(line, "factor", text, "a number above 0 and at most 1")
        return value

    def _error(self, line: int, name: str, value: str, expected: str) -> OccurrenceError:
        return OccurrenceError(f"{self.source}: line {line}: {name} is {brief(value)!r}: expected {expected}")


def _seconds(time_ms: int) -> str:
    return f"{time_ms / 1000:.3f}".rstrip("0").rstrip(".")
