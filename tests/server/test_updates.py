"""Pending jobs that are changed by their users: what is taken, and what is refused before anything changes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from running import Server

CLUSTER = """
name: lab
policy: fifo
nodes:
- {name: n0, gpus: 8}
queues:
- {name: red, job_priority: {normal: 0, members: 10}}
- {name: blue, job_priority: {normal: 0, members: 10}}
- {name: tiny, limit: {gpus: 1}}
"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Eight GPUs, all taken by job 1."""
    folder = tmp_path_factory.mktemp("lab")
    Path(folder, "cluster.yaml").write_text(CLUSTER)
    options = ("--backend", "rehearsal", "--cluster", str(folder / "cluster.yaml"))
    server = Server(folder / "data", *options).start()
    server.wait(server.submit(gpus=8, queue="red")["id"], "running")
    yield server
    server.stop()


@pytest.fixture(scope="module")
def ada(lab: Server) -> httpx2.Client:
    """A member of red and blue."""
    lab.client.post("/users", json={"name": "ada"}).raise_for_status()
    for queue in ("red", "blue"):
        lab.client.put(f"/users/ada/roles/{queue}", json={"role": "member"}).raise_for_status()
    token = lab.client.post("/tokens", json={"user": "ada", "name": "t"}).raise_for_status().json()["token"]
    return lab.as_user(token)


def submit(client: httpx2.Client, **job: Any) -> str:
    made = client.post("/jobs", json={"command": "true", "gpus": 1, "queue": "red", **job}).raise_for_status().json()
    return str(made["id"])


def update(client: httpx2.Client, job: str, **changes: Any) -> Any:
    return client.post(f"/jobs/{job}:update", json=changes)


def test_priority_queue_and_times_of_a_pending_job_are_changed_and_audited(lab: Server, ada: httpx2.Client) -> None:
    job = submit(ada, duration="1h")
    answer = update(ada, job, priority=7, queue="blue", duration="none", max_run="2h", begin="+1h", deadline="+9h")
    told = answer.raise_for_status().json()
    assert (told["priority"], told["queue"]) == (7, "blue")
    spec = ada.get(f"/jobs/{job}").json()["spec"]
    assert (spec["duration_ms"], spec["max_run_ms"]) == (None, 7_200_000)
    assert spec["begin_ms"] < spec["deadline_ms"]
    [audited] = [each for each in lab.client.get("/audit").json()["items"] if each["verb"] == "update job"]
    assert (audited["user"], audited["target"]) == ("ada", job)
    assert audited["detail"].startswith("priority 7, queue blue, duration_ms none, max_run_ms 7200000")


def test_all_pending_members_of_an_array_are_changed_at_once(lab: Server, ada: httpx2.Client) -> None:
    array = submit(ada, array="0-2").partition(".")[0]
    ada.post(f"/jobs/{array}.1:cancel").raise_for_status()
    assert update(ada, array, priority=3).raise_for_status().json()["members"] == [f"{array}.0", f"{array}.2"]
    assert [each["priority"] for each in ada.get("/jobs", params={"array_of": array}).json()["items"]] == [3, 0, 3]


@pytest.mark.parametrize(
    ("changes", "status", "told"),
    [
        ({}, 422, "at least one of priority, queue"),
        ({"priority": "high"}, 422, "priority"),
        ({"priority": 10_000_000}, 422, "priority: expected -1000000 to 1000000, got 10000000"),
        ({"priority": 11}, 403, "priority 11 is above 10, the highest that the role member may give"),
        ({"queue": "nope"}, 403, "you may not move job"),
        ({"queue": "red//x"}, 422, "queue"),
        ({"max_run": "4 parsecs"}, 422, "max_run: expected a time such as 90s, 4h or 2d, or none, got '4 parsecs'"),
        ({"duration": "-1h"}, 422, "duration: expected a time such as 90s"),
        ({"begin": "tomorrow"}, 422, "begin: expected a time such as +2h or 2030-01-31T08:00Z, or none"),
        ({"begin": "+2h", "deadline": "+1h"}, 422, "expected a deadline after its begin time"),
        ({"gpus": 2}, 422, "gpus"),
    ],
)
def test_what_cannot_be_is_refused_and_changes_nothing(
    ada: httpx2.Client, changes: dict[str, Any], status: int, told: str
) -> None:
    job = submit(ada)
    before = ada.get(f"/jobs/{job}").json()["spec"]
    answer = update(ada, job, **changes)
    assert (answer.status_code, told in answer.text) == (status, True), answer.text
    assert ada.get(f"/jobs/{job}").json()["spec"] == before
    ada.post(f"/jobs/{job}:cancel").raise_for_status()


def test_a_queue_that_could_never_hold_the_job_or_is_not_there_is_refused(lab: Server) -> None:
    job = submit(lab.client, gpus=2)
    assert "can have 1 at most" in update(lab.client, job, queue="tiny").json()["message"]
    refused = update(lab.client, job, queue="nope")
    assert (refused.status_code, "nope" in refused.text) == (409, True), refused.text


def test_jobs_of_others_jobs_that_run_are_over_or_have_changed_since_are_refused(
    lab: Server, ada: httpx2.Client
) -> None:
    foreign = submit(lab.client)
    assert update(ada, foreign, priority=1).status_code == 403
    assert update(ada, "99999", priority=1).status_code == 404
    running = update(lab.client, "1", priority=1)
    assert (running.status_code, running.json()["message"]) == (
        409,
        "job 1 is running: only a pending job can be updated",
    )
    lab.client.post(f"/jobs/{foreign}:cancel").raise_for_status()
    assert "was cancelled: only a pending job" in update(lab.client, foreign, priority=1).json()["message"]
    stale = lab.client.post(f"/jobs/{submit(lab.client)}:update", json={"priority": 1}, headers={"If-Match": '"0"'})
    assert stale.status_code == 412
