"""The map with a selected job, in Chromium: what it holds, claims and would get."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from running import Server

from phalanx.bench.page.tab import Page

pytestmark = pytest.mark.needs("chromium")

POLICY = "priority:backfill=easy"
STUBBORN = ["sh", "-c", "trap '' TERM; while true; do sleep 1; done"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that preempts, and reserves nodes for the first job that is pending."""
    folder = tmp_path_factory.mktemp("claims")
    folder.chmod(0o777)
    server = Server(folder / "data", "--simulate", "--nodes", "2", "--gpus", "4", "--policy", POLICY).start()
    yield server
    server.stop()


def test_the_map_shows_what_a_selected_job_holds_claims_and_would_get(admin: Page, server: Server) -> None:
    holds = server.submit(name="holds", command=STUBBORN, gpus=4, duration="1h", grace="12s")
    server.wait(holds["id"], "running")
    waits = server.submit(name="waits", command="sleep 60", gang=[{"replicas": 2, "gpus": 4}], duration="1h")
    admin.open(f"{server.url}/ui/jobs/{holds['id']}")
    admin.click("Show it on the map")
    admin.see("Holds\n4 GPUs", "aside")
    admin.open(f"{server.url}/ui/jobs/{waits['id']}")
    admin.click("what it would get")
    admin.see("Would get", "aside")
    for node in ("n0", "n1"):
        admin.see(node, "aside .facts")
    admin.click("Show all jobs")
    admin.miss("Selected job")
    assert "job=" not in admin.run("location.search")
    server.client.post(f"/jobs/{waits['id']}:cancel")
    # Its victim is slow to leave.
    claims = server.submit(name="claims", command="sleep 60", gang=[{"replicas": 2, "gpus": 4}], priority=9)
    admin.open(f"{server.url}/ui/map?job={claims['id']}")
    admin.see("Claims\n8 GPUs, outlined", "aside")
    server.client.post(f"/jobs/{claims['id']}:cancel")
    server.client.post(f"/jobs/{holds['id']}:cancel")
    server.wait(holds["id"], "cancelled")
