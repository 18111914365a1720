"""The gantt: which job held which GPUs of which node, and when."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import groupby
from math import fsum
from operator import itemgetter
from typing import Any

from phalanx.simulate.figures.result import NodeUse, Outage, Result, Stay
from phalanx.simulate.report.chart import Chart, Grid, axis, layout
from phalanx.simulate.report.clock import Unit, unit_for
from phalanx.simulate.report.series import short
from phalanx.simulate.report.text import chart_text, labels
from phalanx.simulate.studies.table import count_text, duration_text

NODES_MAX = 48
QUEUES_MAX = 11
OUTAGES_MAX = 500
"""The longest are drawn."""

ROW_PX = 22
_ROW_HEIGHT = 0.84
"""Of the distance between two rows; the rest keeps them apart."""


@dataclass(frozen=True, slots=True)
class Bar:
    """A stay on neighbouring lanes of a row. A node has a lane for each GPU that is held at once."""

    stay: Stay
    row: int
    lane: int
    lanes: int
    row_lanes: int

    @property
    def area(self) -> float:
        """GPU-seconds."""
        return self.lanes * (self.stay.end_s - self.stay.start_s)


def gantt(series: int, label: str, result: Result, bars_max: int) -> Chart:
    """The nodes that were used most, and of what ran there the largest stays."""
    by_node = _by_node(result.stays)
    use = result.nodes or {node: NodeUse(len(stays), _gpu_s(stays)) for node, stays in by_node.items()}
    nodes = sorted(sorted(use, key=lambda node: (-use[node].gpu_s, node))[:NODES_MAX], key=_natural)
    bars = [bar for row, node in enumerate(nodes) for bar in bars_of(by_node.get(node, ()), row)]
    shown = sorted(sorted(bars, key=lambda bar: -bar.area)[:bars_max], key=lambda bar: (bar.row, bar.stay.start_s))
    unit = unit_for(max((bar.stay.end_s for bar in shown), default=0.0))
    names = labels(nodes)
    return Chart(
        f"gantt-{series}",
        f"{label}: GPUs over time",
        _note((len(nodes), len(use)), (len(shown), len(bars))) + _left_out(result),
        (*_traces(shown, result, unit), *_out_of_service(result.outages, nodes, unit)),
        layout(
            axis(f"{unit.name} since the run began"),
            {
                "tickmode": "array",
                "tickvals": list(range(len(nodes))),
                "ticktext": [chart_text(name) for name in names],
                "range": [len(nodes) - 0.5, -0.5],
                "showgrid": False,
                "zeroline": False,
            },
            height=110 + ROW_PX * max(len(nodes), 4),
            barmode="overlay",
            showlegend=True,
        ),
        Grid(
            ("node", "stays", "GPU time"),
            tuple(
                (name, count_text(use[node].stays), duration_text(use[node].gpu_s))
                for name, node in zip(names, nodes, strict=True)
            ),
        ),
        wide=True,
    )


def bars_of(stays: Iterable[Stay], row: int) -> list[Bar]:
    """Lays stays on one node out so that no two cover each other: each takes the lowest lanes that are free."""
    free: list[int] = []
    held: list[tuple[float, int, list[int]]] = []
    laid: list[tuple[Stay, list[int]]] = []
    lanes = 0
    for number, stay in enumerate(sorted(stays, key=lambda stay: (stay.start_s, stay.job_id, stay.attempt))):
        while held and held[0][0] <= stay.start_s:
            for lane in heappop(held)[2]:
                heappush(free, lane)
        while len(free) < stay.gpus:
            heappush(free, lanes)
            lanes += 1
        own = [heappop(free) for _ in range(stay.gpus)]
        heappush(held, (stay.end_s, number, own))
        laid.append((stay, own))
    return [Bar(stay, row, lane, count, lanes) for stay, own in laid for lane, count in _runs(own)]


def _runs(lanes: Sequence[int]) -> Iterable[tuple[int, int]]:
    """Rising lanes as runs: the first of each and how many."""
    for _, group in groupby(enumerate(lanes), key=lambda pair: pair[1] - pair[0]):
        run = list(map(itemgetter(1), group))
        yield run[0], len(run)


def _by_node(stays: Iterable[Stay]) -> dict[str, list[Stay]]:
    """Whatever has an area."""
    nodes: dict[str, list[Stay]] = {}
    for stay in stays:
        if stay.gpus > 0 and stay.end_s > stay.start_s:
            nodes.setdefault(stay.node, []).append(stay)
    return nodes


def _gpu_s(stays: Iterable[Stay]) -> float:
    return fsum(stay.gpus * (stay.end_s - stay.start_s) for stay in stays)


def _natural(name: str) -> list[tuple[int, str]]:
    """n2 before n10. A number is compared by its length first: it may be too long to be converted."""
    parts = re.split("([0-9]+)", name)
    return [(len(part.lstrip("0")), part.lstrip("0")) if index % 2 else (0, part) for index, part in enumerate(parts)]


def _note(nodes: tuple[int, int], bars: tuple[int, int]) -> str:
    """How much of how much is drawn."""
    if not bars[1]:
        return "No job has run."
    note = "A bar is a job on a node, as high as the share of the node's GPUs it holds."
    if nodes[0] < nodes[1]:
        note += f" Shown are the {nodes[0]} of {nodes[1]:,} nodes on which the most GPU time was spent."
    if bars[0] < bars[1]:
        note += f" Of {bars[1]:,} bars the {bars[0]:,} largest are drawn: a gap may hold small jobs."
    return note


def _left_out(result: Result) -> str:
    """How many stays were not kept, so that no bar is of them."""
    if not result.stays_left_out:
        return ""
    return (
        f" {result.stays_left_out:,} stays of less GPU time than those here are left out of the bars, "
        "not of the numbers below."
    )


def _traces(bars: Sequence[Bar], result: Result, unit: Unit) -> Iterable[dict[str, Any]]:
    """Bars in the colour of their queue; where there is but one queue, jobs take turns with the colours."""
    queue_of = {job.job_id: job.queue for job in result.jobs}
    area: dict[str, float] = {}
    for bar in bars:
        queue = queue_of.get(bar.stay.job_id, "")
        area[queue] = area.get(queue, 0.0) + bar.area
    if len(area) <= 1:
        number = {job_id: index for index, job_id in enumerate(dict.fromkeys(bar.stay.job_id for bar in bars))}
        if bars:
            yield {
                **_trace(bars, unit),
                "showlegend": False,
                "meta": {"series": [number[bar.stay.job_id] for bar in bars]},
            }
        return
    queues = sorted(area, key=lambda queue: (-area[queue], queue))[:QUEUES_MAX]
    for series, (queue, name) in enumerate(zip(queues, labels(queues), strict=True)):
        own = [bar for bar in bars if queue_of.get(bar.stay.job_id, "") == queue]
        yield {**_trace(own, unit), "name": chart_text(name), "showlegend": True, "meta": {"series": series}}
    rest = [bar for bar in bars if queue_of.get(bar.stay.job_id, "") not in queues]
    if rest:
        yield {**_trace(rest, unit), "name": "other queues", "showlegend": True, "meta": {"series": QUEUES_MAX}}


def _out_of_service(outages: Sequence[Outage], nodes: Sequence[str], unit: Unit) -> Iterable[dict[str, Any]]:
    """The times in which nodes took no new work, as high as a row."""
    row = {node: number for number, node in enumerate(nodes)}
    shown = sorted((each for each in outages if each.node in row), key=lambda each: each.start_s - each.end_s)
    drawn = shown[:OUTAGES_MAX]
    if drawn:
        yield {
            "type": "bar",
            "orientation": "h",
            "base": [short(unit.of(each.start_s)) for each in drawn],
            "x": [short(unit.of(each.end_s - each.start_s)) for each in drawn],
            "y": [row[each.node] for each in drawn],
            "width": [1.0 for _ in drawn],
            "hovertext": [
                f"{chart_text(each.node)} {each.health}: {duration_text(each.end_s - each.start_s)} "
                f"from {duration_text(each.start_s)} on"
                for each in drawn
            ],
            "hoverinfo": "text",
            "textposition": "none",
            "name": "out of service",
            "showlegend": True,
            "meta": {"series": 0, "outage": True},
        }


def _trace(bars: Sequence[Bar], unit: Unit) -> dict[str, Any]:
    heights = [bar.lanes / bar.row_lanes * _ROW_HEIGHT for bar in bars]
    bottoms = [bar.row - _ROW_HEIGHT / 2 + bar.lane / bar.row_lanes * _ROW_HEIGHT for bar in bars]
    return {
        "type": "bar",
        "orientation": "h",
        "base": [short(unit.of(bar.stay.start_s)) for bar in bars],
        "x": [short(unit.of(bar.stay.end_s - bar.stay.start_s)) for bar in bars],
        "y": [short(bottom + height / 2) for bottom, height in zip(bottoms, heights, strict=True)],
        "width": [short(height) for height in heights],
        "hovertext": [_hover(bar.stay) for bar in bars],
        "hoverinfo": "text",
        "textposition": "none",
    }


def _hover(stay: Stay) -> str:
    length = duration_text(stay.end_s - stay.start_s)
    return f"{chart_text(stay.job_id)}/{stay.attempt}: {stay.gpus} GPUs, {length} from {duration_text(stay.start_s)} on"
