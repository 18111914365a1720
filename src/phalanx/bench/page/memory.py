"""Whether a page that stays open under a steady stream of events keeps its size."""

from __future__ import annotations

import time
from itertools import count

from phalanx.bench.page.browser import Browser
from phalanx.bench.page.site import short_job, submit
from phalanx.bench.page.tab import Page
from phalanx.bench.page.tree import cpu_s, resident_mb
from phalanx.bench.page.views import metrics_of
from phalanx.bench.row import Row, Tell, ratio, row
from phalanx.bench.server.live import LiveServer

GROWTH_TARGET = 1.1
EVENTS_PER_S = 100
RECORDS_PER_JOB = 3
"""A job that ends at once is submitted, started and ended; jobs of one moment share the decisions about them."""

EVERY_S = 0.5
WARM_PART = 0.2
SETTLED_S = 2.0
COLLECTIONS = 3
"""What is found to be unneeded by one collection may keep something that only the next can take."""

VIEWS = ("overview", "jobs", "map")


def flat(server: LiveServer, browser: Browser, seconds: float, tell: Tell) -> list[Row]:
    """Three tabs stay open while events come; what they hold at the end beside what they held once warm."""
    tell(f"page: {EVENTS_PER_S} events a second for {seconds:g} s")
    tabs = {view: _opened(server, browser, view) for view in VIEWS}
    first = server.ask("GET", "/readyz")[1]["seq"]
    began_s, used_s = time.monotonic(), cpu_s(server.pids()["api"])
    _load(server, tabs, WARM_PART * seconds)
    warm_mb, resident = _heaps_mb(tabs), resident_mb(browser.pid)
    _load(server, tabs, (1 - WARM_PART) * seconds)
    took_s = time.monotonic() - began_s
    end_mb = _heaps_mb(tabs)
    rows = [
        row("memory: events a second", (server.ask("GET", "/readyz")[1]["seq"] - first) / took_s, "events/s"),
        row("memory: API worker busy", 100 * (cpu_s(server.pids()["api"]) - used_s) / took_s, "%"),
    ]
    for view in VIEWS:
        grown = ratio(end_mb[view], warm_mb[view])
        rows += [
            row(
                f"memory: {view}, heap after {seconds:g} s / after {WARM_PART * seconds:g} s",
                grown,
                "times",
                GROWTH_TARGET,
            ),
            row(f"memory: {view}, heap at the end", end_mb[view], "MB"),
            row(f"memory: {view}, nodes of the document at the end", metrics_of(tabs[view])["Nodes"], "nodes"),
        ]
        tabs[view].close()
    grown = ratio(resident_mb(browser.pid), resident)
    return [*rows, row("memory: all of the browser at the end / once warm", grown, "times")]


def _opened(server: LiveServer, browser: Browser, view: str) -> Page:
    tab = browser.page()
    # Tabs in the background draw nothing, and would keep everything.
    tab.call("Emulation.setFocusEmulationEnabled", enabled=True)
    tab.call("Performance.enable")
    # What is kept for the protocol of every request would be counted as the page's.
    tab.call("Network.disable")
    tab.open(f"http://{server.host}:{server.port}/ui/{view}")
    tab.see("live")
    return tab


def _load(server: LiveServer, tabs: dict[str, Page], seconds: float) -> None:
    """Submits jobs that end at once, as many as make the events."""
    jobs = [short_job(number) for number in range(round(EVENTS_PER_S * EVERY_S / RECORDS_PER_JOB))]
    began_s = time.monotonic()
    for step in count(1):
        submit(server, jobs)
        for tab in tabs.values():
            tab.run("performance.clearResourceTimings()")
        time.sleep(max(0.0, began_s + step * EVERY_S - time.monotonic()))
        if step * EVERY_S >= seconds:
            return


def _heaps_mb(tabs: dict[str, Page]) -> dict[str, float]:
    """What the scripts of tabs hold once no answer is on its way and what they do not need is gone."""
    time.sleep(SETTLED_S)
    for tab in tabs.values():
        for _ in range(COLLECTIONS):
            tab.call("HeapProfiler.collectGarbage")
    return {view: metrics_of(tab)["JSHeapUsedSize"] / 1e6 for view, tab in tabs.items()}
