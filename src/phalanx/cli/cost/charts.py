"""Charts of costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from phalanx.faults.money.own_or_rent import Offer
from phalanx.simulate.report.chart import Chart, Grid, axis, layout


def spot_chart(rows: Sequence[Mapping[str, Any]]) -> Chart:
    """Cost against the end, a point for each policy."""
    traces = tuple(
        {
            "type": "scatter",
            "mode": "markers",
            "name": row["policy"],
            "x": [row["finish_h"]],
            "y": [row["usd"]],
            "marker": {"size": 12},
            "meta": {"series": series},
        }
        for series, row in enumerate(rows)
    )
    header = ("policy", "USD", "done after h", "lost h", "deadlines met")
    cells = tuple(
        (row["policy"], f"{row['usd']:,.2f}", str(row["finish_h"]), f"{row['lost_h']:.2f}", row["met"]) for row in rows
    )
    note = "Means over all runs. Further left is sooner, further down is cheaper; a policy without an end has no point."
    y = axis("USD", rangemode="tozero")
    return Chart("spot", "Cost and end", note, traces, layout(axis("hours"), y, showlegend=True), Grid(header, cells))


def own_chart(offer: Offer, months: int) -> Chart:
    """What owning and renting have cost, month by month."""
    points = [(month, *offer.after(month)) for month in range(months + 1)]
    traces = tuple(
        {
            "type": "scatter",
            "mode": "lines",
            "name": name,
            "x": [point[0] for point in points],
            "y": [round(point[1 + series], 2) for point in points],
            "line": {"width": 1.8},
            "meta": {"series": series},
        }
        for series, name in enumerate(("own", "rent"))
    )
    cells = tuple((str(month), f"{own:,.0f}", f"{rent:,.0f}") for month, own, rent in points[::6])
    note = "The lines cross in the month in which both have cost the same."
    y = axis("USD", rangemode="tozero")
    grid = Grid(("month", "own", "rent"), cells)
    return Chart("own", "Cost so far", note, traces, layout(axis("months"), y, showlegend=True), grid)
