"""What the page says when something goes wrong, in Chromium: refusals, clocks that are wrong, and bursts of events."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from running import Server

from phalanx.bench.page.browser import Browser
from phalanx.bench.page.tab import Page

pytestmark = pytest.mark.needs("chromium")

DAY_MS = 86_400_000
BURST, BATCH = 20_000, 5_000
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
EVENTS_PER_S = 5_000
FLOOD = f"""
  delete window.SharedWorker;
  const real = window.fetch.bind(window);
  window.flood = {{ told: 0, asked: 0, began_ms: 0 }};
  const body = (seq) => JSON.stringify({{ seq, now_ms: 0, type: "JobSubmitted", job: {{ id: String(seq) }} }});
  const record = (seq) => `id: ${{seq}}\\nevent: JobSubmitted\\ndata: ${{body(seq)}}\\n\\n`;
  const events = () => new ReadableStream({{
    start: (into) => {{
      flood.began_ms = performance.now();
      setInterval(() => {{
        let text = "";
        const due = (performance.now() - flood.began_ms) * {EVENTS_PER_S} / 1000;
        while (flood.told < due) text += record(1_000_000 + flood.told++);
        into.enqueue(new TextEncoder().encode(text));
      }}, 20);
    }},
  }});
  window.fetch = (url, init) => {{
    if (String(url).includes("/events?live=true")) return Promise.resolve(new Response(events()));
    flood.asked += String(url).includes("/api/v1/jobs?");
    return real(url, init);
  }};
"""
"""An event stream that tells every record by itself, as fast as that; a server would tell of many together."""

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


def test_of_two_users_who_resize_one_job_the_later_is_refused_and_the_question_stays(
    admin: Page, browser: Browser, server: Server
) -> None:
    job = server.submit(name="contested", gang=[{"replicas": 9, "gpus": 8}])
    other = browser.page_apart()
    other.open(server.url)
    other.log_in(operator_of(server, "other"))
    for page, replicas in ((admin, "4"), (other, "3")):
        page.open(f"{server.url}/ui/jobs/{job['id']}")
        page.see("live")
        page.click("Resize…")
        page.fill("Replicas", replicas)
    admin.click("Resize")
    admin.see("now asks for 4 replicas")
    other.see("It asks for 4 replicas", "dialog")
    other.click("Resize")
    other.see("It has changed meanwhile.", "dialog")
    assert server.job(job["id"])["gpus"] == 4 * 8
    other.click("Resize")
    other.see("now asks for 3 replicas")
    other.leave()
    assert [line for line in other.said if "status of 412" not in line] == []


def operator_of(server: Server, name: str) -> str:
    """The token of a new user, who may change every job."""
    server.client.post("/users", json={"name": name}).raise_for_status()
    server.client.put(f"/users/{name}/roles/-", json={"role": "operator"}).raise_for_status()
    asked = {"name": "t", "user": name, "scopes": ["read", "write"]}
    return str(server.client.post("/tokens", json=asked).raise_for_status().json()["token"])


def test_a_session_that_is_revoked_under_an_open_page_leads_to_the_log_in_and_back(page: Page, server: Server) -> None:
    token = operator_of(server, "revoked")
    page.open(server.url)
    page.log_in(token)
    page.open(f"{server.url}/ui/jobs?name=nothing-is-called-so")
    page.see("live")
    listed = server.client.get("/tokens", params={"user": "revoked"}).raise_for_status().json()["items"]
    for each in listed:
        if each["session_until_ms"] is not None and each["user"] == "revoked":
            server.client.delete(f"/tokens/{each['id']}").raise_for_status()
    page.see("Your session has ended")
    page.log_in(token)
    page.see("No job matches these filters")
    page.forgive("401")


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


def test_thousands_of_records_are_shown_in_a_few_requests_while_the_page_goes_on(admin: Page, server: Server) -> None:
    admin.open(f"{server.url}/ui/jobs?name=burst")
    admin.see("No job matches these filters")
    admin.see("live")
    admin.fetched.clear()
    later = {"name": "burst", "command": "true", "gpus": 1, "begin": "+10h"}
    newest: list[str] = []

    def submit() -> None:
        for _ in range(BURST // BATCH):
            answered = server.client.post("/jobs:batch", json={"jobs": [later] * BATCH}).raise_for_status()
            newest[:] = [answered.json()["ids"][-1]]

    with ThreadPoolExecutor(1) as threads:
        flood = threads.submit(submit)
        while not flood.done():
            # The page does what it is told meanwhile.
            admin.fill("State", "failed")
            admin.see("No job matches these filters")
            admin.fill("State", "waiting")
            admin.see("pending", ".grid-body")
        flood.result()
    admin.see(newest[0], ".grid-body")
    assert admin.run("document.querySelectorAll('.grid-row').length") < 100


def test_5000_events_a_second_of_one_stream_leave_the_page_free(page: Page, server: Server) -> None:
    server.submit(name="seen", gpus=1, begin="+10h")
    page.call("Page.addScriptToEvaluateOnNewDocument", source=FLOOD)
    page.open(f"{server.url}/ui/jobs?name=seen")
    page.log_in((server.data / "admin.token").read_text().strip())
    page.see("live")
    while page.run("flood.told") < 4 * EVENTS_PER_S:
        page.fill("State", "failed")
        page.see("No job matches these filters")
        page.fill("State", "waiting")
        page.see("seen", ".grid-body")
    found = page.run("({...flood, seconds: (performance.now() - flood.began_ms) / 1000})")
    assert found["told"] > 0.9 * EVENTS_PER_S * (found["seconds"] - 1), "the flood came at its rate"
    assert found["asked"] < 20 + 20 * found["seconds"], "each request is for many records"
