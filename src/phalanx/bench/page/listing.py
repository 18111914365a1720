"""How soon the list of jobs follows a filter, and how soon anything shows that happened elsewhere."""

from __future__ import annotations

import json
import time
from random import Random

from phalanx.bench.page.browser import Browser
from phalanx.bench.page.site import QUEUES, long_job, submit
from phalanx.bench.page.tab import Page
from phalanx.bench.row import Row, Tell, quantile, row
from phalanx.bench.server.live import LiveServer

FILTER_TARGET_MS = 150.0
SHOWN_TARGET_MS = 300.0
SEED = 1
WORDS = {"waiting": "pending", "starting,running": "running", "succeeded": "succeeded"}
"""What rows say of their state, by the state that is asked for."""

FILTER = """new Promise((resolve) => {{
  const field = document.querySelector("#filter-{field}");
  const from_ms = performance.now();
  const kind = field.tagName === "SELECT" ? HTMLSelectElement : HTMLInputElement;
  Object.getOwnPropertyDescriptor(kind.prototype, "value").set.call(field, "{value}");
  for (const name of ["input", "change"]) field.dispatchEvent(new Event(name, {{ bubbles: true }}));
  const look = () => {{
    const rows = [...document.querySelectorAll(".grid-row")];
    const done = rows.length > 0 && rows.every((row) => row.innerText.includes("{expected}"));
    if (done) resolve(performance.now() - from_ms);
    else requestAnimationFrame(look);
  }};
  requestAnimationFrame(look);
}})"""

SHOWN = """new Promise((resolve) => {{
  const look = () => {{
    const shown = document.querySelector(".grid-body")?.innerText.includes({name});
    if (shown) resolve(performance.timeOrigin + performance.now());
    else requestAnimationFrame(look);
  }};
  look();
}})"""


def filtering(server: LiveServer, browser: Browser, times: int, tell: Tell) -> list[Row]:
    """The list is filtered by state, which is chosen, and by queue, which is typed."""
    tell(f"page: the list of jobs is filtered, {2 * times} times")
    tab = _opened(server, browser)
    states, rng = list(WORDS), Random(SEED)
    chosen_ms = [_filter(tab, "state", states[n % len(states)], WORDS[states[n % len(states)]]) for n in range(times)]
    _filter(tab, "state", "waiting", "pending")
    queues = [f"team-{rng.randrange(QUEUES)}" for _ in range(times)]
    typed_ms = [_filter(tab, "queue", queue, queue) for queue in queues]
    tab.close()
    return [
        row(f"list: rows after choosing a state, p95 of {times}", quantile(chosen_ms, 0.95), "ms", FILTER_TARGET_MS),
        row("list: rows after choosing a state, median", quantile(chosen_ms, 0.5), "ms"),
        row(f"list: rows after typing a queue, p95 of {times}", quantile(typed_ms, 0.95), "ms", FILTER_TARGET_MS),
        row("list: rows after typing a queue, median", quantile(typed_ms, 0.5), "ms"),
    ]


def news(server: LiveServer, browser: Browser, times: int, tell: Tell) -> list[Row]:
    """A job that another client submits, from its request to its row."""
    tell(f"page: {times} jobs come from elsewhere")
    tab, rng, took_ms = _opened(server, browser), Random(SEED), []
    for number in range(times):
        job = {**long_job(number), "name": f"news-{number}-"}
        seen = tab.begin(SHOWN.format(name=json.dumps(job["name"])))
        sent_ms = time.time() * 1000
        submit(server, [job])
        took_ms.append(tab.value(seen) - sent_ms)
        time.sleep(rng.uniform(0.3, 1.0))
    tab.close()
    return [
        row(f"list: a job from elsewhere is shown, p95 of {times}", quantile(took_ms, 0.95), "ms", SHOWN_TARGET_MS),
        row("list: a job from elsewhere is shown, median", quantile(took_ms, 0.5), "ms"),
    ]


def _opened(server: LiveServer, browser: Browser) -> Page:
    tab = browser.page()
    tab.open(f"http://{server.host}:{server.port}/ui/jobs")
    tab.see("live")
    tab.see("jobs loaded")
    return tab


def _filter(tab: Page, field: str, value: str, expected: str) -> float:
    return float(tab.run(FILTER.format(field=field, value=value, expected=expected)))
