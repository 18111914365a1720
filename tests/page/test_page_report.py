"""The report of a simulation in a real browser: charts are drawn, fit a phone, and can be chosen from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

import phalanx.simulate
from phalanx.bench.page.browser import Browser
from phalanx.bench.page.tab import Page, until
from phalanx.cluster.cluster import flat
from phalanx.cluster.queues import Queue, Quota
from phalanx.simulate.report import write_report

pytestmark = [pytest.mark.needs("chromium"), pytest.mark.needs("plotly")]

POLICIES = ("fifo", "kai", "phalanx", "las", "srtf", "fair", "drf", "tiresias-las")
WIDE = """[...document.querySelectorAll(".chart")].filter((chart) => {
  const svg = chart.querySelector(".main-svg");
  return svg && svg.getBoundingClientRect().right > chart.closest("figure").getBoundingClientRect().right + 0.5;
}).map((chart) => chart.id)"""
DRAWN = (
    '[...document.querySelectorAll("figure:not([hidden]) .chart")].every((chart) => chart.querySelector(".main-svg"))'
)

CHOOSE = """(() => {{
  const pick = document.getElementById("pick-{section}");
  pick.value = "{value}";
  pick.dispatchEvent(new Event("change"));
}})()"""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Eight policies on a cluster with three queues, as a file."""
    queues = tuple(Queue(f"q{i}", deserved=Quota(gpus_permille=8000)) for i in range(3))
    cluster = replace(flat(4, 8), queues=queues)
    trace = "synthetic:jobs=60,load=1.0,queues=3"
    results = [phalanx.simulate(cluster, trace, policy) for policy in POLICIES]
    path = tmp_path_factory.mktemp("report") / "report.html"
    write_report(results, path, "Eight policies")
    return path.as_uri()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    page = browser.page()
    yield page
    page.leave()
    assert page.said == []
    assert [url for url in page.fetched if not url.startswith(("file:", "data:", "blob:"))] == []


@pytest.mark.parametrize("width", [390, 1280])
def test_every_chart_is_drawn_within_its_frame_and_nothing_scrolls_sideways(
    page: Page, report: str, width: int
) -> None:
    page.size(width, 844)
    page.open(report)
    until(lambda: page.run(DRAWN), "every chart in sight is drawn")
    assert page.run(WIDE) == []
    assert page.run("document.documentElement.scrollWidth") <= width


def test_one_queue_and_one_gantt_chart_are_seen_at_a_time_and_another_can_be_chosen(page: Page, report: str) -> None:
    shown = '[...document.querySelectorAll("figure:not([hidden]) h3")].map((title) => title.innerText)'
    page.size(1280, 844)
    page.open(report)
    assert [title for title in page.run(shown) if title.startswith("q")] == ["q0"]
    assert [title for title in page.run(shown) if "GPUs over time" in title] == ["fifo: GPUs over time"]
    page.run(CHOOSE.format(section="quotas", value="quota-2"))
    page.run(CHOOSE.format(section="gantt", value="gantt-4"))
    assert [title for title in page.run(shown) if title.startswith("q")] == ["q2"]
    assert [title for title in page.run(shown) if "GPUs over time" in title] == ["srtf: GPUs over time"]
    until(lambda: page.run(DRAWN), "what was chosen is drawn")
    assert page.run(WIDE) == []
