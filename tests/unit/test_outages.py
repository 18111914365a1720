"""Outages: when nodes took no new work, in the result of a run and in its Gantt chart."""

from __future__ import annotations

from pathlib import Path

import phalanx
from phalanx.cluster.cluster import Health, flat
from phalanx.simulate.figures.outages import outages
from phalanx.simulate.figures.result import Outage
from phalanx.simulate.report.gantt import gantt
from phalanx.simulate.trace import Trace, TraceJob

TRACE = Trace("two", (TraceJob("1", 0, 100_000, 8), TraceJob("2", 50_000, 100_000, 8)))


def test_an_outage_lasts_until_the_node_changes_again_or_until_now() -> None:
    changes = [(0, "a", Health.FAILED), (5_000, "b", Health.DRAINING), (8_000, "a", Health.HEALTHY)]
    assert outages(changes, 10_000) == [Outage("a", "failed", 0.0, 8.0), Outage("b", "draining", 5.0, 10.0)]
    assert outages([(0, "a", Health.FAILED), (3_000, "a", Health.DRAINING)], 4_000) == [
        Outage("a", "failed", 0.0, 3.0),
        Outage("a", "draining", 3.0, 4.0),
    ]


def test_failures_of_a_run_are_in_its_result_and_drawn_where_they_were(tmp_path: Path) -> None:
    faults = tmp_path / "faults.csv"
    faults.write_text("at_s,node,health\n20,n1,failed\n60,n1,healthy\n")
    result = phalanx.simulate(flat(2, 8), TRACE, "fifo", costs="none", faults=str(faults))
    assert result.outages == [Outage("n1", "failed", 20.0, 60.0)]
    drawn = [trace for trace in gantt(0, "fifo", result, 100).traces if trace["meta"].get("outage")]
    assert [trace["name"] for trace in drawn] == (["out of service"] if "n1" in result.nodes else [])


def test_a_run_without_failures_has_none() -> None:
    assert phalanx.simulate(flat(2, 8), TRACE, "fifo").outages == []
