"""What the page says when something goes wrong, in Chromium: refusals, clocks that are wrong, and bursts of events."""

from __future__ import annotations

import json
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
from running import Server

from phalanx.bench.page.tab import Page

pytestmark = pytest.mark.needs("chromium")

DAY_MS = 86_400_000
BURST, BATCH = 10_000, 5_000
REFUSALS = {
    403: ("Your role does not allow this.", "Ask an admin of the queue for a role that does."),
    404: ("There is no such thing.", "go back to the list"),
    409: ("It has changed meanwhile.", "Load it anew"),
    412: ("It has changed meanwhile.", "Look at it as it is now"),
    429: ("Too many requests.", "Try again in "),
    500: ("The server cannot do this now.", "try again in a moment"),
    502: ("The server cannot do this now.", "the server answered 502"),
    507: ("The disk of the server is full.", "Tell an operator."),
}
CLOCK = """
  delete window.SharedWorker;
  const real = Date.now.bind(Date);
  window.ahead_ms = {ahead_ms};
  Date.now = () => real() + window.ahead_ms;
"""
"""A clock that is off, in the page and in its event stream, which then runs in the page as well."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server whose jobs run nothing."""
    folder = tmp_path_factory.mktemp("failures")
    server = Server(folder / "data", "--backend", "rehearsal", "--nodes", "2", "--gpus", "8").start()
    yield server
    server.stop()


def test_every_refusal_says_what_happened_and_what_to_do(admin: Page, server: Server) -> None:
    for status, texts in REFUSALS.items():
        body = b"<html>" if status == 502 else json.dumps({"code": "x", "message": f"because {status}"}).encode()
        admin.intercept("*/api/v1/jobs/77", status, body, Retry_After="30")
        admin.open(f"{server.url}/ui/jobs/77")
        for text in texts:
            admin.see(text, ".problem")
        if status != 502:
            admin.see(f"because {status}", ".problem")
        admin.forgive(str(status))
    admin.call("Fetch.disable")


def test_after_too_many_requests_the_button_waits_as_long_as_the_server_says(admin: Page, server: Server) -> None:
    admin.intercept("*/api/v1/jobs/77", 429, b"{}", Retry_After="7200")
    admin.open(f"{server.url}/ui/jobs/77")
    admin.see("Try again in 71")
    assert admin.run("document.querySelector('.problem button').disabled") is True
    admin.call("Fetch.disable")
    admin.forgive("429")


def test_a_change_that_another_user_was_faster_with_is_refused_and_the_question_stays(
    admin: Page, server: Server
) -> None:
    job = server.submit(name="contested", gang=[{"replicas": 9, "gpus": 8}])
    admin.open(f"{server.url}/ui/jobs/{job['id']}")
    # The page hears of changes at once, so that only an answer that is made up is sure to come too late.
    admin.intercept(f"*/api/v1/jobs/{job['id']}:resize", 412, b'{"message": "the job has changed"}')
    admin.click("Resize…")
    admin.fill("Replicas", "1")
    admin.click("Resize")
    admin.see("It has changed meanwhile.", "dialog")
    admin.see("the job has changed", "dialog")
    admin.call("Fetch.disable")
    admin.click("Resize")
    admin.see("now asks for 1 replica")
    admin.forgive("412")


@pytest.mark.parametrize("ahead_ms", [-3 * DAY_MS, 3 * DAY_MS], ids=["behind", "ahead"])
def test_a_viewer_whose_clock_is_wrong_sees_the_times_of_the_server(page: Page, server: Server, ahead_ms: int) -> None:
    job = server.submit(name="timed", gpus=1, duration="1h")
    server.wait(job["id"], "running")
    page.call("Page.addScriptToEvaluateOnNewDocument", source=CLOCK.format(ahead_ms=ahead_ms))
    page.open(server.url)
    page.log_in((server.data / "admin.token").read_text().strip())
    page.see("live")
    page.open(f"{server.url}/ui/jobs/{job['id']}")
    page.see("ago")
    shown = page.run("[...document.querySelectorAll('time')].map((each) => each.innerText)")
    assert shown
    assert not [text for text in shown if " d ago" in text or "in " in text], shown
    page.open(f"{server.url}/ui/accounts?tab=sessions")
    page.see("browser")
    server.client.post(f"/jobs/{job['id']}:cancel")


def test_a_clock_that_is_set_back_delays_no_news(page: Page, server: Server) -> None:
    page.call("Page.addScriptToEvaluateOnNewDocument", source=CLOCK.format(ahead_ms=0))
    page.open(f"{server.url}/ui/jobs?name=after-the-change")
    page.log_in((server.data / "admin.token").read_text().strip())
    page.see("live")
    page.see("No job matches these filters")
    page.run(f"window.ahead_ms = -{DAY_MS}")
    job = server.submit(name="after-the-change", gpus=1, duration="1s")
    page.see(job["id"], ".grid-body")


def test_thousands_of_events_a_second_are_shown_in_a_few_requests(admin: Page, server: Server) -> None:
    admin.open(f"{server.url}/ui/jobs?name=burst")
    admin.see("No job matches these filters")
    admin.see("live")
    admin.fetched.clear()
    later = {"name": "burst", "command": "true", "gpus": 1, "begin": "+10h"}
    for _ in range(BURST // BATCH):
        answered = server.client.post("/jobs:batch", json={"jobs": [later] * BATCH})
        assert answered.status_code == 201, answered.text
    newest = answered.json()["ids"][-1]
    admin.see(newest, ".grid-body")
    asked = [url for url in admin.fetched if urlsplit(url).path == "/api/v1/jobs"]
    assert len(asked) < 60, "records of a burst are read together"
    assert admin.run("document.querySelectorAll('.grid-row').length") < 100
    # The page still does what it is told.
    admin.fill("State", "failed")
    admin.see("No job matches these filters")
