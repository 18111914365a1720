"""What the page shows operators and planners, in Chromium."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from axe import violations
from running import Server, eventually

from phalanx.bench.page.browser import Browser
from phalanx.bench.page.tab import Page, until
from phalanx.cli.main import cli, run

pytestmark = pytest.mark.needs("chromium")

CLUSTER = """
levels: [rack, node]
nodes:
- {name: n0, gpus: 8, gpu_type: H100, rack: r0}
- {name: n1, gpus: 8, gpu_type: H100, rack: r0}
- {name: n2, gpus: 8, gpu_type: H100, rack: r1}
- {name: n3, gpus: 8, gpu_type: H100, rack: r1}
policy: priority:backfill=easy
queues:
- name: research
  deserved: {gpus: 16}
  limit: {gpus: 28}
  queues:
  - {name: llm, deserved: {gpus: 12}, guaranteed: {gpus: 4}, budget_gpu_hours: 500}
  - {name: rl, deserved: {gpus: 4}}
- {name: vision, deserved: {gpus: 12}}
maintenance: [{name: cooling, nodes: [n3], start: +10h, for: 2h}]
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server whose jobs run nothing: research has borrowed 8 GPUs, of which vision lacks 4."""
    folder = tmp_path_factory.mktemp("operators")
    (folder / "cluster.yaml").write_text(CLUSTER)
    server = Server(folder / "data", "--backend", "rehearsal", "--cluster", str(folder / "cluster.yaml")).start()
    jobs = [server.submit(name=f"train-{at}", queue="research/llm", gpus=4, duration="2h") for at in range(5)]
    jobs += [server.submit(name="rl", queue="research/rl", gpus=4, duration="2h")]
    jobs += [server.submit(name="vision", queue="vision", gpus=8, duration="2h")]
    for job in jobs:
        server.wait(job["id"], "running")
    server.client.get(f"/jobs/{jobs[0]['id']}/why", timeout=90).raise_for_status()
    told = {"command": "true", "name": "told", "queue": "research/rl", "gpus": 4, "duration": "1h"}
    pending = server.client.post("/jobs", params={"forecast": True}, json=told).raise_for_status().json()
    assert pending["told_start_ms"]
    server.client.post("/nodes/n3:drain", json={"reason": "a fan"}).raise_for_status()
    server.client.post("/nodes/n3:undrain").raise_for_status()
    done = server.submit(name="done", queue="vision", duration="200ms", gpus=0)
    server.wait(done["id"], "succeeded")
    yield server
    server.stop()


VIEWS = {
    "queues": ("/ui/queues", "GPUs, since"),
    "events": ("/ui/events", "told, research/rl, by admin"),
    "audit": ("/ui/events?tab=audit", "drain node"),
    "scheduler": ("/ui/scheduler", "Processes"),
    "receipts": ("/ui/scheduler?tab=receipts", "The newest"),
    "postmortem": ("/ui/jobs/1?tab=postmortem", "First cause"),
    "timeline": ("/ui/timeline", "attempts read"),
    "timeline of jobs": ("/ui/timeline?by=jobs", "attempts read"),
    "what if": ("/ui/what-if", "Change something first."),
    "queue": ("/ui/queues?queue=vision", "Giving back"),
}


def test_no_view_for_operators_keeps_users_out_in_either_theme_or_scrolls_sideways(admin: Page, server: Server) -> None:
    found = {}
    for name, (path, text) in VIEWS.items():
        admin.size(1200, 900)
        admin.open(server.url + path)
        admin.see(text)
        for theme in ("light", "dark"):
            admin.run(f"document.documentElement.dataset.theme = '{theme}'")
            if wrong := violations(admin):
                found[f"{name}, {theme}"] = wrong
        admin.size(390, 844)
        if (width := admin.run("document.documentElement.scrollWidth")) > 390:
            found[f"{name}, phone"] = [f"{width} wide"]
    assert found == {}


def test_a_queue_shows_what_it_borrows_and_who_would_give_it_back(admin: Page, server: Server) -> None:
    admin.open(f"{server.url}/ui/queues")
    row = "[...document.querySelectorAll('.queues tbody tr')].find((each) => each.innerText.startsWith('{}')).innerText"
    admin.see("llm", ".queues")
    shown = admin.run(row.format("research")).split("\t")
    assert [text.strip() for text in shown[2:7]] == ["24", "4", "16", "28", "+8"]
    assert "500 GPU-h" in admin.run(row.format("llm"))
    admin.click("llm")
    admin.see("It has borrowed 8 GPUs.")
    admin.click("vision", nth=1)
    admin.see("It has 4 GPUs less than its nominal 12.")
    admin.click("Who would give them back?")
    admin.see("1 job would have to leave")
    admin.see("research/llm", "[aria-label='Jobs that would have to leave']")
    assert len(server.client.get("/jobs", params={"state": "running"}).json()["items"]) == 7, "nothing was changed"


def test_of_two_admins_who_change_the_queues_the_later_sees_what_the_first_did(
    admin: Page, browser: Browser, server: Server
) -> None:
    other = browser.page_apart()
    other.open(server.url)
    other.log_in((server.data / "admin.token").read_text().strip())
    for page in (admin, other):
        page.open(f"{server.url}/ui/queues")
        page.click("Change the queues…")
        page.see("It changes nothing", "dialog")
    text = admin.run("document.querySelector('#queue-file').value")
    admin.fill("Queues", text.replace("limit: {gpus: 28}", "limit: {gpus: 8}"))
    admin.see("Line 2: ", "dialog")
    admin.see("queue research deserves 16 GPUs, more than its limit of 8", "dialog")
    admin.fill("Queues", text + "- {name: product, deserved: {gpus: 4}}\n")
    admin.see("Queues added: product", "dialog")
    admin.see("It stops no running job", "dialog")
    admin.click("Apply")
    admin.see("The queues are as you wrote them.")
    admin.see("product", ".queues")
    other.fill("Queues", text.replace("budget_gpu_hours: 500.0", "budget_gpu_hours: 600"))
    other.see("budget_gpu_hours 500 becomes 600", "dialog")
    other.click("Apply")
    other.see("It has changed meanwhile.", "dialog")
    other.see("Queues removed: product", "dialog")
    other.click("Start over from those")
    other.see("It changes nothing", "dialog")
    assert "product" in other.run("document.querySelector('#queue-file').value")
    other.leave()
    assert [line for line in other.said if "status of 412" not in line] == []
    admin.forgive("422")


def test_events_are_found_by_what_they_are_and_about_and_lead_there(admin: Page, server: Server) -> None:
    admin.open(f"{server.url}/ui/events")
    admin.see("gives devices to 1")
    admin.fill("Of", "hardware")
    admin.see("health draining, reason a fan")
    admin.miss("JobSubmitted", "tbody")
    admin.open(f"{server.url}/ui/events?kind=jobs&job=1")
    admin.see("train-0, research/llm, by admin")
    admin.see("1 record", ".buttons")
    later = server.submit(name="later", queue="vision", gpus=1, begin="+10h")
    admin.open(f"{server.url}/ui/events?kind=jobs")
    admin.see("later, vision, by admin")
    server.client.post(f"/jobs/{later['id']}:cancel").raise_for_status()
    admin.see("JobCancelled")
    admin.click(later["id"])
    admin.see(f"job {later['id']}")
    admin.open(f"{server.url}/ui/events?tab=audit&target=n3")
    admin.see("undrain node")
    admin.miss("submit jobs")
    admin.click("n3")
    admin.see("The last day")


def test_the_scheduler_says_how_it_does_and_what_it_told(admin: Page, server: Server) -> None:
    admin.open(f"{server.url}/ui/scheduler")
    for text in ("loop", "planner", "✓ well", "priority:backfill=easy", "not every kind of pending job", "99 of 100"):
        admin.see(text)
    admin.click("Starts told")
    admin.see("research/rl")
    admin.see("not yet", "[aria-label='The newest']")


def test_a_post_mortem_tells_first_cause_where_time_went_and_what_would_have_saved_it(
    admin: Page, server: Server, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    urgent = server.submit(name="urgent", queue="research/rl", gpus=4, duration="1s", priority=9)
    server.wait(urgent["id"], "succeeded")
    items = server.client.get("/jobs", params={"queue": "research", "limit": 100}).json()["items"]
    victim = next(job for job in items if job["preemptions"])
    server.wait(victim["id"], "running")
    admin.open(f"{server.url}/ui/jobs/{victim['id']}?tab=postmortem")
    admin.see("Attempt 1 ended after", ".why-reason")
    admin.see("restarting until later attempts ran")
    admin.see("preempted", "[aria-label='Attempts that ended early']")
    admin.call("Emulation.setEmulatedMedia", media="print")
    assert admin.run("getComputedStyle(document.querySelector('.bar')).display") == "none"
    admin.call("Emulation.setEmulatedMedia", media="")
    monkeypatch.setenv("PHALANX_ADDR", server.url)
    monkeypatch.setenv("PHALANX_TOKEN", server.client.headers["Authorization"].removeprefix("Bearer "))
    assert run(cli, ["postmortem", victim["id"]]) == 0
    told = capfd.readouterr().out
    assert "first cause: attempt 1 ended after" in told
    assert "computing" in told


FINDS = """(name) => {
  const context = CanvasRenderingContext2D.prototype;
  const real = context.fillText;
  const drawn = [];
  context.fillText = function (text, ...rest) { drawn.push(String(text)); return real.call(this, text, ...rest); };
  return new Promise((resolve) => {
    document.querySelector("canvas").dispatchEvent(new WheelEvent("wheel", {deltaY: 1, cancelable: true}));
    requestAnimationFrame(() => requestAnimationFrame(() => { context.fillText = real; resolve(drawn); }));
  });
}"""
"""What is written on the canvas when it is drawn anew."""


def test_the_timeline_shows_what_ran_where_and_is_moved_zoomed_and_chosen_from_by_keys(
    admin: Page, server: Server
) -> None:
    admin.open(f"{server.url}/ui/timeline")
    admin.see("attempts read")
    assert admin.run("document.querySelector('canvas').ariaLabel").endswith("in 5 rows")
    until(lambda: {"n0", "n1", "n2", "n3"} <= {*admin.run(f"({FINDS})()")}, "every node has a row", admin.text)
    admin.run("document.querySelector('canvas').focus()")
    admin.press("PageDown")
    admin.see("on 1 node", "main p[role=status]")
    admin.click("hour")
    until(lambda: "span=3600000" in admin.run("location.search"), "the address tells the span", admin.text)
    admin.click("Zoom in")
    until(lambda: "span=2250000" in admin.run("location.search"), "it is zoomed", admin.text)
    admin.run("document.querySelector('canvas').focus()")
    admin.press("PageDown")
    admin.press("Enter")
    admin.see("Where it runs")
    admin.open(f"{server.url}/ui/timeline?by=jobs&queue=research/rl")
    admin.see(" read", "main p[role=status]")
    until(lambda: any("rl" in text for text in admin.run(f"({FINDS})()")), "jobs have rows", admin.text)
    admin.open(f"{server.url}/ui/timeline?from=1&span=3600000")
    admin.see("0 attempts read")
    told = server.client.get("/timeline").raise_for_status().json()
    assert len({len(column) for column in told["bars"].values()}) == 1
    assert server.client.get("/timeline", params={"since": 9, "until": 8}).status_code == 422


def test_a_whole_rack_fails_by_one_word_and_an_unknown_one_is_refused_with_those_there_are(
    admin: Page, server: Server
) -> None:
    admin.open(f"{server.url}/ui/what-if")
    admin.see("all nodes of a rack at once, as rack:NAME")
    admin.fill("What fails", "rack:r7")
    admin.click("Compare two futures")
    admin.see("there is no rack 'r7': expected one of r0, r1", ".problem")
    admin.fill("What fails", "rack:r1, n2")
    admin.click("Compare two futures")
    admin.see("Until all is over", "[aria-label='Two futures']")
    told = server.client.post("/what-if", json={"fail": ["rack:r1"]}).raise_for_status().json()
    nodes = server.client.post("/what-if", json={"fail": ["n2", "n3"]}).raise_for_status().json()
    assert told["changed"]["mean_jct_s"] > told["base"]["mean_jct_s"]
    assert told["changed"]["makespan_s"] == pytest.approx(nodes["changed"]["makespan_s"], rel=0.01)
    assert server.client.post("/what-if", json={"fail": ["zone:z"]}).status_code == 404
    assert violations(admin) == []
    admin.forgive("404")


def test_maintenance_is_drawn_by_its_name_when_planned_and_when_over_and_listed_by_date(
    admin: Page, server: Server
) -> None:
    fans = {"name": "fans", "nodes": ["n2"], "start": "2026-01-03T00:00Z", "for": "2h"}
    cooling = {"name": "cooling", "nodes": ["n3"], "start": "2040-01-03T00:00Z", "for": "2h"}
    for windows in ([fans, cooling], [cooling]):
        body = {"maintenance": windows}
        server.client.put("/cluster", json=body).raise_for_status()
    admin.open(f"{server.url}/ui/timeline")
    admin.see("cooling", "[aria-label='Maintenance windows']")
    admin.miss("fans", "[aria-label='Maintenance windows']")
    admin.click("Show cooling")
    admin.see("maintenance cooling, ", "main p[role=status]")
    admin.see("(2 h), of 1 node: n3", "main p[role=status]")
    admin.click("6 h")
    admin.click("Show cooling")
    until(lambda: "cooling" in admin.run(f"({FINDS})()"), "it is drawn by its name", admin.text)
    assert violations(admin) == []
    # Of a window that the cluster file has no more, what took place is still told.
    began_ms = 1_767_398_400_000
    for by in ("nodes", "jobs"):
        admin.open(f"{server.url}/ui/timeline?by={by}&from={began_ms - 3_600_000}&span={4 * 3_600_000}")
        admin.see("over", "[aria-label='Maintenance windows']")
        until(lambda: "fans" in admin.run(f"({FINDS})()"), "it is drawn by its name", admin.text)
    told = server.client.get("/timeline", params={"since": began_ms, "until": began_ms + 1}).json()["maintenance"]
    assert [each["name"] for each in told] == ["fans", "cooling"]


def test_two_futures_are_compared_and_a_policy_that_there_is_not_is_refused(admin: Page, server: Server) -> None:
    admin.open(f"{server.url}/ui/what-if")
    admin.fill("Nodes added", "4")
    admin.fill("A job file, or nothing", "name: asked\nqueue: vision\ngpus: 4\nduration: 30m\ncommand: 'true'\n")
    admin.click("Compare two futures")
    admin.see("Until all is over", "[aria-label='Two futures']")
    admin.see("asked", "[aria-label='The jobs that were asked about']")
    for title in ("Pending jobs", "GPUs held"):
        picture = admin.run(f"document.querySelector('[aria-label^=\"{title}, in two futures\"]').ariaLabel")
        assert "As it is: " in picture
        assert "What if: " in picture
    assert violations(admin) == []
    admin.fill("Another policy", "nothing-is-called-so")
    admin.click("Compare two futures")
    admin.see("nothing-is-called-so", ".problem")
    admin.forgive("422")
    assert len(server.client.get("/nodes").json()["items"]) == 4, "nothing was changed"


def test_made_up_jobs_run_in_the_queues_of_this_cluster_and_that_is_told(admin: Page, server: Server) -> None:
    admin.open(f"{server.url}/ui/studies")
    admin.click("Made-up jobs")
    admin.fill("How many jobs", "40")
    admin.click("Begin")
    admin.see("All studies")
    eventually(lambda: all(each["ended_ms"] for each in server.client.get("/studies").json()["items"]))
    admin.see("jobs of queues that the cluster does not have ran in its own: q0 in ", ".note")
    admin.see("mean JCT", "table")


def test_zooming_by_button_keeps_now_in_sight(admin: Page, server: Server) -> None:
    admin.open(f"{server.url}/ui/timeline?span=86400000")
    admin.see("attempts read")
    for _ in range(8):
        admin.click("Zoom in")
    until(
        lambda: int(admin.run("new URLSearchParams(location.search).get('span')") or 0) < 7_200_000, "it is zoomed in"
    )
    found = admin.run("['from', 'span'].map((key) => Number(new URLSearchParams(location.search).get(key)))")
    first_ms, last_ms = found[0], sum(found)
    assert first_ms < admin.run("Date.now()") < last_ms
    admin.see("attempts read", "main [role=status]")
    admin.miss("nothing ran", "main [role=status]")
