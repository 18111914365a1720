"""`phalanx bench page` on a small site: every figure is measured, and what it says of frames is what was drawn."""

from __future__ import annotations

import pytest

from phalanx.bench.page.memory import flat
from phalanx.bench.page.pan import frames_ms
from phalanx.bench.page.run import SHORT_PAST, Scale, logged_in, looked_back, shown
from phalanx.bench.page.site import Size
from phalanx.bench.row import Row

pytestmark = pytest.mark.needs("chromium")

SMALL = Scale(Size(gpus=64, finished=20, active=300), times=1, pan_s=0.5, events_s=2.0, past=SHORT_PAST)


def missing(rows: list[Row]) -> list[str]:
    return [each["name"] for each in rows if not each["value"]]


def test_every_figure_of_speed_and_memory_is_measured() -> None:
    told: list[str] = []
    with logged_in(SMALL.site, told.append) as (server, browser):
        rows = [
            *shown(server, browser, SMALL, told.append),
            *flat(server, browser, SMALL.events_s, told.append),
        ]
    assert [name for name in missing(rows) if "processor" not in name] == []
    assert {each["target"] for each in rows if "usable" in each["name"] and "median" in each["name"]} == {1.5, None}
    assert all(line.startswith("page: ") for line in told)


def test_moments_and_the_timeline_of_a_journal_are_measured() -> None:
    told: list[str] = []
    rows = looked_back(SMALL, told.append)
    assert [name for name in missing(rows) if "processor" not in name] == []
    assert {each["target"] for each in rows if "usable" in each["name"] and "median" not in each["name"]} == {2.0}
    assert {each["target"] for each in rows if "p95" in each["name"]} == {33.0}
    assert all(line.startswith("page: ") for line in told)


def test_frames_are_timed_from_one_that_was_drawn_to_the_next() -> None:
    drawn = [{"name": "DrawFrame", "ts": at} for at in (50_000, 0, 16_000)]
    assert frames_ms([*drawn, {"name": "BeginFrame", "ts": 20_000}]) == [16.0, 34.0]
