"""The comparison: results side by side, a row for each, with the best of every column marked."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from phalanx.engine.state.records import JobState
from phalanx.simulate.figures.result import Result

BEST, AMONG_BEST = " *", " ~"
"""What marks the best where there is only text, and what is not told apart from it."""


class Better(StrEnum):
    """Which way a figure is better."""

    LOWER = "lower"
    HIGHER = "higher"


@dataclass(frozen=True, slots=True)
class Measure:
    """A column: a figure, where a summary has it, which way it is better, and how people read it.

    One that is optional is not in every summary.
    """

    key: str
    path: tuple[str, ...]
    better: Better
    text: Callable[[float], str]
    unit: str = ""
    optional: bool = False

    @property
    def name(self) -> str:
        """Where a program finds it in a summary: jct_s.mean."""
        return ".".join(self.path)

    @property
    def title(self) -> str:
        """Its name in words."""
        return self.key.replace("_", " ").replace("jct", "JCT").replace("sla", "SLA")

    def of(self, summary: Mapping[str, Any]) -> float | None:
        """Its value in a summary; None where the run has none."""
        value: Any = summary
        for key in self.path:
            value = None if value is None else value.get(key) if self.optional else value[key]
        return None if value is None else float(value)


@dataclass(frozen=True, slots=True)
class Cell:
    """One figure of one result. None of them is best where all read the same."""

    value: float | None
    text: str
    best: bool


@dataclass(frozen=True, slots=True)
class ComparisonRow:
    """One result: its policy and a cell for each of `MEASURES`."""

    policy: str
    cells: tuple[Cell, ...]

    def texts(self) -> dict[str, str]:
        """The row of a terminal's table: `policy`, then the key of each measure; the best has a star."""
        marked = (cell.text + BEST * cell.best for cell in self.cells)
        return {"policy": self.policy} | dict(zip((measure.key for measure in MEASURES), marked, strict=True))


def measures_of(results: Sequence[Result]) -> tuple[Measure, ...]:
    """The columns that say something: optional ones only where a result has such a figure."""
    return tuple(
        measure
        for measure in MEASURES
        if not measure.optional or any(measure.of(result.summary) is not None for result in results)
    )


def comparison_rows(results: Sequence[Result], unlike: Collection[str] = ()) -> list[ComparisonRow]:
    """A row for each result, in their order. No result is best where they are not alike, nor in `unlike` columns."""
    columns = [_column(measure, results, measure.key not in unlike) for measure in MEASURES]
    return [
        ComparisonRow(str(result.summary["policy"]), tuple(column[index] for column in columns))
        for index, result in enumerate(results)
    ]


def is_alike(measure: Measure, results: Sequence[Result]) -> bool:
    """Whether a figure is of the same jobs in all results that have it: else the lower need not be the better."""
    known = [result for result in results if measure.of(result.summary) is not None]
    match measure.path[0]:
        case "jct_s" | "slowdown":
            found = {frozenset(job.job_id for job in each.jobs if job.state == JobState.SUCCEEDED) for each in known}
        case "wait_s":
            found = {frozenset(job.job_id for job in each.jobs if job.start_s is not None) for each in known}
        case _:
            found = {frozenset(job.job_id for job in each.jobs) for each in known}
    return len(found) < 2


def _column(measure: Measure, results: Sequence[Result], is_marked: bool) -> list[Cell]:
    values = [measure.of(result.summary) for result in results]
    texts = ["-" if value is None else measure.text(value) for value in values]
    known = {value: text for value, text in zip(values, texts, strict=True) if value is not None}
    best = None
    if is_marked and len(set(known.values())) > 1 and is_alike(measure, results):
        best = min(known) if measure.better is Better.LOWER else max(known)
    return [Cell(value, text, best is not None and value == best) for value, text in zip(values, texts, strict=True)]


def duration_text(seconds: float) -> str:
    """A duration in its two largest units: 2d 4h, 3h 12m, 5m 20s, 12.3s, 40ms."""
    if seconds < 0:
        return "-" + duration_text(-seconds)
    if 0 < seconds < 0.9995:
        return f"{seconds * 1000:.3g}ms"
    if seconds < 59.95:
        return f"{seconds:.3g}s"
    # Each is rounded to the smaller unit before it is divided: 59m 59.7s is 1h 0m, not 59m 60s.
    if round(seconds) < 3600:
        minutes, rest_s = divmod(round(seconds), 60)
        return f"{minutes}m {rest_s}s"
    if round(seconds / 60) < 24 * 60:
        hours, minutes = divmod(round(seconds / 60), 60)
        return f"{hours}h {minutes}m"
    days, hours = divmod(round(seconds / 3600), 24)
    return f"{days}d {hours}h"


def share_text(share: float) -> str:
    """A share of 1 in per cent."""
    return f"{share:.1%}"


def count_text(count: float) -> str:
    """A whole number; a mean of several keeps a decimal."""
    return f"{count:,.0f}" if count == int(count) else f"{count:,.1f}"


def index_text(index: float) -> str:
    """A number between 0 and 1."""
    return f"{index:.3f}"


def times_text(times: float) -> str:
    """How many times something is something else."""
    return f"{times:,.3g}×" if times < 1000 else f"{times:,.0f}×"


MEASURES = (
    Measure("completed", ("jobs", "completed"), Better.HIGHER, count_text, "jobs"),
    Measure("mean_jct", ("jct_s", "mean"), Better.LOWER, duration_text, "s"),
    Measure("p95_jct", ("jct_s", "p95"), Better.LOWER, duration_text, "s"),
    Measure("mean_wait", ("wait_s", "mean"), Better.LOWER, duration_text, "s"),
    Measure("p95_wait", ("wait_s", "p95"), Better.LOWER, duration_text, "s"),
    Measure("mean_queued", ("queued_s", "mean"), Better.LOWER, duration_text, "s"),
    Measure("p95_queued", ("queued_s", "p95"), Better.LOWER, duration_text, "s"),
    Measure("slowdown", ("slowdown", "mean"), Better.LOWER, times_text),
    Measure("makespan", ("makespan_s",), Better.LOWER, duration_text, "s"),
    Measure("allocated", ("gpu_allocated",), Better.HIGHER, share_text),
    Measure("fragmentation", ("fragmentation",), Better.LOWER, share_text),
    Measure("preemptions", ("preemptions",), Better.LOWER, count_text),
    Measure("goodput", ("goodput",), Better.HIGHER, share_text),
    Measure("jain", ("fairness", "jain"), Better.HIGHER, index_text),
    Measure("least_quota", ("quotas", "least_attained"), Better.HIGHER, share_text, optional=True),
    Measure("deadlines_met", ("deadlines", "met"), Better.HIGHER, count_text, "jobs", optional=True),
    Measure("mean_late", ("deadlines", "late_s", "mean"), Better.LOWER, duration_text, "s", optional=True),
    Measure("premium_sla", ("tiers", "premium", "attained"), Better.HIGHER, share_text, optional=True),
    Measure("standard_sla", ("tiers", "standard", "attained"), Better.HIGHER, share_text, optional=True),
)
"""The columns of a comparison."""
