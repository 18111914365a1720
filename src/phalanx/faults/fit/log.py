"""A log of failures as a CSV: when which node failed, and for how long it was watched."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from math import isfinite

from phalanx.document.error import brief
from phalanx.errors import PhalanxError


class LogError(PhalanxError):
    """A log that cannot be fitted, with the line where there is one."""


@dataclass(frozen=True, slots=True)
class Span:
    """Hours that a node ran. Without `failed` it was still well when they ended: the time is censored."""

    hours: float
    failed: bool


@dataclass(frozen=True, slots=True)
class FailureLog:
    """The spans of all nodes, and what the reader should know of them."""

    spans: tuple[Span, ...]
    nodes: int
    by_node: Mapping[str, int]
    notes: tuple[str, ...] = ()

    @property
    def failures(self) -> int:
        """How many of the spans ended with a failure."""
        return sum(span.failed for span in self.spans)

    @property
    def hours(self) -> float:
        """Hours that all nodes ran together."""
        return sum(span.hours for span in self.spans)


COLUMNS = ("at_s", "node")
GAP = 20.0
"""A gap between two failures of any node that is so many times the mean, where chance alone would not make one."""


def read_log(text: str, source: str, nodes: int = 0, until_s: float = 0.0) -> FailureLog:
    """Reads a CSV with `at_s, node`. `nodes` is how many were watched, `until_s` until when; else those it names, until
    its last line.
    """
    rows = csv.reader(StringIO(text))
    header = [name.strip() for name in next(rows, [])]
    for name in COLUMNS:
        if name not in header:
            raise LogError(f"{source}: line 1: there is no column {name} (expected: {', '.join(COLUMNS)})")
    places = [header.index(name) for name in COLUMNS]
    found: dict[str, list[float]] = {}
    for row in rows:
        if any(row):
            at_s, node = _entry(source, rows.line_num, row, places)
            found.setdefault(node, []).append(at_s)
    return _log_of(found, source, nodes, until_s)


def _entry(source: str, line: int, row: Sequence[str], places: Sequence[int]) -> tuple[float, str]:
    if len(row) <= max(places):
        raise LogError(f"{source}: line {line}: has {len(row)} values: expected {', '.join(COLUMNS)}")
    text, node = (row[place].strip() for place in places)
    try:
        at_s = float(text)
    except ValueError:
        at_s = -1.0
    if not (isfinite(at_s) and at_s >= 0):
        raise LogError(f"{source}: line {line}: at_s is {brief(text)!r}: expected seconds of at least 0")
    if not node:
        raise LogError(f"{source}: line {line}: node is empty: expected the name of a node")
    return at_s, node


def _log_of(found: Mapping[str, Sequence[float]], source: str, nodes: int, until_s: float) -> FailureLog:
    times = sorted(at_s for each in found.values() for at_s in each)
    if len(times) < 2:
        raise LogError(
            f"{source}: {len(times)} failures: expected at least 2, since one says nothing of how they spread"
        )
    if nodes and nodes < len(found):
        raise LogError(f"{source}: names {len(found)} nodes, and {nodes} were watched: expected at least as many")
    if until_s and until_s < times[-1]:
        raise LogError(f"{source}: its last failure is at {times[-1]:g} s, after the end at {until_s:g} s")
    end_s, watched = until_s or times[-1], nodes or len(found)
    if not end_s:
        raise LogError(f"{source}: all failures are at 0 s: expected times that differ")
    spans = [span for each in found.values() for span in _spans(sorted(each), end_s)]
    spans += [Span(end_s / 3600, failed=False)] * (watched - len(found))
    counts = {node: len(each) for node, each in sorted(found.items())}
    return FailureLog(tuple(spans), watched, counts, tuple(_notes(times, end_s, nodes, until_s)))


def _spans(times: Sequence[float], end_s: float) -> list[Span]:
    begins = [0.0, *times]
    spans = [Span((at_s - begin_s) / 3600, failed=True) for begin_s, at_s in zip(begins, times, strict=False)]
    if end_s > times[-1]:
        spans.append(Span((end_s - times[-1]) / 3600, failed=False))
    return spans


def _notes(times: Sequence[float], end_s: float, nodes: int, until_s: float) -> list[str]:
    notes = []
    if not nodes:
        notes.append("nodes that never failed are not known: without --nodes the rate comes out too high")
    if not until_s:
        notes.append("the log ends with its last failure: without --until the rate comes out too high")
    mean_s = end_s / len(times)
    for begin_s, at_s in zip((0.0, *times), times, strict=False):
        if at_s - begin_s > GAP * mean_s:
            notes.append(
                f"nothing is logged from {begin_s:g} s to {at_s:g} s: if it was not watched, leave that time out"
            )
    return notes
