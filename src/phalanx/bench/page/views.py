"""How long it takes until a view can be used, from typing its address."""

from __future__ import annotations

import time

from phalanx.bench.page.browser import Browser
from phalanx.bench.page.tab import Page, until
from phalanx.bench.page.tree import cpu_s
from phalanx.bench.row import Row, Tell, quantile, row
from phalanx.bench.server.live import API, LiveServer

USABLE_TARGET_S = 1.5
VIEWS = (
    "overview",
    "map",
    "jobs",
    "nodes",
    "submit",
    "queues",
    "timeline",
    "what-if",
    "studies",
    "events",
    "scheduler",
)
STUDY = {"source": "synthetic:jobs=200,load=0.9", "policies": ["fifo", "srtf"]}
STUDY_S = 300.0
LOOK = """(() => {
  const look = () => {
    if (document.querySelector("main h1") && !document.querySelector(".loading")) window.usable_ms = performance.now();
    else requestAnimationFrame(look);
  };
  requestAnimationFrame(look);
})()"""
"""A view can be used when it has its title and nothing in it is still being loaded."""


def first_views(server: LiveServer, browser: Browser, times: int, tell: Tell) -> list[Row]:
    """Every view in a new tab with an empty cache, several times; and the overview as it is opened every day."""
    rows = []
    paths = {**{view: view for view in VIEWS}, "a study's answer": f"studies/{_study(server, tell)}"}
    for view, path in paths.items():
        tell(f"page: {view}, {times} times")
        found = [_open(server, browser, path, is_cold=True) for _ in range(times)]
        took_s = [each[0] for each in found]
        rows += [
            row(f"{view}: usable after, empty cache, median of {times}", quantile(took_s, 0.5), "s", USABLE_TARGET_S),
            row(f"{view}: usable after, empty cache, longest", max(took_s), "s"),
            row(f"{view}: processor time of the tab", quantile([each[1] for each in found], 0.5), "s"),
            row(f"{view}: processor time of the API worker", quantile([each[2] for each in found], 0.5), "s"),
        ]
    known = [_open(server, browser, "overview", is_cold=False)[0] for _ in range(times)]
    rows.append(row(f"overview: usable after, known to the browser, median of {times}", quantile(known, 0.5), "s"))
    return rows


def _study(server: LiveServer, tell: Tell) -> str:
    """A study in the simulator that has ended."""
    tell("page: a study in the simulator")
    status, body = server.ask("POST", f"{API}/studies", STUDY)
    if status != 201:
        raise RuntimeError(f"a study was refused: {body}")
    deadline_s = time.monotonic() + STUDY_S
    while (state := server.ask("GET", f"{API}/studies/{body['id']}")[1]["state"]) in ("queued", "running"):
        if time.monotonic() > deadline_s:
            break
        time.sleep(0.2)
    if state != "done":
        raise RuntimeError(f"the study of the benchmark is {state}, not done, after {STUDY_S:g} s at most")
    return str(body["id"])


def _open(server: LiveServer, browser: Browser, view: str, is_cold: bool) -> tuple[float, float, float]:
    """Seconds until a view is usable, of the tab's main thread, and of the API worker."""
    tab = browser.page()
    if is_cold:
        tab.call("Network.clearBrowserCache")
    tab.call("Performance.enable")
    worker, before_s = server.pids()["api"], cpu_s(server.pids()["api"])
    took_s = usable_s(tab, f"http://{server.host}:{server.port}/ui/{view}")
    found = took_s, metrics_of(tab)["TaskDuration"], cpu_s(worker) - before_s
    tab.close()
    return found


def usable_s(tab: Page, url: str) -> float:
    """Seconds from typing an address into a new tab until the view is usable."""
    tab.call("Page.addScriptToEvaluateOnNewDocument", source=LOOK)
    tab.open(url)
    until(lambda: tab.run("window.usable_ms"), f"{url} is usable", tab.text)
    return float(tab.run("window.usable_ms")) / 1000


def metrics_of(tab: Page) -> dict[str, float]:
    """What Chromium counts of a tab: time of its main thread, nodes of its document, memory of its scripts."""
    return {each["name"]: each["value"] for each in tab.call("Performance.getMetrics")["metrics"]}
