"""Every view in both themes: nothing that keeps users out by axe, nothing on the console; and a server that dies."""

from __future__ import annotations

import pytest
from axe import violations
from running import Server

from phalanx.bench.page.tab import Page, until

pytestmark = pytest.mark.needs("chromium")


@pytest.fixture(scope="module")
def jobs(server: Server) -> dict[str, str]:
    """A job that runs, one that waits and one that failed."""
    runs = server.submit(command="sleep 600", gang=[{"replicas": 3, "gpus": 8}], duration="1h", name="runs")
    server.wait(runs["id"], "running")
    waits = server.submit(command="sleep 1", gang=[{"replicas": 2, "gpus": 8}], duration="1h", name="waits")
    failed = server.submit(command=["sh", "-c", "echo oops >&2; exit 3"], name="failed")
    server.wait(failed["id"], "failed")
    return {"runs": runs["id"], "waits": waits["id"], "failed": failed["id"]}


VIEWS = {
    "overview": ("/ui/overview", "Needs attention"),
    "map": ("/ui/map?gpu=3", "GPU 3 of n0"),
    "selected": ("/ui/map?job={runs}", "Selected job"),
    "jobs": ("/ui/jobs", "waits"),
    "job": ("/ui/jobs/{runs}", "Where it runs"),
    "why": ("/ui/jobs/{waits}?tab=why", "What would start it now"),
    "logs": ("/ui/jobs/{failed}?tab=logs&stream=err", "oops"),
    "metrics": ("/ui/jobs/{runs}?tab=metrics", "GPUs"),
    "events": ("/ui/jobs/{failed}?tab=events", "attempt 1: starting on n"),
    "submit": ("/ui/submit", "What would happen now"),
    "nodes": ("/ui/nodes", "healthy"),
    "node": ("/ui/nodes/n0", "The last day"),
    "accounts": ("/ui/accounts", "This session may"),
    "tokens": ("/ui/accounts?tab=tokens", "Tokens"),
    "users": ("/ui/accounts?tab=users", "admin of everything"),
}


def test_no_view_keeps_users_out_in_either_theme(admin: Page, server: Server, jobs: dict[str, str]) -> None:
    found = {}
    for name, (path, text) in VIEWS.items():
        admin.open(server.url + path.format(**jobs))
        admin.see(text)
        for theme in ("light", "dark"):
            admin.run(f"document.documentElement.dataset.theme = '{theme}'")
            if wrong := violations(admin):
                found[f"{name}, {theme}"] = wrong
    assert found == {}


def test_a_phone_shows_every_view_without_scrolling_sideways(admin: Page, server: Server, jobs: dict[str, str]) -> None:
    # A table that is wider than a phone scrolls by itself.
    server.client.post("/tokens", json={"name": "a-script-of-a-long-name" * 2, "scopes": ["read"]}).raise_for_status()
    admin.size(390, 844)
    widths = {}
    for name, (path, text) in VIEWS.items():
        admin.open(server.url + path.format(**jobs))
        admin.see(text)
        admin.run("new Promise((resolve) => requestIdleCallback(resolve))")
        widths[name] = admin.run("document.documentElement.scrollWidth")
    assert {name: width for name, width in widths.items() if width > 390} == {}
    assert admin.run("innerWidth") == 390


def test_the_chart_of_a_young_server_shows_only_the_time_there_is(admin: Page, server: Server) -> None:
    admin.open(f"{server.url}/ui/overview")
    admin.see("GPUs, since ")
    admin.miss("GPUs, the last day")
    [start] = admin.run("[document.querySelector('.chart path').getAttribute('d').match(/^M([\\d.]+)/)?.[1]]")
    assert float(start) < 60, "of a width of 600: it begins at the left end"


def test_everything_can_be_reached_by_the_keyboard(admin: Page, server: Server, jobs: dict[str, str]) -> None:
    admin.open(f"{server.url}/ui/jobs?name=waits")
    admin.see("waits")
    admin.run("document.querySelector('.grid-row').focus()")
    admin.press("Enter")
    admin.see(f"job {jobs['waits']}")
    admin.run("document.querySelector('#tab-state').focus()")
    admin.press("ArrowRight")
    admin.see("What would start it now")
    assert admin.run("document.activeElement.id") == "tab-why"
    admin.run("[...document.querySelectorAll('button')].find((each) => each.innerText === 'Cancel…').focus()")
    admin.press("Enter")
    admin.see("It leaves the queue")
    admin.press("Escape")
    admin.miss("It leaves the queue")
    assert admin.run("document.activeElement.innerText") == "Cancel…"


@pytest.mark.parametrize("inside", ["", " input"], ids=["row", "box"])
def test_the_focus_stays_with_its_job_when_others_come_before_it(admin: Page, server: Server, inside: str) -> None:
    name = f"focused{inside.strip()}"
    first = server.submit(name=name, command="true", begin="+10h")
    admin.open(f"{server.url}/ui/jobs?name={name}")
    admin.see(first["id"], ".grid-body")
    admin.see("live")
    admin.run(f"document.querySelector('.grid-row{inside}').focus()")
    second = server.submit(name=name, command="true", begin="+10h")
    admin.see(second["id"], ".grid-body")
    assert first["id"] in admin.run("document.activeElement.closest('.grid-row').innerText")
    if not inside:
        admin.press("Enter")
        admin.see(f"job {first['id']}")


def test_a_list_with_other_filters_begins_at_its_top(admin: Page, server: Server) -> None:
    later = {"name": "many", "command": "true", "begin": "+10h"}
    for queue in ("one", "other"):
        server.with_queues(queue).client.post(
            "/jobs:batch", json={"jobs": [{**later, "queue": queue}] * 60}
        ).raise_for_status()
    admin.open(f"{server.url}/ui/jobs?name=many&queue=one")
    admin.see("60 jobs")
    admin.run("document.querySelector('.grid-body').scrollTop = 1e6")
    until(lambda: admin.run("document.querySelector('.grid-row').dataset.row") != "0", "the end is shown")
    admin.fill("Queue and below", "other")
    admin.see("other", ".grid-row")
    until(lambda: admin.run("document.querySelector('.grid-body').scrollTop") == 0, "the top is shown", admin.text)
    assert admin.run("document.querySelector('.grid-row').dataset.row") == "0"


def test_columns_of_a_list_stand_below_their_titles(admin: Page, server: Server) -> None:
    later = {"name": "below", "command": "true", "begin": "+10h"}
    server.client.post("/jobs:batch", json={"jobs": [later] * 60}).raise_for_status()
    admin.open(f"{server.url}/ui/jobs?name=below")
    admin.see("60 jobs")
    lefts = "[...document.querySelector('{}').children].map((each) => Math.round(each.getBoundingClientRect().left))"
    assert admin.run(lefts.format(".grid-row")) == admin.run(lefts.format(".grid-head"))


def test_a_page_whose_server_is_killed_says_so_and_goes_on_when_it_is_back(admin: Page, server: Server) -> None:
    admin.open(f"{server.url}/ui/jobs?name=later")
    admin.see("No job matches these filters")
    admin.see("live")
    port = server.url.rpartition(":")[2]
    server.kill()
    admin.see("connection lost, trying again")
    server.restart_at(int(port))
    admin.see("live")
    job = server.submit(name="later", command="true")
    admin.see(job["id"], ".grid-body")
    admin.said = [line for line in admin.said if "ERR_" not in line and "status of 503" not in line]
