"""What `phalanx bench tenants` says of `why`: rows with targets, and starts counted on their side of an interval."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from builders import World, a_job
from phalanx.bench.tenants import calibration, why
from phalanx.cluster.cluster import flat
from phalanx.simulate.forecasts.forecast import Forecast, Outlook, Span
from phalanx.simulate.trace import Trace, TraceJob
from phalanx.simulate.world.costs import NO_COSTS

TINY = replace(why.QUICK, waiting=40, asked=2)


def test_answers_are_timed_for_every_kind_of_line() -> None:
    rows = why.answers(TINY, lambda line: None)
    assert [row["unit"] for row in rows] == ["ms", "ms", "s", "forecasts"] * 3
    assert all(row["value"] is not None and row["value"] > 0 for row in rows)
    assert [row["target"] for row in rows[:3]] == [None, why.WHY_TARGET_MS, why.POINT_TARGET_S]


def test_where_lengths_are_known_exactly_every_start_lies_in_its_interval() -> None:
    jobs = tuple(TraceJob(str(i), 1_000 * i, 30_000, 8) for i in range(12))
    outlook = Outlook(runs=1, costs=NO_COSTS, horizon_ms=3_600_000)
    found = calibration.calibrate(flat(1, 8), Trace("t", jobs), "fifo", 2, outlook, rough=1.0)
    assert found.starts > 0
    assert found.coverage == 1.0


def test_starts_before_and_after_the_interval_are_told_apart() -> None:
    world = World(flat(1, 8))
    for at, name in enumerate("abcd"):
        world.run(a_job(name, 1), after_ms=1_000 if at else 5_000)
    # They started at 5, 6, 7 and 8 s; d was forecast to start after the horizon of 10 s.
    spans = {"a": Span(5_000, 5_000, 5_000), "b": Span(7_000, 7_000, 9_000), "c": Span(1_000, 1_000, 6_999)}
    made = Forecast(1_000, 9_000, 19, spans | {"d": Span(None, None, None)})
    found = calibration.counted(world.state, [made])
    widths_ms, waits_ms = (0, 2_000, 5_999), (4_000, 5_000, 6_000)
    assert found == calibration.Calibration(
        4, inside=1, early=2, late=1, endless=1, widths_ms=widths_ms, waits_ms=waits_ms
    )
    assert (found.early_part, found.width_part) == (0.5, 0.4)


def test_intervals_are_measured_by_policy_beside_what_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(why, "PHILLY", Path("/nowhere"))
    monkeypatch.setattr(why, "HELD_POLICIES", ("fifo", "phalanx"))
    rows = why.forecasts(why.QUICK, lambda line: None)
    assert [row["unit"] for row in rows] == ["starts", "%", "%", "%", "%", "%", "%", "h", "×", "points"] * 2
    assert rows[0]["name"] == "forecasts under fifo, synthetic: starts forecast"
    assert [row["target"] for row in rows[:10]] == [None] * 9 + [0.0]
