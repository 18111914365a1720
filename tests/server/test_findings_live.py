"""What launchers find reaches the server, is shown where people look, and counts against the node."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from running import Server, eventually
from test_save import report, trainer_of
from trainings import CAN_TRAIN

from job_python import JOB_PYTHON
from phalanx.cli.main import cli, run

PROGRAM = """
import os, sys, time
from phalanx.train.launch.progress import beat

how, end = sys.argv[1:]
is_ill = os.environ["RANK"] == "1"
step = 0
while not os.path.exists(end):
    step += 1
    if how == "hangs" and is_ill and step == 5:
        time.sleep(100_000)
    beat(step, 2.0 if is_ill and how == "slow" else 0.1)
    time.sleep(0.05)
"""
"""A loop that only calls `beat`; its second rank is slow, or hangs."""


@pytest.fixture
def job(rehearsal: Server) -> Iterator[str]:
    """A job of two tasks that runs for as long as the test."""
    submitted: str = rehearsal.submit(gang=[{"replicas": 2, "gpus": 4}])["id"]
    rehearsal.wait(submitted, "running")
    yield submitted
    rehearsal.client.post(f"/jobs/{submitted}:cancel")


def found_by(server: Server, job: str) -> list[dict[str, Any]]:
    tries = server.client.get(f"/jobs/{job}/attempts").raise_for_status().json()["items"]
    return [each for attempt in tries for each in attempt["findings"]]


SLOW = {"kind": "slow", "task": 1, "rank": 5, "local_rank": 1, "text": "it computes long"}


def test_a_finding_is_shown_with_the_attempt_the_job_and_the_node_and_leaves_the_progress(
    rehearsal: Server, job: str
) -> None:
    trainer = trainer_of(rehearsal, job)
    report(trainer, job, 10, 5)
    said = rehearsal.job(job)["progress"]
    trainer.post(f"/jobs/{job}/progress", json={"findings": [SLOW]}).raise_for_status()
    slot = rehearsal.job(job)["attempt"]["slots"][1]
    [found] = found_by(rehearsal, job)
    wanted = {"kind": "slow", "task": 1, "rank": 5, "device": slot["devices"][1], "text": "it computes long"}
    assert {**found, "at_ms": 0} == {"at_ms": 0, "job": job, "attempt": 1, "node": slot["node"], **wanted}
    assert rehearsal.job(job)["progress"] == said
    words = f"rank 5 on {slot['node']}, GPU {slot['devices'][1]} is slow: it computes long"
    assert rehearsal.job(job)["found"] == words
    assert rehearsal.client.get(f"/jobs/{job}/why").json()["found"] == words
    on_node = rehearsal.client.get(f"/nodes/{slot['node']}").raise_for_status().json()["findings"]
    assert found in on_node


def test_why_and_job_print_what_was_found(
    rehearsal: Server, job: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    trainer_of(rehearsal, job).post(f"/jobs/{job}/progress", json={"findings": [SLOW]}).raise_for_status()
    monkeypatch.setenv("PHALANX_ADDR", rehearsal.url)
    monkeypatch.setenv("PHALANX_CONFIG", str(tmp_path / "config.yaml"))
    monkeypatch.setenv("PHALANX_TOKEN", rehearsal.client.headers["Authorization"].removeprefix("Bearer "))
    for verb in ("why", "job"):
        assert run(cli, [verb, job]) == 0
        assert "is slow: it computes long" in " ".join(capsys.readouterr().out.split())


def test_an_attempt_speaks_of_its_own_tasks_only_briefly_and_seldom(rehearsal: Server, job: str) -> None:
    trainer = trainer_of(rehearsal, job)

    def status(*findings: dict[str, Any]) -> int:
        return trainer.post(f"/jobs/{job}/progress", json={"findings": list(findings)}).status_code

    assert status({**SLOW, "task": 2}) == 422
    assert status({**SLOW, "node": "n3"}) == 422
    assert status({**SLOW, "text": "x" * 501}) == 422
    assert status({**SLOW, "kind": "haunted"}) == 422
    assert status(*[SLOW] * 9) == 422
    assert not found_by(rehearsal, job)
    other = rehearsal.submit(gpus=1)["id"]
    assert trainer.post(f"/jobs/{other}/progress", json={"findings": [SLOW]}).status_code == 403
    rehearsal.client.post(f"/jobs/{other}:cancel").raise_for_status()
    for _ in range(20):
        assert status(SLOW) == 200
    assert len(found_by(rehearsal, job)) == 1


def test_findings_of_jobs_that_a_user_may_not_see_are_not_shown_on_a_node(rehearsal: Server, job: str) -> None:
    trainer_of(rehearsal, job).post(f"/jobs/{job}/progress", json={"findings": [SLOW]}).raise_for_status()
    node = rehearsal.job(job)["attempt"]["slots"][1]["node"]
    rehearsal.client.post("/users", json={"name": "mallory"}).raise_for_status()
    rehearsal.client.put("/users/mallory/roles/apart", json={"role": "viewer"}).raise_for_status()
    body = {"name": "test", "user": "mallory", "scopes": ["read"]}
    made = rehearsal.client.post("/tokens", json=body).raise_for_status().json()
    seen = rehearsal.as_user(made["token"]).get(f"/nodes/{node}").raise_for_status().json()
    assert seen["findings"] == []


@pytest.mark.skipif(not CAN_TRAIN, reason="jobs cannot run the Python that has phalanx")
def test_a_node_on_which_the_ranks_of_job_after_job_are_slow_or_hang_takes_no_more_work(
    tmp_path: Path, folder: Path
) -> None:
    program, end = tmp_path / "loop.py", tmp_path / "end"
    program.write_text(PROGRAM)
    launch = [JOB_PYTHON, "-m", "phalanx", "launch", "--hang-timeout", "3", "--max-restarts", "0", "--", JOB_PYTHON]
    options = ("--simulate", "--nodes", "6", "--gpus", "8", "--quarantine", "0.2")
    server = Server(folder, *options).start()
    try:
        hows = ("slow", "hangs", "slow", "slow")
        jobs = [
            server.submit(
                name=f"{how}-{number}",
                command=[*launch, str(program), how, str(end)],
                gang=[{"replicas": 2, "gpus": 1}],
            )["id"]
            for number, how in enumerate(hows)
        ]
        for job, how in zip(jobs, hows, strict=True):
            wanted = "hang" if how == "hangs" else "slow"
            eventually(lambda job=job, wanted=wanted: wanted in [each["kind"] for each in found_by(server, job)])
        told = [each for job in jobs for each in found_by(server, job)]
        assert {(each["rank"], each["task"]) for each in told} == {(1, 1)}
        [node] = {each["node"] for each in told}
        found = eventually(
            lambda: at if (at := server.client.get(f"/nodes/{node}").json())["health"] == "suspect" else None
        )
        assert "failed there or found it amiss" in found["reason"]
        assert {each["job"] for each in found["findings"]} == set(jobs)
        hung = server.wait(jobs[1], "failed")
        assert "hangs: no progress: for " in hung["found"]
        end.touch()
        for job in (jobs[0], *jobs[2:]):
            server.wait(job, "succeeded")
    finally:
        server.stop()
