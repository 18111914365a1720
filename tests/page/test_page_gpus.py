"""Single GPUs are drained on the page, in Chromium, against a real server with real jobs."""

from __future__ import annotations

import pytest
from axe import violations
from running import Server

from phalanx.bench.page.tab import Page

pytestmark = pytest.mark.needs("chromium")


def test_an_operator_drains_one_gpu_after_seeing_what_runs_on_it(admin: Page, server: Server) -> None:
    jobs = [server.submit(command="sleep 600", gpus=4, duration="1h", name=f"half-{at}") for at in range(8)]
    nodes = {job["id"]: server.wait(job["id"], "running")["nodes"] for job in jobs}
    on = [job for job in jobs if nodes[job["id"]] == ["n0"]]
    holds = {job["id"]: server.client.get("/devices/n0/3").json()["jobs"][0]["id"] == job["id"] for job in on}
    admin.open(f"{server.url}/ui/nodes/n0")
    admin.click("Drain GPU 3")
    admin.see("Drain GPU 3 of n0?", "dialog")
    admin.see("1 job on it.", "dialog")
    admin.see("What runs there goes on to its end", "dialog")
    admin.see("a job that asks for all 8 of a node does not start there", "dialog")
    shown = admin.run("document.querySelector('dialog tbody').innerText")
    assert [job["name"] in shown for job in on] == [holds[job["id"]] for job in on]
    assert violations(admin) == []
    admin.fill("Why, for others to read", "loose riser")
    admin.click("Drain")
    admin.see("GPU 3 of n0 takes no new work.")
    admin.see("GPU 3 draining: loose riser")
    assert server.client.get("/nodes/n0").json()["gpus_out"] == [{"gpu": 3, "health": "draining"}]
    assert [server.job(job["id"])["state"] for job in jobs] == ["running"] * 8, "nothing was stopped"

    admin.click("Drain GPU 2")
    admin.see("1 job on it.", "dialog")
    admin.click("Evict its jobs: have them start elsewhere")
    admin.click("Drain and evict 1 job")
    admin.see("GPU 2 of n0 takes no new work; 1 job evicted.")
    moved = next(job["id"] for job in on if holds[job["id"]])
    server.wait(moved, "waiting")
    assert [server.job(job["id"])["state"] for job in on if job["id"] != moved] == ["running"], "the other half stays"

    for gpu in (2, 3):
        admin.click(f"Undrain GPU {gpu}")
        admin.see(f"Let GPU {gpu} of n0 take work again?", "dialog")
        admin.click("Undrain")
        admin.see(f"GPU {gpu} of n0 takes work again.")
    assert server.client.get("/nodes/n0").json()["gpus_out"] == []
    for job in jobs:
        server.client.post(f"/jobs/{job['id']}:cancel")
        server.wait(job["id"], "cancelled")


def test_who_is_no_operator_of_the_cluster_is_offered_no_drain_of_a_gpu(page: Page, server: Server) -> None:
    server.client.post("/users", json={"name": "reader"}).raise_for_status()
    server.client.put("/users/reader/roles/default", json={"role": "operator"}).raise_for_status()
    asked = {"name": "t", "user": "reader", "scopes": ["read", "write"]}
    page.open(server.url)
    page.log_in(server.client.post("/tokens", json=asked).json()["token"])
    page.open(f"{server.url}/ui/nodes/n0")
    page.see("The last day")
    page.see("healthy", ".card table")
    assert (
        page.run("[...document.querySelectorAll('main button')].filter((each) => /drain/i.test(each.innerText)).length")
        == 0
    )
