"""The parts of `phalanx bench page`."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from phalanx.bench.page.asking import asking
from phalanx.bench.page.browser import Browser
from phalanx.bench.page.listing import filtering, news
from phalanx.bench.page.memory import flat
from phalanx.bench.page.pan import panning
from phalanx.bench.page.past import Run, past
from phalanx.bench.page.site import Size, site
from phalanx.bench.page.views import first_views
from phalanx.bench.row import Row, Tell
from phalanx.bench.server.live import LiveServer

HOUR_S = 3_600.0


@dataclass(frozen=True, slots=True)
class Scale:
    """How large the site is, how often each thing is done, how long things are dragged and events come, and the run
    that is looked back at.
    """

    site: Size
    times: int
    pan_s: float
    events_s: float
    past: Run


LONG_PAST = Run(nodes=1_250, jobs=20_000, failures=400, records=1_000_000)
SHORT_PAST = Run(nodes=8, jobs=40, failures=1, records=500)
FULL = Scale(Size(gpus=10_000, finished=10_000, active=10_000), times=20, pan_s=10.0, events_s=300.0, past=LONG_PAST)
QUICK = Scale(Size(gpus=64, finished=20, active=300), times=2, pan_s=0.5, events_s=3.0, past=SHORT_PAST)


def speed(scale: Scale, tell: Tell) -> list[Row]:
    """Views, list and map on a site of their own."""
    with logged_in(scale.site, tell) as (server, browser):
        return shown(server, browser, scale, tell)


def shown(server: LiveServer, browser: Browser, scale: Scale, tell: Tell) -> list[Row]:
    """Views, list and map, one after the other."""
    return [
        *first_views(server, browser, max(1, scale.times // 4), tell),
        *filtering(server, browser, scale.times, tell),
        *news(server, browser, scale.times, tell),
        *panning(server, browser, scale.pan_s, tell),
    ]


def memory(scale: Scale, seconds: float, tell: Tell) -> list[Row]:
    """Tabs that stay open, on a site of their own."""
    with logged_in(scale.site, tell) as (server, browser):
        return flat(server, browser, seconds, tell)


def asked(scale: Scale, tell: Tell) -> list[Row]:
    """Why one of as many pending jobs waits as the page is meant for, on a site that nobody looks at."""
    size = scale.site
    with site(Size(size.gpus, 0, 0), tell) as server:
        return asking(server, size.jobs, scale.times, tell)


def looked_back(scale: Scale, tell: Tell) -> list[Row]:
    """Moments and the timeline of a long journal."""
    return past(scale.past, scale.times, scale.pan_s, tell)


@contextmanager
def logged_in(size: Size, tell: Tell) -> Iterator[tuple[LiveServer, Browser]]:
    """A site, and a browser whose tabs the admin has logged in."""
    with site(size, tell) as server, tempfile.TemporaryDirectory(prefix="phalanx-browser-") as profile:
        browser = Browser(Path(profile))
        try:
            tab = browser.page()
            tab.open(f"http://{server.host}:{server.port}")
            tab.log_in(server.token)
            tab.leave()
            yield server, browser
        finally:
            browser.close()
