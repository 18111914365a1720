"""A node of a real server on which jobs fail is found, takes no more of them, and comes back once it is well."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from running import Server, eventually

SICK = 'test "$PHALANX_NODE" != "{node}" || test -e {repaired}'


def node(server: Server, name: str) -> dict[str, Any]:
    items = server.client.get("/nodes").raise_for_status().json()["items"]
    return next(dict(each) for each in items if each["name"] == name)


def test_a_node_that_fails_jobs_is_found_its_jobs_go_elsewhere_and_it_comes_back(tmp_path: Path, folder: Path) -> None:
    options = ("--simulate", "--nodes", "6", "--gpus", "2", "--quarantine", "0.2", "--quarantine-time", "2s")
    server = Server(folder, *options).start()
    sick, repaired = server.client.get("/nodes").json()["items"][0]["name"], tmp_path / "repaired"
    command = ["sh", "-c", SICK.format(node=sick, repaired=repaired)]

    def submit(count: int) -> list[str]:
        jobs = [server.submit(gpus=2, command=command, retry={"limit": 8}) for _ in range(count)]
        return [str(job["id"]) for job in jobs]

    first = submit(18)
    found = eventually(lambda: at if (at := node(server, sick))["health"] == "suspect" else None)
    assert "jobs failed there" in found["reason"]
    for job in first:
        assert server.wait(job, "succeeded", "failed")["state"] == "succeeded", "its retries went elsewhere"
    repaired.touch()
    # It is let out by and by; then whatever ends there first, and well, clears it.
    eventually(lambda: node(server, sick)["reason"].startswith("quarantine: over") or None)
    for job in submit(12):
        server.wait(job, "succeeded")
    assert node(server, sick)["health"] == "healthy"
    server.stop()


def test_a_canary_brings_a_node_back_and_no_other_job_runs_there_before(tmp_path: Path, folder: Path) -> None:
    canary, repaired = tmp_path / "canary.yaml", tmp_path / "repaired"
    canary.write_text(f"command: [sh, -c, 'test -e {repaired}']\ngpus: 2\n")
    options = ("--simulate", "--nodes", "6", "--gpus", "2", "--quarantine", "0.2", "--quarantine-time", "1s")
    server = Server(folder, *options, "--canary", str(canary)).start()
    sick = server.client.get("/nodes").json()["items"][0]["name"]
    command = ["sh", "-c", SICK.format(node=sick, repaired=repaired)]
    jobs = [server.submit(gpus=2, command=command, retry={"limit": 8}) for _ in range(18)]
    # Its first canary fails as all jobs do there, so that it stays in quarantine.
    eventually(lambda: "its canary, job" in node(server, sick)["reason"] or None)
    assert node(server, sick)["health"] == "suspect"
    for job in jobs:
        assert server.wait(str(job["id"]), "succeeded", "failed")["state"] == "succeeded"
    repaired.touch()
    found = eventually(lambda: at if (at := node(server, sick))["health"] == "healthy" else None)
    assert found["reason"].startswith("quarantine: over, its canary, job ")
    assert found["reason"].endswith(" has succeeded")
    ran = [each for each in server.client.get("/jobs").json()["items"] if each["name"] == f"canary-{sick}"]
    assert {each["state"] for each in ran} == {"failed", "succeeded"}
    assert {place for each in ran for place in each["nodes"]} <= {sick}
    server.stop()
