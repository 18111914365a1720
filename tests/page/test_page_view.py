"""`phalanx view`: the page over a journal, in Chromium."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from axe import violations
from viewer import Viewer, simulated

from phalanx.bench.page.tab import Page, until

pytestmark = pytest.mark.needs("chromium")


@pytest.fixture(scope="module")
def viewer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Viewer]:
    """The journal of a simulated run of a few hours."""
    folder = tmp_path_factory.mktemp("view")
    viewer = Viewer(simulated(folder), folder)
    yield viewer
    viewer.stop()


VIEWS = {
    "overview": ("/ui/overview", "small"),
    "map": ("/ui/map", "n0"),
    "jobs": ("/ui/jobs?state=", "ada"),
    "job": ("/ui/jobs/3", "succeeded"),
    "queues": ("/ui/queues", "blue"),
    "nodes": ("/ui/nodes", "n3"),
    "timeline": ("/ui/timeline", "attempts read"),
    "events": ("/ui/events", "AttemptEnded"),
}


CHANGES = ("Submit", "Log out", "Cancel", "Hold", "Drain", "What if", "Change", "Accounts", "Scheduler")


def test_the_printed_address_lets_the_browser_in_and_no_other(page: Page, viewer: Viewer) -> None:
    page.open(f"{viewer.url}/ui/jobs")
    page.see("Go to the address that")
    page.open(viewer.address)
    page.see("journal.jsonl, not live")
    page.see("small", "h1")
    assert page.run("location.pathname") == "/ui/overview"
    assert page.run("document.cookie") == "", "no script can read the session"


def test_every_view_shows_the_journal_offers_no_change_and_keeps_no_user_out(page: Page, viewer: Viewer) -> None:
    page.open(viewer.address)
    found = {}
    for name, (path, text) in VIEWS.items():
        page.size(1200, 900)
        page.open(viewer.url + path)
        page.see(text)
        page.miss("connection lost")
        offered = page.run("[...document.querySelectorAll('nav a, button, a.button')].map((each) => each.innerText)")
        assert not [each for each in offered if each.startswith(CHANGES)], name
        if wrong := violations(page):
            found[name] = wrong
    assert found == {}


def test_the_slider_goes_to_any_moment_by_keyboard_and_all_views_stay_there(page: Page, viewer: Viewer) -> None:
    page.open(viewer.address)
    page.see("As it was")
    page.run("document.querySelector('#moment-slider').focus()")
    page.press("Home")
    until(lambda: page.run("new URLSearchParams(location.search).get('at')") == "0", "the address names the moment")
    page.click("+1 h")
    assert page.run("new URLSearchParams(location.search).get('at')") == "3600000"
    page.click("Jobs")
    page.see("running")
    page.miss("succeeded", "tbody")
    page.click("Overview")
    page.see("GPUs", "main")
    page.miss("GPUs now", "main")
    assert page.run("new URLSearchParams(location.search).get('at')") == "3600000", "links keep the moment"
    page.open(f"{viewer.url}/ui/jobs/3?at=3600000&tab=why")
    page.see("It needs 16 GPUs and 8 are free", "main")
    page.see("What would start it then", "main")
    page.see("Each was really tried on the state as it was then.", "main")
    page.miss("present state", "main")
    assert violations(page) == []
    page.size(390, 844)
    assert page.run("document.documentElement.scrollWidth") <= 390


def test_a_moment_outside_of_the_journal_is_told_with_the_way_back(page: Page, viewer: Viewer) -> None:
    page.open(viewer.address)
    page.open(f"{viewer.url}/ui/jobs?at=99999999999")
    page.see("is after the last record")
    page.click("To the last")
    page.see("4 jobs")
    assert page.run("new URLSearchParams(location.search).get('at')") == "10600000"
    page.forgive("422")


def test_an_address_with_a_moment_that_is_none_says_so_with_the_way_on(page: Page, viewer: Viewer) -> None:
    page.open(viewer.address)
    page.see("small", "h1")
    for text in ("yesterday", "-5", "1e9"):
        page.open(f"{viewer.url}/ui/jobs?at={text}")
        page.see(f"asks for a moment that is none, “{text}”")
        page.see("4 jobs")
        assert violations(page) == []
    page.click("Go on without it")
    page.miss("that is none")
    assert page.run("location.search") == ""


ONE = """import("/ui/static/parts/chart.js").then(async ({ Chart }) => {
  const { html, render } = await import("/ui/static/core/dom.js");
  const lines = [{ name: "a", label: "a", values: %s }];
  const place = document.createElement("div");
  document.querySelector("main").append(place);
  render(html`<${Chart} title="One" start_ms=${0} step_ms=${60000} lines=${lines} />`, place);
  return place.querySelectorAll(".chart-point").length;
})"""


def test_a_single_sample_is_drawn_as_a_point_and_several_as_a_line(page: Page, viewer: Viewer) -> None:
    page.open(viewer.address)
    page.see("small", "h1")
    drawn = {values: page.run(ONE % values) for values in ("[5]", "[null, 5, null]", "[5, 6]", "[null]")}
    assert drawn == {"[5]": 1, "[null, 5, null]": 1, "[5, 6]": 0, "[null]": 0}


def test_times_count_from_the_last_record(page: Page, viewer: Viewer) -> None:
    page.open(viewer.address)
    page.see("small", "h1")
    page.open(f"{viewer.url}/ui/jobs/4")
    page.see("succeeded")
    assert viewer.client.get("/timeline").json()["now_ms"] == 10_600_000
