"""How evenly the map and the timeline follow a drag and a zoom, by Chromium's own trace."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from phalanx.bench.page.browser import Browser
from phalanx.bench.page.tab import Page, until
from phalanx.bench.page.views import metrics_of
from phalanx.bench.row import Row, Tell, quantile, row
from phalanx.bench.server.live import LiveServer

FRAME_TARGET_MS = 33.0
MOVES_PER_S = 60
CATEGORIES = ["devtools.timeline", "disabled-by-default-devtools.timeline.frame"]
CENTRE, RADIUS = (500, 500), 150
CTRL, ZOOM_DELTA = 2, 25.0

Move = Callable[[Page, int], None]
"""Moves the mouse once; it is told how often it has moved."""


def panning(server: LiveServer, browser: Browser, seconds: float, tell: Tell) -> list[Row]:
    """The map is dragged in circles with all of it in sight, and zoomed in."""
    tell(f"page: the map is dragged for {seconds:g} s, twice")
    tab = browser.page()
    tab.call("Performance.enable")
    tab.open(f"http://{server.host}:{server.port}/ui/map")
    until(lambda: tab.run("Boolean(document.querySelector('.map canvas'))"), "the map is drawn", tab.text)
    rows = frames(tab, "map, all in sight", seconds, drag)
    for _ in range(4):
        tab.click("Zoom in")
    rows += frames(tab, "map, zoomed in", seconds, drag)
    tab.close()
    return rows


def frames(tab: Page, what: str, seconds: float, move: Move) -> list[Row]:
    """The figures of what is drawn while the mouse moves."""
    before = metrics_of(tab)["TaskDuration"]
    took_ms = frames_ms(_trace(tab, seconds, move))
    used_s = metrics_of(tab)["TaskDuration"] - before
    return [
        row(f"{what}: time between frames, p95", quantile(took_ms, 0.95), "ms", FRAME_TARGET_MS),
        row(f"{what}: time between frames, median", quantile(took_ms, 0.5), "ms"),
        row(f"{what}: frames a second", len(took_ms) / seconds, "frames/s"),
        row(f"{what}: main thread of the tab busy", 100 * used_s / seconds, "%"),
    ]


def drag(tab: Page, number: int) -> None:
    """One of many moves of a mouse that drags in circles."""
    _mouse(tab, "mouseMoved", 2 * math.pi * number / MOVES_PER_S / 2, "left")


def zoom(tab: Page, number: int) -> None:
    """One of many turns of the wheel with Ctrl held: in for a second, then out again."""
    delta = -ZOOM_DELTA if number // MOVES_PER_S % 2 == 0 else ZOOM_DELTA
    x, y = CENTRE
    tab.send("Input.dispatchMouseEvent", type="mouseWheel", x=x, y=y, deltaX=0, deltaY=delta, modifiers=CTRL)


def _trace(tab: Page, seconds: float, move: Move) -> list[dict[str, Any]]:
    """What Chromium traces while the mouse moves."""
    events: list[dict[str, Any]] = []
    over: list[bool] = []
    tab.listeners["Tracing.dataCollected"] = lambda content: events.extend(content["value"])
    tab.listeners["Tracing.tracingComplete"] = lambda _: over.append(True)
    _mouse(tab, "mouseMoved", 0, "none")
    if move is drag:
        _mouse(tab, "mousePressed", 0, "left")
    tab.call("Tracing.start", traceConfig={"includedCategories": CATEGORIES}, transferMode="ReportEvents")
    began_s = time.perf_counter()
    for number in range(int(seconds * MOVES_PER_S)):
        move(tab, number)
        time.sleep(max(0.0, began_s + (number + 1) / MOVES_PER_S - time.perf_counter()))
    tab.call("Tracing.end")
    if move is drag:
        _mouse(tab, "mouseReleased", 0, "left")
    until(lambda: tab.run("0") == 0 and over, "the trace is written")
    return events


def _mouse(tab: Page, kind: str, angle: float, button: str) -> None:
    x, y = CENTRE[0] + RADIUS * math.cos(angle), CENTRE[1] + RADIUS * math.sin(angle)
    tab.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, button=button, clickCount=int(button != "none"))


def frames_ms(events: list[dict[str, Any]]) -> list[float]:
    """Milliseconds between one frame that was drawn and the next."""
    drawn = sorted(event["ts"] for event in events if event["name"] == "DrawFrame")
    return [(later - earlier) / 1000 for earlier, later in pairwise(drawn)]
