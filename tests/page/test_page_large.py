"""Every view on a cluster of 10,000 GPUs with 20,000 jobs, in Chromium. `phalanx bench page` says how fast they are."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from running import Server, eventually

from phalanx.bench.page.tab import Page

pytestmark = [pytest.mark.needs("chromium"), pytest.mark.long]

CLUSTER = """
nodes: [{count: 1250, gpus: 8, gpu_type: H100, rack: {nodes: 16}, pod: {nodes: 128}}]
policy: fifo:skip=true
"""
RUNNING, LATER, BATCH = 1_000, 19_000, 5_000
VIEWS = {
    "/ui/overview": "GPUs on 1,250 nodes",
    "/ui/map?colour=job": "Map",
    "/ui/jobs": "jobs loaded, more as you scroll",
    "/ui/jobs/1": "Where it runs",
    "/ui/submit": "What would happen now",
    "/ui/nodes": "1,250 nodes, 10,000 GPUs, 8,000 used",
    "/ui/queues": "1 queue",
    "/ui/timeline?by=jobs": "1,000 attempts read",
    "/ui/timeline?span=3600000": "1,000 attempts read",
    "/ui/events": "100 records",
    "/ui/scheduler": "99 of 100",
    "/ui/scheduler?tab=receipts": "No submitter was told a start",
    "/ui/accounts": "This session may",
}
"""Why is not among them: with so many jobs the planner may take longer than a minute for its answer."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server whose jobs run nothing: a thousand hold their GPUs, the others begin later."""
    folder = tmp_path_factory.mktemp("large")
    (folder / "cluster.yaml").write_text(CLUSTER)
    server = Server(folder / "data", "--backend", "rehearsal", "--cluster", str(folder / "cluster.yaml")).start()
    held = {"command": "true", "gpus": 8, "duration": "100h", "name": "held"}
    server.client.post("/jobs:batch", json={"jobs": [held] * RUNNING}).raise_for_status()
    later = {"command": "true", "gpus": 8, "begin": "+10h", "name": "later"}
    for first in range(0, LATER, BATCH):
        server.client.post("/jobs:batch", json={"jobs": [later] * min(BATCH, LATER - first)}).raise_for_status()
    eventually(lambda: server.client.get("/cluster").json()["gpus_used"] == 8 * RUNNING)
    yield server
    server.stop()


def test_every_view_shows_a_large_cluster(admin: Page, server: Server) -> None:
    for path, text in VIEWS.items():
        admin.open(f"{server.url}{path}")
        admin.see(text)
        admin.miss("Loading…")
    assert admin.run("document.querySelectorAll('*').length") < 3_000


def test_a_thousand_jobs_are_scrolled_to_their_end_with_few_rows_in_the_document(admin: Page, server: Server) -> None:
    admin.open(f"{server.url}/ui/jobs?order=oldest&name=held")
    admin.see("jobs loaded")
    while not admin.run("/^1,000 jobs$/m.test(document.body.innerText)"):
        admin.run("document.querySelector('.grid-body').scrollTop = 1e9")
    admin.run("document.querySelector('.grid-body').scrollTop = 1e9")
    admin.see("1000", ".grid-body")
    assert admin.run("document.querySelectorAll('.grid-row').length") < 60
