"""Cumulative shares: how many jobs were done, or had started, within how long."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from phalanx.engine.state.records import JobState
from phalanx.simulate.report.chart import (
    DASHES,
    SPREAD_HEADER,
    Chart,
    Grid,
    Labelled,
    layout,
    line,
    share_axis,
    spread_row,
)
from phalanx.simulate.report.clock import LEAST_S, log_axis
from phalanx.simulate.report.series import cumulative


def jct_cdf(results: Labelled) -> Chart:
    """How long jobs took."""
    return _cdf(
        ("jct-cdf", "Time to completion"),
        "The share of completed jobs that took at most so long from submission to end. Further left is better.",
        [
            (label, [job.jct_s for job in result.jobs if job.jct_s is not None and job.state == JobState.SUCCEEDED])
            for label, result in results
        ],
    )


def wait_cdf(results: Labelled) -> Chart:
    """How long jobs waited for their first start."""
    return _cdf(
        ("wait-cdf", "Time to the first start"),
        "The share of started jobs that waited at most so long. Further left is better.",
        [(label, [job.wait_s for job in result.jobs if job.wait_s is not None]) for label, result in results],
    )


def _cdf(name: tuple[str, str], note: str, values: Sequence[tuple[str, list[float]]]) -> Chart:
    traces = tuple(_trace(label, series, own) for series, (label, own) in enumerate(values) if own)
    longest_s = max((max(own) for _, own in values if own), default=0.0)
    note += " The axis is logarithmic; less than a second is drawn as one second."
    return Chart(
        *name,
        note if traces else "There is no such job.",
        traces,
        layout(log_axis("", longest_s), share_axis("share of jobs")),
        Grid(SPREAD_HEADER, tuple(spread_row(label, own) for label, own in values)),
    )


def _trace(label: str, series: int, values: list[float]) -> dict[str, Any]:
    trace = line(label, series, cumulative(values, LEAST_S))
    trace["line"]["dash"] = DASHES[series % len(DASHES)]
    return {**trace, "hovertemplate": "%{y:.1%} of jobs within %{x:,.0f} s"}
