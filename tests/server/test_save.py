"""A running job that is asked to save its work: who is told what, and when it counts as done."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from running import Server
from test_jobs_api import attempt_token_of

from phalanx.cli.main import cli, run
from phalanx.server.loop.notices import Asked, with_report


@pytest.fixture
def job(rehearsal: Server) -> Iterator[str]:
    """A job that runs for as long as the test."""
    submitted: str = rehearsal.submit(gpus=1)["id"]
    rehearsal.wait(submitted, "running")
    yield submitted
    rehearsal.client.post(f"/jobs/{submitted}:cancel")


def trainer_of(server: Server, job: str) -> httpx2.Client:
    return server.as_user(attempt_token_of(server, job))


def report(trainer: httpx2.Client, job: str, step: int, durable_step: int) -> dict[str, Any]:
    told: dict[str, Any] = (
        trainer.post(f"/jobs/{job}/progress", json={"step": step, "durable_step": durable_step})
        .raise_for_status()
        .json()
    )
    return told


def test_a_save_is_done_once_all_is_durable_that_was_done_when_it_was_asked_for(rehearsal: Server, job: str) -> None:
    trainer = trainer_of(rehearsal, job)
    report(trainer, job, 10, 5)
    asked = rehearsal.client.post(f"/jobs/{job}:save", json={"within_s": 60}).raise_for_status().json()
    assert (asked["attempt"], asked["from_step"], asked["durable_step"]) == (1, None, None)
    assert asked["until_ms"] == asked["asked_ms"] + 60_000
    assert report(trainer, job, 20, 5)["checkpoint_until_ms"] == asked["until_ms"]
    # A save that was under way when it was asked for is not the one.
    assert report(trainer, job, 22, 15)["checkpoint_until_ms"] == asked["until_ms"]
    assert rehearsal.job(job)["save"] == {**asked, "from_step": 20}
    assert report(trainer, job, 23, 23)["checkpoint_until_ms"] is None
    assert rehearsal.job(job)["save"] == {**asked, "from_step": 20, "durable_step": 23}


def test_a_trainer_hears_of_it_without_reporting_anything(rehearsal: Server, job: str) -> None:
    trainer = trainer_of(rehearsal, job)
    report(trainer, job, 1, 0)
    nothing = {"checkpoint_until_ms": None, "stop_at_ms": None}
    assert trainer.get(f"/jobs/{job}/progress").raise_for_status().json() == nothing
    asked = rehearsal.client.post(f"/jobs/{job}:save").raise_for_status().json()
    said = rehearsal.job(job)["progress"]
    told = trainer.get(f"/jobs/{job}/progress").raise_for_status().json()
    assert told == {**nothing, "checkpoint_until_ms": asked["until_ms"]}
    assert rehearsal.job(job)["progress"] == said, "a question is no report"
    assert report(trainer, job, 3, 3) == nothing
    assert rehearsal.job(job)["save"]["durable_step"] == 3


def test_a_token_hears_of_its_own_job_alone(rehearsal: Server, job: str) -> None:
    assert trainer_of(rehearsal, job).get("/jobs/999999/progress").status_code == 403


def test_a_job_that_never_reports_progress_cannot_be_asked_to_save(rehearsal: Server, job: str) -> None:
    refused = rehearsal.client.post(f"/jobs/{job}:save")
    assert refused.status_code == 409
    assert f"job {job} does not report progress; it cannot be asked to save" in refused.json()["message"]


def test_a_job_that_does_not_run_has_nothing_to_save(rehearsal: Server) -> None:
    waits = rehearsal.submit(gpus=1, begin="+10h")["id"]
    refused = rehearsal.client.post(f"/jobs/{waits}:save")
    assert (refused.status_code, refused.json()["message"]) == (
        409,
        f"job {waits} does not run, so it has nothing to save",
    )
    rehearsal.client.post(f"/jobs/{waits}:cancel").raise_for_status()


def test_who_asked_for_a_save_is_in_the_audit_log(rehearsal: Server, job: str) -> None:
    report(trainer_of(rehearsal, job), job, 1, 0)
    rehearsal.client.post(f"/jobs/{job}:save").raise_for_status()
    entry = rehearsal.client.get("/audit", params={"target": job}).json()["items"][0]
    assert (entry["verb"], entry["user"], entry["outcome"]) == ("save job", "admin", "done")


@pytest.mark.parametrize(
    ("reports", "done"),
    [
        ([(20, 5), (22, 15), (23, 20)], 20),
        ([(20, 20)], 20),
        ([(20, 5), (25, 19)], None),
        ([(0, 0), (0, 0)], None),
        ([(0, 7), (0, 7), (0, 9)], 9),
        ([(0, 0), (0, 1)], 1),
    ],
    ids=["saved", "nothing unsaved", "older", "says nothing", "no steps", "first save"],
)
def test_what_reports_make_of_a_request(reports: list[tuple[int, int]], done: int | None) -> None:
    asked = Asked(until_ms=60_000)
    for step, durable_step in reports:
        asked = with_report(asked, step, durable_step)
    assert asked.durable_step == done


@pytest.mark.needs("torch")
def test_a_real_training_saves_when_the_verb_asks_for_it(
    rehearsal: Server, job: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    import torch

    from phalanx.train.checkpoint import Checkpointer, Host, Shared
    from phalanx.train.checkpoint.store import steps

    never = 1 << 30
    monkeypatch.setenv("PHALANX_PROGRESS_URL", f"{rehearsal.url}/api/v1/jobs/{job}/progress")
    monkeypatch.setenv("PHALANX_PROGRESS_TOKEN", attempt_token_of(rehearsal, job))
    monkeypatch.setenv("PHALANX_ADDR", rehearsal.url)
    monkeypatch.setenv("PHALANX_TOKEN", rehearsal.client.headers["Authorization"].removeprefix("Bearer "))
    monkeypatch.setenv("PHALANX_CONFIG", str(tmp_path / "config.yaml"))
    codes: list[int] = []
    state = {"model": torch.nn.Linear(2, 2)}
    tiers = [Host(every=never), Shared(tmp_path / "run", every=never)]
    with Checkpointer(state, tiers, job=str(uuid.uuid4()), signals=()) as checkpointer:
        ended = threading.Event()

        def train_until(what: Any) -> None:
            while not what():
                checkpointer.step()
                ended.wait(0.01)

        train_until(lambda: rehearsal.job(job)["progress"])
        begun = checkpointer.completed
        asking = threading.Thread(target=lambda: codes.append(run(cli, ["save", job, "--timeout", "60s"])))
        asking.start()
        train_until(lambda: not asking.is_alive())
    assert codes == [0], capfd.readouterr().err
    saved = [each.step for each in steps(tmp_path / "run")]
    assert len(saved) == 1
    assert saved[0] >= begun
    assert f"job {job}: step {saved[0]} is durable, " in capfd.readouterr().out


def test_a_save_that_never_becomes_durable_is_told_as_such(
    rehearsal: Server, job: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PHALANX_ADDR", rehearsal.url)
    monkeypatch.setenv("PHALANX_TOKEN", rehearsal.client.headers["Authorization"].removeprefix("Bearer "))
    monkeypatch.setenv("PHALANX_CONFIG", str(tmp_path / "config.yaml"))
    report(trainer_of(rehearsal, job), job, 1, 0)
    assert run(cli, ["save", job, "--timeout", "1s"]) == 101
    assert f"job {job}: nothing new was durable within 1 s" in capfd.readouterr().err
    assert run(cli, ["save", job, "--no-wait"]) == 0
    assert f"job {job}: was asked to save its work by " in capfd.readouterr().out
