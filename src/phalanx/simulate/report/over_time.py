"""The cluster over time: what is held, who waits, what is of no use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import fsum

from phalanx.simulate.report.chart import Chart, Grid, Labelled, axis, layout, line, share_axis
from phalanx.simulate.report.clock import unit_for
from phalanx.simulate.report.series import thin
from phalanx.simulate.result import Timeline
from phalanx.simulate.table import count_text, share_text


@dataclass(frozen=True, slots=True)
class _Track:
    """One row of figures of a timeline."""

    key: str
    title: str
    note: str
    values: Callable[[Timeline], Sequence[float]]
    text: Callable[[float], str]


TRACKS = (
    _Track(
        "allocation",
        "Allocated GPUs",
        "The share of the cluster's GPUs that jobs hold.",
        lambda timeline: timeline.allocated,
        share_text,
    ),
    _Track("waiting-jobs", "Waiting jobs", "How many jobs wait.", lambda timeline: timeline.waiting_jobs, count_text),
    _Track(
        "waiting-gpus",
        "Waiting GPUs",
        "How many GPUs the waiting jobs ask for.",
        lambda timeline: timeline.waiting_gpus,
        count_text,
    ),
    _Track(
        "fragmentation",
        "Fragmentation",
        "The share of the free GPUs that jobs like these could not use where they lie.",
        lambda timeline: timeline.fragmentation,
        share_text,
    ),
)


def over_time(results: Labelled) -> list[Chart]:
    """A chart for each row of figures."""
    drawn = [(series, label, result.timeline) for series, (label, result) in enumerate(results) if result.timeline.at_s]
    return [_chart(track, drawn) for track in TRACKS]


def _chart(track: _Track, drawn: Sequence[tuple[int, str, Timeline]]) -> Chart:
    unit = unit_for(max((timeline.at_s[-1] for _, _, timeline in drawn), default=0.0))
    return Chart(
        track.key,
        track.title,
        track.note if drawn else "Nothing happened in this run.",
        tuple(
            line(label, series, thin([unit.of(at_s) for at_s in timeline.at_s], track.values(timeline)))
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


def _figures(track: _Track, timeline: Timeline) -> tuple[str, ...]:
    values = track.values(timeline)
    return tuple(map(track.text, (_mean(timeline.at_s, values), min(values), max(values))))


def _mean(at_s: Sequence[float], values: Sequence[float]) -> float:
    """Each value counts for as long as it holds; how long the last one does is not known."""
    length_s = at_s[-1] - at_s[0]
    if not length_s:
        return float(values[-1])
    return fsum(value * (at_s[index + 1] - at_s[index]) for index, value in enumerate(values[:-1])) / length_s
