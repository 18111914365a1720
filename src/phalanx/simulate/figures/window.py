"""Windows: the part of a run that figures of jobs are of, without the time in which the cluster fills and empties."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from phalanx.document.error import brief
from phalanx.document.units import decimal, duration_ms
from phalanx.errors import PhalanxError
from phalanx.simulate.figures.result import JobResult, Timeline

FORM = "FROM:TO in times since the first submission or parts of the time of submissions, such as 1d:6d or 10%:90%"

Edge = tuple[float, bool]
"""Seconds, or with True a part of the time in which jobs are submitted."""


class WindowError(PhalanxError):
    """A window that cannot be read, or that holds nothing."""

    exit_code: ClassVar[int] = 2


@dataclass(frozen=True, slots=True)
class Window:
    """Jobs that are submitted from one moment on to before another count."""

    begin: Edge
    end: Edge
    text: str

    @classmethod
    def parse(cls, text: str) -> Window:
        """Reads `1d:6d`, `10%:90%`, `1d:` or `:90%`."""
        first, colon, last = text.partition(":")
        if not colon or ":" in last:
            raise WindowError(f"window {brief(text)}: expected {FORM}")
        begin, end = _edge(first or "0s", text), _edge(last or "100%", text)
        if begin[1] == end[1] and begin[0] >= end[0]:
            raise WindowError(f"window {brief(text)}: it ends before it begins; expected {FORM}")
        return cls(begin, end, text)

    def span_s(self, first_s: float, last_s: float) -> tuple[float, float]:
        """From when to when, where jobs are submitted from one moment to another."""
        begin_s, end_s = (
            first_s + (value * (last_s - first_s) if is_part else value) for value, is_part in (self.begin, self.end)
        )
        if begin_s >= end_s:
            raise WindowError(
                f"window {self.text}: it ends at {end_s - first_s:,.0f} s after the first submission, but begins at "
                f"{begin_s - first_s:,.0f} s"
            )
        # All of the time in which jobs are submitted has the last of them, too.
        return begin_s, end_s + 0.001 if self.end == (1.0, True) else end_s

    def jobs(self, jobs: Sequence[JobResult]) -> tuple[tuple[float, float], list[JobResult]]:
        """The span, and the jobs that are submitted in it; none is an error."""
        times = [job.submit_s for job in jobs] or [0.0]
        begin_s, end_s = self.span_s(min(times), max(times))
        inside = [job for job in jobs if begin_s <= job.submit_s < end_s]
        if not inside:
            last_s = max(times) - min(times)
            raise WindowError(
                f"window {self.text}: no job is submitted in it; the last is {last_s:,.0f} s after the first"
            )
        return (begin_s, end_s), inside


def allocated_within(timeline: Timeline, begin_s: float, end_s: float) -> float | None:
    """The mean share of GPUs that jobs held from one moment to another; None where nothing is known of that time."""
    if not timeline.at_s:
        return None
    ends = [*timeline.at_s[1:], timeline.end_s if timeline.end_s is not None else timeline.at_s[-1]]
    held = known = 0.0
    for at_s, until_s, share in zip(timeline.at_s, ends, timeline.allocated, strict=True):
        span_s = min(until_s, end_s) - max(at_s, begin_s)
        if span_s > 0:
            held, known = held + share * span_s, known + span_s
    return held / known if known else None


def _edge(part: str, text: str) -> Edge:
    part = part.strip()
    if part.endswith("%"):
        share = decimal(part[:-1])
        if share is None or not 0 <= share <= 100:
            raise WindowError(f"window {brief(text)}: {brief(part)}: expected 0% to 100%; {FORM}")
        return float(share) / 100, True
    at_ms = duration_ms(part)
    if at_ms is None:
        raise WindowError(f"window {brief(text)}: {brief(part)}: expected a time or a part; {FORM}")
    return at_ms / 1000, False
