"""How evenly the map follows a drag, by Chromium's own trace."""

from __future__ import annotations

import math
import time
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


def panning(server: LiveServer, browser: Browser, seconds: float, tell: Tell) -> list[Row]:
    """The map is dragged in circles with all of it in sight, and zoomed in."""
    tell(f"page: the map is dragged for {seconds:g} s, twice")
    tab = browser.page()
    tab.call("Performance.enable")
    tab.open(f"http://{server.host}:{server.port}/ui/map")
    until(lambda: tab.run("Boolean(document.querySelector('.map canvas'))"), "the map is drawn", tab.text)
    rows = _dragged(tab, "all in sight", seconds)
    for _ in range(4):
        tab.click("Zoom in")
    rows += _dragged(tab, "zoomed in", seconds)
    tab.close()
    return rows


def _dragged(tab: Page, what: str, seconds: float) -> list[Row]:
    before = metrics_of(tab)["TaskDuration"]
    took_ms = frames_ms(_trace(tab, seconds))
    used_s = metrics_of(tab)["TaskDuration"] - before
    return [
        row(f"map, {what}: time between frames, p95", quantile(took_ms, 0.95), "ms", FRAME_TARGET_MS),
        row(f"map, {what}: time between frames, median", quantile(took_ms, 0.5), "ms"),
        row(f"map, {what}: frames a second", len(took_ms) / seconds, "frames/s"),
        row(f"map, {what}: main thread of the tab busy", 100 * used_s / seconds, "%"),
    ]


def _trace(tab: Page, seconds: float) -> list[dict[str, Any]]:
    """What Chromium traces while the mouse drags."""
    events: list[dict[str, Any]] = []
    over: list[bool] = []
    tab.listeners["Tracing.dataCollected"] = lambda content: events.extend(content["value"])
    tab.listeners["Tracing.tracingComplete"] = lambda _: over.append(True)
    _mouse(tab, "mouseMoved", 0, "none")
    _mouse(tab, "mousePressed", 0, "left")
    tab.call("Tracing.start", traceConfig={"includedCategories": CATEGORIES}, transferMode="ReportEvents")
    began_s = time.perf_counter()
    for move in range(int(seconds * MOVES_PER_S)):
        _mouse(tab, "mouseMoved", 2 * math.pi * move / MOVES_PER_S / 2, "left")
        time.sleep(max(0.0, began_s + (move + 1) / MOVES_PER_S - time.perf_counter()))
    tab.call("Tracing.end")
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
