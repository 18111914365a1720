"""Bad input of every kind: always an answer that says what is wrong, never a defect, and the server goes on."""

from __future__ import annotations

import contextlib
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from running import Server, eventually

from phalanx.server.api.admission.guard import RateLimit
from phalanx.server.api.reference import document
from phalanx.server.loop.wire import LENGTH, frames

EXAMPLES = 10
"""Requests made up for each route."""


DESCRIBED = schemathesis.openapi.from_dict(document())
ROUTES = sorted(
    (operation.path, operation.method) for result in DESCRIBED.get_all_operations() for operation in [result.ok()]
)


@pytest.mark.parametrize(("path", "method"), ROUTES)
@settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck), phases=(Phase.generate,))
@given(data=st.data())
def test_whatever_is_sent_by_the_description_is_answered_in_form(
    rehearsal: Server, path: str, method: str, data: st.DataObject
) -> None:
    case = data.draw(DESCRIBED[path][method].as_strategy())
    case.headers = {**(case.headers or {}), "Authorization": rehearsal.client.headers["Authorization"]}
    if path == "/api/v1/events":
        case.query = {**(case.query or {}), "follow": "false"}
    response = case.call(base_url=rehearsal.url)
    assert response.status_code < 500 or response.status_code == 503, response.text
    if response.status_code >= 400:
        assert set(response.json()) == {"code", "message", "detail"}


BODIES = [
    b"",
    b"{",
    b"null",
    b"[]",
    b'"text"',
    b"\xff\xfe\x00",
    b'{"gpus": 1e999}',
    b'{"gpus": NaN}',
    b'{"gpus": 99999999999999999999999}',
    b'{"gpus": true}',
    b'{"name": "\\ud800", "gpus": 1}',
    b'{"name": "' + b"x" * 100_000 + b'", "gpus": 1}',
    b"{" * 5_000,
    b"[" * 100_000,
    b'{"a": &a [*a]}',
    b"gpus: 1\nx: &x [" + b"*x," * 10 + b"]",
    b'{"gpus": 1, "gpus": 2}',
    b'{"gpus": 1, "array": "0-999999999"}',
    b'{"command": ["\\u0000"], "gpus": 1}',
    b"\x00" * 1000,
    "gpus: ١".encode(),
]


@pytest.mark.parametrize("body", BODIES, ids=range(len(BODIES)))
@pytest.mark.parametrize("media", ["application/json", "application/yaml"])
@pytest.mark.parametrize("path", ["/jobs", "/jobs:batch", "/plan", "/tokens"])
def test_bodies_that_are_no_request_are_refused(rehearsal: Server, path: str, media: str, body: bytes) -> None:
    response = rehearsal.client.post(path, content=body, headers={"Content-Type": media})
    assert 400 <= response.status_code < 500, response.text
    assert response.json()["message"]


NAMED = b'{"name": "%s", "command": "true", "gpus": 1}'


@pytest.mark.parametrize("size", [2 << 20, 10 << 20, 40 << 20])
@pytest.mark.parametrize(("path", "body"), [("/jobs", NAMED), ("/jobs:batch", b'{"jobs": [' + NAMED + b"]}")])
def test_a_job_file_that_is_too_large_is_refused_by_its_size(
    rehearsal: Server, path: str, body: bytes, size: int
) -> None:
    headers = {"Content-Type": "application/json"}
    response = rehearsal.client.post(path, content=body % (b"x" * size), headers=headers)
    assert (response.status_code, response.json()["code"]) == (413, "too_large")
    assert "expected a " in response.json()["message"]
    assert "at most" in response.json()["message"]


def test_a_large_body_is_refused_before_anybody_asks_who_sends_it(rehearsal: Server) -> None:
    stranger = rehearsal.as_user("nobody")
    assert stranger.post("/tokens", content=b" " * (10 << 20)).status_code == 413
    assert stranger.post("/tokens", content=b" " * (100 << 10)).status_code == 401


def test_a_value_that_is_too_long_in_a_body_that_is_not_is_invalid(rehearsal: Server) -> None:
    long = {"name": "x" * 1000, "command": "true", "gpus": 1}
    assert rehearsal.client.post("/jobs", json=long).status_code == 422
    assert rehearsal.client.post("/jobs:batch", json={"jobs": [long]}).status_code == 422


def test_a_secret_that_is_a_path_is_refused_at_submission(rehearsal: Server) -> None:
    tricky = {"command": "true", "gpus": 1, "secrets": ["../admin.token"]}
    for path, body in (("/jobs", tricky), ("/jobs:batch", {"jobs": [tricky]}), ("/plan", {"jobs": [tricky]})):
        response = rehearsal.client.post(path, json=body)
        assert (response.status_code, response.json()["code"]) == (422, "invalid")
        assert "secrets[0]': expected a secret's name" in response.json()["message"]


def test_a_body_that_hides_its_size_is_cut_off(rehearsal: Server) -> None:
    def endless() -> Any:
        for _ in range(50):
            yield b"x" * (1 << 20)

    response = rehearsal.client.post("/jobs", content=endless(), headers={"Content-Type": "application/json"})
    assert response.status_code == 413


@pytest.mark.parametrize(
    "path",
    [
        "/jobs/..%2f..%2fetc%2fpasswd/logs",
        "/jobs/%2e%2e/logs",
        "/jobs/1%00/logs",
        "/jobs/../../etc/passwd",
        "/jobs/1/logs?rank=../../../etc/passwd",
        "/jobs/1/logs?stream=../secret",
        "/jobs/1/logs?attempt=-1",
        "/nodes/..%2f..%2fadmin.token",
        "/jobs/" + "9" * 5_000,
        "/jobs/1'%20OR%201=1",
        "/jobs?queue='%20OR%20'1'='1",
        "/jobs?name=%25",
        "/jobs?label=%00=%00",
        "/users/..%2fadmin",
        "/users/admin/roles/..%2f..%2f",
        "/tokens/..%2f",
    ],
)
def test_tricks_in_paths_find_nothing(rehearsal: Server, path: str) -> None:
    response = rehearsal.client.get(path)
    assert response.status_code in (200, 404, 405, 422)
    if response.status_code == 200:
        assert response.json()["items"] == []
    secret = (rehearsal.data / "admin.token").read_text().strip()
    assert secret not in response.text
    assert "root:" not in response.text


@pytest.mark.parametrize("path", ["..%2f..%2fup.py", "__init__.py", "vendor/SHA256SUMS", "/etc/passwd"])
def test_only_the_files_of_pages_are_sent(rehearsal: Server, path: str) -> None:
    assert httpx2.get(f"{rehearsal.url}/ui/static/{path}").status_code == 404


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"GET / HTTP/9.9\r\n\r\n",
        b"\x16\x03\x01\x02\x00",
        b"GET /" + b"a" * 200_000 + b" HTTP/1.1\r\n\r\n",
        b"POST /api/v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n",
        b"POST /api/v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n",
        b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 20_000 + b"\r\n",
    ],
    ids=range(6),
)
def test_what_is_no_http_does_not_end_the_worker(rehearsal: Server, request_bytes: bytes) -> None:
    address = urlsplit(rehearsal.url)
    with socket.create_connection((address.hostname or "", address.port or 0), timeout=20) as connection:
        try:
            connection.sendall(request_bytes)
            connection.shutdown(socket.SHUT_WR)
            connection.recv(100)
        except OSError:
            pass
    assert httpx2.get(rehearsal.url + "/healthz").status_code == 200


def test_a_job_that_asks_for_a_level_the_cluster_has_not_is_refused_by_the_engine(rehearsal: Server) -> None:
    response = rehearsal.client.post("/jobs", json={"gpus": 1, "command": "a", "topology": {"required": "galaxy"}})
    assert response.status_code == 422
    assert "galaxy" in response.json()["message"]


def test_a_disk_that_is_nearly_full_takes_no_new_work_and_keeps_the_old(
    rehearsal: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    from phalanx.server.loop import process
    from phalanx.server.refusal import Refusal

    room = process._Room(str(rehearsal.data))
    room()
    monkeypatch.setattr(process, "ROOM_BYTES", 1 << 60)
    with pytest.raises(Refusal, match="no new work is taken") as caught:
        process._Room(str(rehearsal.data))()
    assert caught.value.status == 507


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 112 MB of its own."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=112m", "tmpfs", str(disk)], capture_output=True).returncode:
        pytest.skip("needs the right to mount a small disk: run as root")
    yield disk
    subprocess.run(["umount", "--lazy", str(disk)], check=True)


def test_a_disk_that_gets_full_under_a_server_refuses_new_work_and_what_runs_is_written_down(small_disk: Path) -> None:
    server = Server(small_disk / "data", "--backend", "rehearsal").start()
    running = server.submit(gpus=1, duration="8s")["id"]
    server.wait(running, "running")
    ballast = small_disk / "ballast"
    with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(1 << 16))

    def refused() -> bool:
        answer = server.client.post("/jobs", json={"gpus": 1, "command": "true"})
        assert answer.status_code in (503, 507), answer.text
        return answer.status_code == 507 and "disk" in answer.json()["message"]

    eventually(refused)
    server.wait(running, "succeeded")
    ballast.unlink()
    eventually(lambda: server.client.post("/jobs", json={"gpus": 1, "command": "true"}).status_code == 201)
    server.stop()


def test_a_store_that_cannot_be_written_refuses_work_and_recovers(folder: Path) -> None:
    """Another program holds the write lock for longer than the loop waits."""
    import sqlite3

    server = Server(folder, "--backend", "rehearsal").start()
    kept = server.submit(gpus=1, begin="+1h")
    blocker = sqlite3.connect(folder / "phalanx.db", isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")
    response = server.client.post("/jobs", json={"gpus": 1, "command": "true", "begin": "+1h"})
    assert response.status_code == 503
    assert "locked by another program" in response.json()["message"]
    assert server.client.get(f"/jobs/{kept['id']}").status_code == 200
    blocker.execute("ROLLBACK")
    blocker.close()
    eventually(lambda: server.client.get(server.url + "/readyz").status_code == 200)
    eventually(
        lambda: server.client.post("/jobs", json={"gpus": 1, "command": "true", "begin": "+1h"}).status_code == 201
    )
    assert len(server.client.get("/jobs").json()["items"]) == 2, "what was refused is not there"
    server.stop()


def test_one_address_is_held_to_its_rate_and_let_go_on_later() -> None:
    now = [0.0]
    limit = RateLimit(10, lambda: now[0])
    assert sum(limit.allows("a") for _ in range(100)) == 20, "twice as many in a row after a pause"
    assert limit.allows("b"), "others are not held up"
    now[0] += 0.5
    assert sum(limit.allows("a") for _ in range(100)) == 5


@given(st.lists(st.binary(max_size=50), max_size=20), st.lists(st.integers(1, 40), min_size=1, max_size=30))
def test_frames_arrive_whole_however_they_are_cut(messages: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(LENGTH.pack(len(message)) + message for message in messages)
    buffer, found = bytearray(), []
    at = 0
    while at < len(stream):
        size = cuts[at % len(cuts)]
        buffer += stream[at : at + size]
        at += size
        found += frames(buffer)
    assert found == messages
    assert not buffer


def test_a_frame_that_is_too_large_is_refused() -> None:
    with pytest.raises(ValueError, match="expected at most"):
        frames(bytearray(LENGTH.pack(1 << 31)))
