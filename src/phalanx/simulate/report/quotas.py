"""Queues against their quotas: how many GPUs each had, over time, of those that it deserves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from phalanx.simulate.figures.result import QuotaTrack, Result, Timeline
from phalanx.simulate.report.chart import Chart, Grid, Labelled, axis, layout, line
from phalanx.simulate.report.clock import unit_for
from phalanx.simulate.report.over_time import edges, lasting
from phalanx.simulate.report.series import thin
from phalanx.simulate.report.text import chart_text
from phalanx.simulate.studies.table import count_text, share_text

QUEUES_MAX = 20

NOTE = (
    "GPUs that the jobs of the queue hold; the thick grey line is what it deserves. Below that line it may have asked "
    "for less: the table says which share it had of what it deserved and asked for."
)


def queues_over_time(results: Labelled) -> list[Chart]:
    """A chart for each queue that deserves GPUs, those with the largest quotas if there are many."""
    largest: dict[str, float] = {}
    for _, result in results:
        for path, track in result.quotas.items():
            largest[path] = max(largest.get(path, 0.0), *track.deserved)
    shown = sorted(sorted(largest, key=lambda path: (-largest[path], path))[:QUEUES_MAX])
    left_out = f" Shown are the {len(shown)} of {len(largest)} queues with the largest quotas."
    note = NOTE + (left_out if len(shown) < len(largest) else "")
    return [_chart(f"quota-{number}", path, note, results) for number, path in enumerate(shown)]


def _chart(key: str, path: str, note: str, results: Labelled) -> Chart:
    drawn = [(at, label, result) for at, (label, result) in enumerate(results) if path in result.quotas]
    unit = unit_for(max(edges(result.timeline)[-1] for _, _, result in drawn))
    traces: list[dict[str, Any]] = []
    for series, label, result in drawn:
        at = [unit.of(at_s) for at_s in edges(result.timeline)]
        track = result.quotas[path]
        if not traces:
            traces.append(_deserved(at, track, result.timeline))
        traces.append(line(label, series, thin(at, lasting(result.timeline, track.used))))
    return Chart(
        key,
        path,
        note,
        tuple(traces),
        layout(axis(f"{unit.name} since the run began"), axis("GPUs", rangemode="tozero")),
        Grid(
            ("policy", "deserves, mean", "has, mean", "has, most", "share of what it deserved and asked for"),
            tuple((label, *_figures(path, result)) for _, label, result in drawn),
        ),
        wide=True,
    )


def _deserved(at: Sequence[float], track: QuotaTrack, timeline: Timeline) -> dict[str, Any]:
    """What the queue deserves, under all other lines. Its colour is that of no policy."""
    drawn = line(chart_text("deserves"), 0, thin(at, lasting(timeline, track.deserved)))
    return {**drawn, "line": {"shape": "hv", "width": 4, "dash": "solid"}, "meta": {"series": 0, "quiet": True}}


def _figures(path: str, result: Result) -> tuple[str, ...]:
    track, mean = result.quotas[path], result.summary["quotas"]["by_queue"][path]
    share = mean["attained"]
    return (
        count_text(mean["deserved_gpus"]),
        count_text(mean["used_gpus"]),
        count_text(max(track.used)),
        "-" if share is None else share_text(share),
    )
