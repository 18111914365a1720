"""Accounting: GPU time by user, queue and job, as the attempts of a server had it."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from typing import Any

import pytest
from running import Server, eventually

from phalanx.server.accounts.tokens import attempt_token
from phalanx.server.api.models.jobs import UsageModel


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("lab")
    server = Server(folder / "data", "--backend", "rehearsal", "--nodes", "1", "--gpus", "8").start()
    yield server.with_queues("red", "red/llm", "blue")
    server.stop()


def used(server: Server, **asked: Any) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = server.client.get("/usage", params=asked).raise_for_status().json()["items"]
    return items


def report(server: Server, job: str, **said: Any) -> None:
    """Reports progress as the first attempt of a job would."""
    with sqlite3.connect(f"file:{server.data}/phalanx.db?mode=ro", uri=True) as store:
        [[secret]] = store.execute("SELECT value FROM settings WHERE key = 'secret'").fetchall()
        [[incarnations]] = store.execute("SELECT value FROM settings WHERE key = 'incarnations'").fetchall()
    token = attempt_token(secret, job, 1, json.loads(incarnations)[-1]["id"])
    server.as_user(token).post(f"/jobs/{job}/progress", json=said).raise_for_status()


def test_gpu_time_is_what_attempts_held_in_the_span_and_busy_is_what_they_report(lab: Server) -> None:
    first = lab.submit(gpus=2, queue="red", name="one")["id"]
    lab.wait(first, "running")
    for busy in (0.5, 1.0):
        report(lab, first, step=1, gpu_busy=busy)
    second = lab.submit(gpus=4, queue="red/llm", duration="1s")["id"]
    lab.wait(second, "succeeded")
    lab.client.post(f"/jobs/{first}:cancel").raise_for_status()
    lab.wait(first, "cancelled")
    held = {}
    for job, gpus in ((first, 2), (second, 4)):
        [attempt] = lab.client.get(f"/jobs/{job}/attempts").json()["items"]
        held[job] = gpus * (attempt["ended_ms"] - attempt["started_ms"])
    by_job = {each["key"]: each for each in used(lab, by="job")}
    assert {job: by_job[job]["gpu_ms"] for job in held} == held
    assert (by_job[first]["name"], by_job[first]["user"], by_job[first]["queue"]) == ("one", "admin", "red")
    assert by_job[first]["reported_gpu_ms"] == held[first]
    assert by_job[first]["busy_gpu_ms"] == round(0.75 * held[first])
    assert (by_job[second]["reported_gpu_ms"], by_job[second]["busy_gpu_ms"]) == (0, 0)
    [admin] = used(lab, by="user")
    assert (admin["key"], admin["jobs"], admin["gpu_ms"]) == ("admin", 2, sum(held.values()))
    assert admin.keys() == UsageModel.model_fields.keys()
    assert {each["key"] for each in used(lab, by="queue")} == {"red", "red/llm"}
    assert [each["key"] for each in used(lab, by="job", queue="red/llm")] == [second]
    assert used(lab, user="nobody") == []
    [attempt] = lab.client.get(f"/jobs/{second}/attempts").json()["items"]
    middle = (attempt["started_ms"] + attempt["ended_ms"]) // 2
    [half] = used(lab, by="job", queue="red/llm", since_ms=middle)
    assert half["gpu_ms"] == 4 * (attempt["ended_ms"] - middle)


def test_gpu_time_of_a_resized_job_is_summed_up_at_the_sizes_that_it_had(lab: Server) -> None:
    job = lab.submit(gang=[{"replicas": {"min": 1, "max": 4}, "gpus": 1}], queue="blue", duration="1h")["id"]
    eventually(lambda: lab.job(job)["gpus"] == 4 and lab.job(job)["state"] == "running")
    lab.client.post(f"/jobs/{job}:resize", json={"replicas": 1}).raise_for_status()
    eventually(lambda: lab.job(job)["gpus"] == 1 and lab.job(job)["state"] == "running")
    lab.client.post(f"/jobs/{job}:cancel").raise_for_status()
    lab.wait(job, "cancelled")
    [attempt] = lab.client.get(f"/jobs/{job}/attempts").json()["items"]
    with sqlite3.connect(f"file:{lab.data}/phalanx.db?mode=ro", uri=True) as store:
        [[shrunk_ms, gpus]] = store.execute("SELECT until_ms, gpus FROM attempt_sizes WHERE job = ?", (job,)).fetchall()
    assert gpus == 4
    held = 4 * (shrunk_ms - attempt["started_ms"]) + (attempt["ended_ms"] - shrunk_ms)
    [whole] = used(lab, by="job", queue="blue")
    assert whole["gpu_ms"] == held == lab.job(job)["executed_before_gpu_ms"]
    [end] = used(lab, by="job", queue="blue", since_ms=shrunk_ms - 1)
    assert end["gpu_ms"] == 4 + attempt["ended_ms"] - shrunk_ms


def test_a_job_that_is_over_keeps_the_nodes_of_its_last_attempt(lab: Server) -> None:
    job = lab.submit(gpus=1, duration="100ms")["id"]
    lab.wait(job, "succeeded")
    assert lab.job(job)["nodes"] == ["n0"]
    listed = lab.client.get("/jobs", params={"state": "succeeded"}).json()["items"]
    assert next(each["nodes"] for each in listed if each["id"] == job) == ["n0"]
    waiting = lab.submit(gpus=1, begin="+1h")["id"]
    lab.client.post(f"/jobs/{waiting}:cancel").raise_for_status()
    assert lab.job(waiting)["nodes"] == []


def test_a_span_that_is_none_is_refused(lab: Server) -> None:
    for asked in ({"since_ms": 5, "until_ms": 5}, {"since_ms": -1}, {"by": "shoe size"}):
        assert lab.client.get("/usage", params=asked).status_code == 422
