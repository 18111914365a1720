"""The page as users go through it, in Chromium, against a real server with real jobs."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest
from running import Server, eventually

from phalanx.bench.page.browser import Browser
from phalanx.bench.page.tab import Page

pytestmark = pytest.mark.needs("chromium")

HOSTILE = {
    "markup": "<img src=x onerror=\"document.title='owned'\">",
    "right_to_left": "\u05e9\u05dc\u05d5\u05dd abc \u0645\u0631\u062d\u0628\u0627",
    "longest": "x" * 253,
}


def test_a_first_visit_leads_to_a_finished_job_and_its_output(page: Page, server: Server) -> None:
    page.open(server.url)
    page.see("Log in")
    page.log_in((server.data / "admin.token").read_text().strip())
    page.see("32")
    page.see("idle")
    page.click("Submit a job")
    page.fill("Job file", "")
    page.fill("Name", "first")
    page.fill("Command", "sh -c 'echo hello from the job; until [ -e /proc/self/nothing ]; do sleep 0.2; done'")
    page.fill("GPUs of each task", "2")
    page.see("It would start now: 2 GPUs on 1 node")
    assert "gpus: 2" in page.run("document.querySelector('textarea').value")
    page.click("[.head button.main]")
    page.see("was submitted")
    page.see("running")
    page.click("Logs")
    page.see("hello from the job")
    page.click("Cancel…")
    page.see("frees 2 GPUs")
    page.click("Cancel")
    page.see("cancelled", "h1 + p")
    page.see("The attempt has ended")
    assert {urlsplit(url).netloc for url in page.fetched} - {urlsplit(server.url).netloc} <= {""}


def test_an_error_is_shown_at_its_line_and_form_and_file_stay_in_step(admin: Page, server: Server) -> None:
    admin.open(f"{server.url}/ui/submit")
    admin.fill("Job file", "# mine\nname: wrong\ngpus: 1\nqeue: x\ncommand: [python, a b.py]\n")
    admin.see("Line 4:")
    admin.see("unknown key, did you mean 'queue'?")
    assert admin.run("document.querySelector('.editor-numbers .wrong').innerText") == "4"
    assert admin.run("document.querySelector('#job-command').value") == "python 'a b.py'"
    admin.fill("Job file", "# mine\nname: wrong\ngpus: 1\ncommand: [python, a b.py]\n")
    admin.fill("Tasks", "3")
    admin.fill("GPUs of each task", "4")
    written = admin.run("document.querySelector('textarea').value")
    assert written == (
        "# mine\nname: wrong\ncommand: [python, a b.py]\ngang:\n  - {role: worker, replicas: 3, gpus: 4}\n"
    )
    admin.see("12 GPUs")
    admin.forgive("422")


def test_an_empty_file_is_not_planned_and_the_page_says_what_to_do(admin: Page, server: Server) -> None:
    admin.open(f"{server.url}/ui/submit")
    admin.see("It would start now")
    admin.fill("Job file", "")
    admin.see("There is no job yet: write one, or start from a template.")


def test_a_job_that_waits_is_started_by_the_change_that_why_offers(admin: Page, server: Server) -> None:
    large = server.submit(command="sleep 600", gang=[{"replicas": 2, "gpus": 8}], duration="1h", preemptible=False)
    server.wait(large["id"], "running")
    waits = server.submit(command="sleep 600", gang=[{"replicas": 3, "gpus": 8}], duration="1h", name="waits")
    eventually(lambda: server.job(waits["id"])["reason"])
    admin.open(f"{server.url}/ui/jobs/{waits['id']}?tab=why")
    admin.see("It needs 24 GPUs and 16 are free")
    admin.see("with 16 GPUs (2 of worker instead of 3)")
    admin.click("Resize it…")
    admin.see("It would start now: 16 GPUs on 2 nodes")
    admin.click("Resize it")
    admin.see("It is running")
    assert server.job(waits["id"])["gpus"] == 16
    for job in (large, waits):
        server.client.post(f"/jobs/{job['id']}:cancel")
        server.wait(job["id"], "cancelled")


def test_an_operator_drains_a_node_after_seeing_what_runs_there(admin: Page, server: Server) -> None:
    job = server.submit(command="sleep 600", gpus=8, duration="1h", name="stays")
    (node,) = server.wait(job["id"], "running")["nodes"]
    admin.open(f"{server.url}/ui/nodes")
    admin.click(f"Drain {node}")
    admin.see("1 job on 8 GPUs.")
    admin.see("stays")
    admin.fill("Why, for others to read", "fan")
    admin.click("Drain")
    admin.see("takes no new work")
    admin.see("fan")
    assert server.client.get(f"/nodes/{node}").json()["health"] == "draining"
    admin.click(f"Undrain {node}")
    admin.click("Undrain")
    admin.see("takes work again")
    server.client.post(f"/jobs/{job['id']}:cancel")
    server.wait(job["id"], "cancelled")


def test_draining_with_eviction_shows_what_is_lost_and_moves_the_jobs(admin: Page, server: Server) -> None:
    job = server.submit(command="sleep 600", gpus=8, duration="1h", name="moves")
    (node,) = server.wait(job["id"], "running")["nodes"]
    admin.open(f"{server.url}/ui/nodes/{node}")
    admin.click("Drain…")
    admin.see("What runs there goes on to its end")
    admin.click("Evict its jobs: have them start elsewhere")
    admin.see("since it last started; what it has not saved is lost. It has not reported a saved step.")
    admin.click("Drain and evict 1 job")
    admin.see("takes no new work; 1 job evicted.")
    eventually(lambda: server.job(job["id"])["nodes"] not in ([], [node]))
    server.client.post(f"/nodes/{node}:undrain")
    server.client.post(f"/jobs/{job['id']}:cancel")
    server.wait(job["id"], "cancelled")


def test_a_job_is_suspended_resumed_and_requeued_after_a_preview(admin: Page, server: Server) -> None:
    job = server.submit(command="sleep 600", gpus=4, duration="1h", name="paused")
    server.wait(job["id"], "running")
    admin.open(f"{server.url}/ui/jobs/{job['id']}")
    admin.click("Suspend…")
    admin.see("does not start again until it is resumed")
    admin.see("It has not said that it saved any work")
    admin.click("Suspend")
    admin.see("is suspended")
    admin.see("held", "h1 + p")
    assert server.wait(job["id"], "waiting")["held"] is True
    admin.click("Resume…")
    admin.click("Resume")
    admin.see("running", "h1 + p")
    admin.click("Requeue…")
    admin.see("frees 4 GPUs")
    admin.click("Requeue")
    admin.see("is stopped and pending again")
    eventually(lambda: (seen := server.job(job["id"]))["attempts"] == 3 and seen["state"] == "running")
    server.client.post(f"/jobs/{job['id']}:cancel")
    server.wait(job["id"], "cancelled")


def test_a_plan_tells_what_its_preemption_costs_and_whether_the_job_is_on_time(admin: Page, server: Server) -> None:
    low = server.submit(command="sleep 600", gang=[{"replicas": 4, "gpus": 8}], duration="1h", name="low", priority=-5)
    server.wait(low["id"], "running")
    admin.open(f"{server.url}/ui/submit")
    admin.fill("Job file", "name: due\ngpus: 8\npriority: 5\nduration: 2h\ndeadline: +1h\ncommand: sleep 1\n")
    admin.see("1 job would be preempted for it")
    admin.see("of work lost")
    admin.see(f"job {low['id']} (32 GPUs, queue default, loses 0.")
    admin.see("it cannot meet its deadline")
    server.client.post(f"/jobs/{low['id']}:cancel")
    server.wait(low["id"], "cancelled")


REPORT = """
import json, os, time, urllib.request
body = json.dumps({"step": 1234, "metrics": {"loss": 2.5}}).encode()
headers = {"Authorization": "Bearer " + os.environ["PHALANX_PROGRESS_TOKEN"], "Content-Type": "application/json"}
urllib.request.urlopen(urllib.request.Request(os.environ["PHALANX_PROGRESS_URL"], body, headers))
time.sleep(600)
"""


def test_the_last_report_has_only_what_the_job_reported(admin: Page, server: Server) -> None:
    job = server.submit(command=["sh", "-c", 'exec python3 -c "$REPORT"'], env={"REPORT": REPORT}, duration="1h")
    admin.open(f"{server.url}/ui/jobs/{job['id']}?tab=metrics")
    admin.see("1,234\nstep")
    admin.see("2.5\nloss")
    assert "samples/s" not in admin.text()
    server.client.post(f"/jobs/{job['id']}:cancel")
    server.wait(job["id"], "cancelled")


def test_metrics_appear_when_the_first_figures_come(admin: Page, server: Server) -> None:
    job = server.submit(command="sleep 600", gpus=1, name="measured")
    server.wait(job["id"], "running")
    admin.open(f"{server.url}/ui/jobs/{job['id']}?tab=metrics")
    admin.see("GPUs", "#tab-panel h2")
    server.client.post(f"/jobs/{job['id']}:cancel")
    server.wait(job["id"], "cancelled")


def test_selected_jobs_are_cancelled_together_after_a_preview(admin: Page, server: Server) -> None:
    ids = [server.submit(command="sleep 600", gpus=1, name="bulk")["id"] for _ in range(3)]
    for job in ids:
        server.wait(job, "running")
    admin.open(f"{server.url}/ui/jobs?name=bulk&state=waiting,starting,running,suspended,stopping")
    for job in ids[:2]:
        admin.click(f"Select job {job}")
    admin.see("2 jobs selected")
    admin.click("Cancel…")
    admin.see("2 running jobs would be stopped, which frees 2 GPUs")
    admin.click("Cancel: 2 jobs")
    admin.see("\n1 job")
    admin.see("2 of 2 done")
    admin.click("Close")
    assert server.job(ids[2])["state"] == "running"
    server.client.post(f"/jobs/{ids[2]}:cancel")
    admin.see("No job matches these filters")


@pytest.mark.parametrize("name", HOSTILE.values(), ids=HOSTILE)
def test_names_of_jobs_are_text_whatever_they_say(admin: Page, server: Server, name: str) -> None:
    job = server.submit(name=name, command="sh -c 'echo \"<script>alert(1)</script>\"'", gpus=1)
    server.wait(job["id"], "succeeded")
    seen = {
        "/ui/jobs": name[:20],
        f"/ui/jobs/{job['id']}": name[:20],
        f"/ui/jobs/{job['id']}?tab=logs": "<script>alert(1)</script>",
        f"/ui/submit?from={job['id']}": "It would start now",
    }
    for path, text in seen.items():
        admin.open(server.url + path)
        admin.see(text)
        assert "owned" not in admin.run("document.title")
        assert admin.run("document.querySelectorAll('img[src=x], #page script').length") == 0
        assert admin.run("document.documentElement.scrollWidth <= innerWidth")
    assert admin.run("document.querySelector('#job-name').value") == name


def test_a_log_line_of_5_mb_is_cut_and_the_page_goes_on(admin: Page, server: Server) -> None:
    script = "import sys; sys.stdout.write('y' * 5_000_000 + chr(10) + 'after it' + chr(10))"
    job = server.submit(command=["python3", "-c", script])
    server.wait(job["id"], "succeeded")
    admin.open(f"{server.url}/ui/jobs/{job['id']}?tab=logs")
    admin.see("after it")
    assert admin.run("document.querySelector('.log').innerText.length") < 100_000


def test_a_viewer_is_offered_nothing_that_changes_and_told_what_a_member_would_need(page: Page, server: Server) -> None:
    server.client.post("/users", json={"name": "eve", "password": "look but do not touch"})
    server.client.put("/users/eve/roles/-", json={"role": "viewer"})
    job = server.submit(command="sleep 600", gpus=1, name="not-eves")
    page.open(f"{server.url}/ui/jobs/{job['id']}")
    page.click("a password")
    page.fill("User name", "eve")
    page.fill("Password", "look but do not touch")
    page.press("Enter")
    page.see("not-eves")
    offered = page.run("[...document.querySelectorAll('a, button')].map((each) => each.innerText)")
    assert not {"Submit", "Cancel…", "Hold…", "Clone and edit"} & set(offered)
    page.open(f"{server.url}/ui/submit")
    page.see("Your role does not let you submit jobs")
    page.open(f"{server.url}/ui/nodes")
    page.see("healthy")
    page.miss("Drain…")
    server.client.post(f"/jobs/{job['id']}:cancel")


def test_what_is_not_there_is_said_with_what_to_do(page: Page, server: Server) -> None:
    page.open(server.url)
    page.log_in((server.data / "admin.token").read_text().strip())
    page.open(f"{server.url}/ui/jobs/99999")
    page.see("There is no such thing.")
    page.open(f"{server.url}/ui/nowhere")
    page.see("There is no view at this address")
    page.forgive("404")


def test_tabs_share_one_stream_and_hear_of_a_job_that_another_user_submits(
    admin: Page, browser: Browser, server: Server
) -> None:
    other = browser.page()
    for tab in (admin, other):
        tab.open(f"{server.url}/ui/jobs?name=news")
        tab.see("No job matches these filters")
        tab.see("live")
    job = server.submit(name="news", command="true")
    for tab in (admin, other):
        tab.see(job["id"], ".grid-body")
    assert sum("/api/v1/events" in url for url in admin.fetched + other.fetched) == 0, "the worker has the stream"
    other.leave()


def test_logging_out_ends_the_session_on_the_server(admin: Page, server: Server) -> None:
    (cookie,) = admin.call("Network.getCookies", urls=[server.url])["cookies"]
    assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
    admin.click("Log out")
    admin.see("Log in")
    session = server.as_user(cookie["value"]).get("/me")
    assert session.status_code == 401
