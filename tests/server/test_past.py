"""The past of a server that goes on: what `at` tells is what was told then."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from running import Server, eventually

from phalanx.cli.main import cli, run

CLUSTER = """
nodes: [{name: n, count: 4, gpus: 8, gpu_type: H100}]
policy: priority:backfill=easy
queues: [{name: red, deserved: {gpus: 16}}, {name: blue, deserved: {gpus: 16}, budget_gpu_hours: 100}]
"""
TOLD = (
    "/jobs",
    "/jobs/1",
    "/jobs/1/attempts",
    "/jobs/3/timeline",
    "/nodes",
    "/queues",
    "/cluster",
    "/reasons",
    "/devices/map",
    "/reservations",
)
PRESENT = ("now_ms", "version", "progress", "budget_spent_gpu_ms")


class Then(NamedTuple):
    """A moment, and what was told at it."""

    at_ms: int
    told: dict[str, Any]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("past")
    (folder / "cluster.yaml").write_text(CLUSTER)
    server = Server(folder / "data", "--backend", "rehearsal", "--cluster", str(folder / "cluster.yaml")).start()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def then(server: Server) -> Then:
    """A moment at which two jobs ran and one was pending. Later the first was cancelled, and a node drained."""
    jobs = [server.submit(name="first", queue="red", gang=[{"replicas": 2, "gpus": 8}], duration="2h")]
    jobs += [server.submit(name="second", queue="blue", gang=[{"replicas": 2, "gpus": 8}], duration="2h")]
    for job in jobs:
        server.wait(job["id"], "running")
    third = server.submit(name="third", queue="red", gpus=8, duration="1h")
    server.wait(third["id"], "waiting")
    server.client.get("/jobs/3/why", timeout=90).raise_for_status()
    told = {path: server.client.get(path).raise_for_status().json() for path in TOLD}
    at_ms = int(time.time() * 1000)
    while int(time.time() * 1000) <= at_ms + 20:
        pass
    server.client.post("/jobs/1:cancel").raise_for_status()
    server.wait("1", "cancelled")
    server.wait("3", "running")
    server.client.post("/nodes/n3:drain", json={"reason": "a fan"}).raise_for_status()
    server.submit(name="fourth", queue="blue", gpus=1, duration="1h")
    return Then(at_ms, told)


def comparable(told: Any) -> Any:
    """Without what tells of the moment of asking."""
    if isinstance(told, dict):
        return {key: comparable(value) for key, value in told.items() if key not in PRESENT}
    return [comparable(each) for each in told] if isinstance(told, list) else told


@pytest.mark.parametrize("path", TOLD)
def test_a_route_tells_of_a_moment_what_it_told_then(server: Server, then: Then, path: str) -> None:
    found = server.client.get(path, params={"at": then.at_ms}, timeout=90).raise_for_status().json()
    assert comparable(found) == comparable(then.told[path])
    present = server.client.get(path).raise_for_status().json()
    if path in ("/jobs", "/jobs/1", "/nodes", "/queues"):
        assert comparable(present) != comparable(found)


def test_why_says_what_held_then(server: Server, then: Then) -> None:
    told = server.client.get("/jobs/3/why", params={"at": then.at_ms}, timeout=90).raise_for_status().json()
    assert (told["state"], told["gpus_free"]) == ("waiting", 0)
    assert server.client.get("/jobs/3/why", timeout=90).json()["state"] == "running"


def test_what_came_later_is_not_there(server: Server, then: Then) -> None:
    assert server.client.get("/jobs/4", params={"at": then.at_ms}, timeout=90).status_code == 404
    records = server.client.get("/journal", params={"at": then.at_ms, "limit": 500}).json()["items"]
    assert max(each["now_ms"] for each in records) <= then.at_ms
    assert {each["job"] for each in server.client.get("/journal", params={"limit": 500}).json()["items"]} >= {"4"}


def test_maintenance_windows_are_those_of_the_moment_past_and_planned(server: Server, then: Then) -> None:
    begun = {"name": "fans", "nodes": ["n2"], "start": "2026-01-03T00:00Z", "for": "2h"}
    planned = {"name": "cooling", "nodes": ["n1"], "start": "2040-01-03T00:00Z", "for": "2h"}
    moved = {**planned, "start": "2041-01-03T00:00Z"}
    moments = []
    for windows in ([begun, planned], [planned], [moved], []):
        server.client.put("/cluster", json={"maintenance": windows}).raise_for_status()
        moments.append(int(time.time() * 1000))
        eventually(lambda: int(time.time() * 1000) > moments[-1] + 20)

    def told(at_ms: int | None) -> list[tuple[str, str]]:
        asked = {"since": 0, **({} if at_ms is None else {"at": at_ms})}
        found = server.client.get("/timeline", params=asked, timeout=90).raise_for_status().json()["maintenance"]
        return [(each["name"], time.strftime("%Y", time.gmtime(each["start_ms"] / 1000))) for each in found]

    fans, cooling, later = ("fans", "2026"), ("cooling", "2040"), ("cooling", "2041")
    assert [told(at_ms) for at_ms in moments] == [[fans, cooling], [fans, cooling], [fans, later], [fans]]
    assert told(None) == [fans]


def test_a_moment_before_the_first_record_or_still_to_come_is_refused(server: Server, then: Then) -> None:
    span = server.client.get("/past").raise_for_status().json()
    assert span["first_ms"] <= then.at_ms <= span["last_ms"]
    early = server.client.get("/jobs", params={"at": span["first_ms"] - 1})
    assert (early.status_code, early.json()["detail"]["first_ms"]) == (422, span["first_ms"])
    assert "is before the first record" in early.json()["message"]
    late = server.client.get("/queues", params={"at": span["last_ms"] + 3_600_000})
    assert late.status_code == 422
    assert "is still to come" in late.json()["message"]


def test_the_past_needs_a_role_of_the_present(server: Server, then: Then) -> None:
    server.client.post("/users", json={"name": "eve"}).raise_for_status()
    server.client.put("/users/eve/roles/blue", json={"role": "viewer"}).raise_for_status()
    token = server.client.post("/tokens", json={"name": "t", "user": "eve"}).raise_for_status().json()["token"]
    eve = server.as_user(token)
    found = eve.get("/jobs", params={"at": then.at_ms}, timeout=90).json()["items"]
    assert [each["name"] for each in found] == ["second"]
    assert eve.get("/jobs/1", params={"at": then.at_ms}).status_code == 404


def test_the_command_line_looks_back_at_the_live_server(
    server: Server, then: Then, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PHALANX_ADDR", server.url)
    monkeypatch.setenv("PHALANX_TOKEN_FILE", str(server.data / "admin.token"))
    monkeypatch.setenv("PHALANX_CONFIG", str(tmp_path / "config.yaml"))
    whole_s = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(then.at_ms // 1000))
    moment = f"{whole_s}.{then.at_ms % 1000:03}Z"

    def told(*arguments: str) -> Any:
        assert run(cli, [*arguments, "--at", moment, "-o", "json"]) == 0, capfd.readouterr().err
        return json.loads(capfd.readouterr().out)

    states = {each["name"]: each["state"] for each in told("jobs", "--all")}
    assert states == {"first": "running", "second": "running", "third": "waiting"}
    assert {each["name"] for each in told("queues")} == {"red", "blue"}
    why = told("why", "3", "--no-forecast")
    assert (why["state"], why["gpus_free"]) == ("waiting", 0)
    assert run(cli, ["jobs", "--at", "2020-01-01T00:00Z"]) == 1
    assert "is before its first record" in capfd.readouterr().err
