"""Starts that submitters were told: kept with the job, shown beside the real start, and counted by how they came."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from running import Server, eventually
from sqlalchemy import select, text

from phalanx.cli.main import cli, run
from phalanx.server.store.database import open_database, sqlite_url
from phalanx.server.store.forecasts import keep_told_start, outcome_of
from phalanx.server.store.migrations import MIGRATIONS, version_of
from phalanx.server.store.tables import start_forecasts

HOUR_MS = 3_600_000


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """One node of 8 GPUs."""
    running = Server(tmp_path / "data", "--backend", "rehearsal", "--nodes", "1", "--gpus", "8").start()
    yield running
    running.stop()


def occupied(server: Server) -> str:
    """The id of a job that has all GPUs for an hour, once the planner answers questions about it."""
    job = str(server.submit(gpus=8, duration="1h")["id"])
    server.wait(job, "running")
    server.client.get(f"/jobs/{job}/why", timeout=90).raise_for_status()
    return job


def figures(server: Server) -> dict[str, float]:
    """Metrics of forecasts by name and labels."""
    lines = server.client.get(server.url + "/metrics").text.splitlines()
    told = (line.rpartition(" ") for line in lines if line.startswith("phalanx_start_forecast"))
    return {name: float(value) for name, _, value in told}


def test_the_start_that_was_told_is_kept_shown_and_counted(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    first = occupied(server)
    monkeypatch.setenv("PHALANX_ADDR", server.url)
    monkeypatch.setenv("PHALANX_TOKEN", server.client.headers["Authorization"].removeprefix("Bearer "))
    monkeypatch.setenv("PHALANX_CONFIG", str(tmp_path / "config.yaml"))
    capfd.readouterr()
    before_ms = int(time.time() * 1000)
    assert run(cli, ["submit", "--gpus", "8", "-o", "json", "--", "true"]) == 0
    said = capfd.readouterr()
    made = json.loads(said.out)
    told_ms = made["told_start_ms"]
    assert before_ms + HOUR_MS - 60_000 < told_ms <= int(time.time() * 1000) + HOUR_MS
    assert said.err.startswith("expected to start in ")
    assert server.job(made["id"])["told_start_ms"] == told_ms
    assert figures(server) == {}, "it has not started"

    server.client.post(f"/jobs/{first}:cancel").raise_for_status()
    started_ms = eventually(lambda: server.job(made["id"])["started_ms"])
    listed = server.client.get("/jobs").json()["items"]
    assert {job["id"]: job["told_start_ms"] for job in listed} == {first: None, made["id"]: told_ms}
    label = '{outcome="early",policy="fifo",queue="default"}'
    assert figures(server)[f"phalanx_start_forecasts_total{label}"] == 1
    error = figures(server)['phalanx_start_forecast_error_seconds_sum{policy="fifo",queue="default"}']
    assert error == pytest.approx((told_ms - started_ms) / 1000)
    assert run(cli, ["job", made["id"]]) == 0
    assert " early)" in next(line for line in capfd.readouterr().out.splitlines() if line.startswith("TOLD START"))


def test_who_does_not_ask_or_has_its_devices_at_once_is_told_none(server: Server) -> None:
    job = {"gpus": 8, "command": "true", "duration": "1h"}
    at_once = server.client.post("/jobs", params={"forecast": True}, json=job).json()
    assert at_once["told_start_ms"] is None
    assert server.client.post("/jobs", json=job).json()["told_start_ms"] is None
    hopeless = server.client.post("/jobs", params={"forecast": True}, json={**job, "gpus": 9}).json()
    assert hopeless["told_start_ms"] is None


def test_a_repeated_request_is_told_what_the_first_was(server: Server) -> None:
    occupied(server)
    job = {"gpus": 8, "command": "true", "duration": "1h"}
    headers = {"Idempotency-Key": "the same"}
    answers = [server.client.post("/jobs", params={"forecast": True}, json=job, headers=headers) for _ in range(2)]
    assert answers[1].headers["Idempotent-Replay"] == "true"
    first, second = (answer.json()["told_start_ms"] for answer in answers)
    assert first == second is not None


@pytest.mark.parametrize(
    ("error_ms", "told_wait_ms", "outcome"),
    [
        (60_000, 0, "kept"),
        (-60_000, 0, "kept"),
        (60_001, 0, "late"),
        (-60_001, 0, "early"),
        (HOUR_MS, 10 * HOUR_MS, "kept"),
        (HOUR_MS + 1, 10 * HOUR_MS, "late"),
        (-HOUR_MS - 1, 10 * HOUR_MS, "early"),
    ],
)
def test_a_start_is_kept_within_a_minute_or_a_tenth_of_the_wait(error_ms: int, told_wait_ms: int, outcome: str) -> None:
    assert outcome_of(error_ms, told_wait_ms) == outcome


def test_what_was_told_first_stays(tmp_path: Path) -> None:
    database = open_database(sqlite_url(tmp_path / "store.db"))
    with database.writing() as connection:
        assert keep_told_start(connection, "7", 5_000, "fifo", 1_000)
        assert not keep_told_start(connection, "7", 9_000, "fifo", 2_000)
        assert connection.execute(select(start_forecasts)).all() == [("7", 5_000, "fifo", 1_000)]
    database.close()


def test_a_store_of_an_older_release_gets_a_place_for_it(tmp_path: Path) -> None:
    url = sqlite_url(tmp_path / "store.db")
    database = open_database(url)
    with database.writing() as connection:
        connection.execute(text("DROP TABLE start_forecasts"))
        connection.execute(text("UPDATE store_version SET version = 7"))
    database.close()
    database = open_database(url)
    with database.writing() as connection:
        assert version_of(connection) == len(MIGRATIONS)
        assert keep_told_start(connection, "7", 5_000, "fifo", 1_000)
    database.close()
