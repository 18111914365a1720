"""Work that preemptions cost: told with the job, its attempts, the list and the reason why it waits."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from running import Server, eventually
from test_jobs_api import attempt_token_of

from phalanx.cli.main import cli, run


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """One node of 8 GPUs, where a higher priority goes before."""
    options = ("--backend", "rehearsal", "--nodes", "1", "--gpus", "8", "--policy", "priority")
    running = Server(tmp_path / "data", *options).start()
    yield running
    running.stop()


def tries_of(server: Server, job: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = server.client.get(f"/jobs/{job}/attempts").raise_for_status().json()["items"]
    return found


def preempted(server: Server, job: str) -> dict[str, Any]:
    """Has a job that runs make room, and gives the attempt that ended."""
    server.submit(gpus=8, priority=9, duration="1h")
    server.wait(job, "waiting")
    return dict(eventually(lambda: [each for each in tries_of(server, job) if each["reason"] == "preempted"])[-1])


def test_what_a_preempted_attempt_had_saved_and_lost_is_told(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    job = server.submit(gpus=8, duration="1h")["id"]
    server.wait(job, "running")
    trainer = server.as_user(attempt_token_of(server, job))
    report = {"step": 100, "durable_step": 60, "stop_cost_ms": 7_200_000}
    trainer.post(f"/jobs/{job}/progress", json=report).raise_for_status()
    ended = preempted(server, job)
    assert (ended["step"], ended["durable_step"]) == (100, 60)
    assert 7_200_000 < ended["lost_ms"] <= ended["ended_ms"] - ended["started_ms"] + 7_200_000
    assert ended["lost_gpu_ms"] == 8 * ended["lost_ms"]
    found = server.job(job)
    assert found["lost_gpu_ms"] == ended["lost_gpu_ms"]
    listed = server.client.get("/jobs", params={"state": "waiting"}).json()["items"]
    assert [each["lost_gpu_ms"] for each in listed if each["id"] == job] == [ended["lost_gpu_ms"]]
    words = "preempted once, 2h 0m of work on 8 GPUs lost (16.0 GPU-hours)"
    assert found["lost"] == words
    assert server.client.get(f"/jobs/{job}/why").json()["lost"] == words
    monkeypatch.setenv("PHALANX_ADDR", server.url)
    monkeypatch.setenv("PHALANX_TOKEN", server.client.headers["Authorization"].removeprefix("Bearer "))
    monkeypatch.setenv("PHALANX_CONFIG", str(tmp_path / "config.yaml"))
    for verb in ("job", "why"):
        assert run(cli, [verb, job]) == 0
        assert words in capfd.readouterr().out
    assert run(cli, ["jobs", "-o", "json"]) == 0
    assert [each["lost_gpu_h"] for each in json.loads(capfd.readouterr().out) if each["id"] == job] == [16.0]


def test_an_attempt_that_reported_before_the_server_was_killed_tells_its_step_all_the_same(server: Server) -> None:
    job = server.submit(gpus=8, duration="1h")["id"]
    server.wait(job, "running")
    trainer = server.as_user(attempt_token_of(server, job))
    trainer.post(f"/jobs/{job}/progress", json={"step": 100, "durable_step": 60}).raise_for_status()
    server.kill()
    server.start()
    ended = preempted(server, job)
    assert (ended["step"], ended["durable_step"]) == (100, 60)


def test_a_job_that_reports_nothing_loses_all_since_its_start(server: Server) -> None:
    job = server.submit(gpus=8, duration="1h")["id"]
    server.wait(job, "running")
    ended = preempted(server, job)
    assert (ended["step"], ended["durable_step"]) == (None, None)
    assert ended["lost_ms"] == ended["ended_ms"] - ended["started_ms"]


def test_nothing_is_lost_with_what_succeeds_or_is_cancelled(server: Server) -> None:
    done, cancelled = (server.submit(gpus=1, duration=length)["id"] for length in ("50ms", "1h"))
    server.wait(done, "succeeded")
    server.wait(cancelled, "running")
    server.client.post(f"/jobs/{cancelled}:cancel").raise_for_status()
    server.wait(cancelled, "cancelled")
    for job in (done, cancelled):
        assert [each["lost_ms"] for each in tries_of(server, job)] == [None]
        assert (server.job(job)["lost"], server.job(job)["lost_gpu_ms"]) == ("", 0)
