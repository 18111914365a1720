"""The cluster over time: what is held, what is pending, what is of no use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import fsum

from phalanx.simulate.figures.result import Timeline
from phalanx.simulate.report.chart import Chart, Grid, Labelled, axis, layout, line, share_axis
from phalanx.simulate.report.clock import unit_for
from phalanx.simulate.report.series import thin
from phalanx.simulate.studies.table import count_text, share_text


@dataclass(frozen=True, slots=True)
class _Track:
    """One row of figures of a timeline."""

    key: str
    title: str
    note: str
    values: Callable[[Timeline], Sequence[float]]
    text: Callable[[float], str]


MEANS = "Each value is the mean of a stretch of time; a run of few jobs has one for every change."

TRACKS = (
    _Track(
        "allocation",
        "Allocated GPUs",
        "The share of the cluster's GPUs that jobs hold.",
        lambda timeline: timeline.allocated,
        share_text,
    ),
    _Track("waiting-jobs", "Pending jobs", "How many jobs wait.", lambda timeline: timeline.waiting_jobs, count_text),
    _Track(
        "waiting-gpus",
        "Pending GPUs",
        "How many GPUs the waiting jobs ask for.",
        lambda timeline: timeline.waiting_gpus,
        count_text,
    ),
    _Track(
        "fragmentation",
        "Fragmentation",
        "The share of the free GPUs that tasks like these could not use where they lie.",
        lambda timeline: timeline.fragmentation,
        share_text,
    ),
)


def over_time(results: Labelled) -> list[Chart]:
    """A chart for each row of figures."""
    drawn = [(series, label, result.timeline) for series, (label, result) in enumerate(results) if result.timeline.at_s]
    return [_chart(track, drawn) for track in TRACKS]


def _chart(track: _Track, drawn: Sequence[tuple[int, str, Timeline]]) -> Chart:
    unit = unit_for(max((edges(timeline)[-1] for _, _, timeline in drawn), default=0.0))
    return Chart(
        track.key,
        track.title,
        f"{track.note} {MEANS}" if drawn else "Nothing happened in this run.",
        tuple(
            line(
                label,
                series,
                thin([unit.of(at_s) for at_s in edges(timeline)], lasting(timeline, track.values(timeline))),
            )
            for series, label, timeline in drawn
        ),
        layout(
            axis(f"{unit.name} since the run began"),
            share_axis("") if track.text is share_text else axis("", rangemode="tozero"),
        ),
        Grid(
            ("policy", "mean over time", "lowest", "highest"),
            tuple((label, *_figures(track, timeline)) for _, label, timeline in drawn),
        ),
    )


def edges(timeline: Timeline) -> list[float]:
    """When each of the values begins to hold, and when the last one no longer does."""
    return timeline.at_s if timeline.end_s is None else [*timeline.at_s, timeline.end_s]


def lasting(timeline: Timeline, values: Sequence[float]) -> Sequence[float]:
    """The values, the last one again where it is known how long it holds: lines are drawn to there."""
    return values if timeline.end_s is None else [*values, values[-1]]


def _figures(track: _Track, timeline: Timeline) -> tuple[str, ...]:
    values = track.values(timeline)
    return tuple(map(track.text, (_mean(edges(timeline), values), min(values), max(values))))


def _mean(edges_s: Sequence[float], values: Sequence[float]) -> float:
    """Each value counts for as long as it holds; how long the last one does may not be known."""
    length_s = edges_s[-1] - edges_s[0]
    if not length_s:
        return float(values[-1])
    spans_s = [until_s - at_s for at_s, until_s in pairwise(edges_s)]
    return fsum(value * span_s for value, span_s in zip(values, spans_s, strict=False)) / length_s
