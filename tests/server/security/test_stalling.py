"""A member who enters their own job, or reads its log, keeps nobody else waiting, and reaches nothing but that job."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode

import httpx2
import pytest
from people import Person, person
from running import Server, eventually
from websockets.exceptions import InvalidStatus
from websockets.sync.client import ClientConnection, connect

AT_ONCE_S = 3.0
GRACE_S = 1.0
PATIENCE_S = 30.0

DEAF = """
import signal, socket, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
end = socket.create_server(("127.0.0.1", 0), backlog=0)
port = end.getsockname()[1]
waiting = []
for _ in range(4):
    line = socket.socket()
    line.setblocking(False)
    line.connect_ex(("127.0.0.1", port))
    waiting.append(line)
print(port, flush=True)
time.sleep(6000)
"""
"""Listens and takes no connection, so that a new one hangs, and heeds no notice."""

AWAY = """
import socket, time
end = socket.socket()
end.setsockopt(socket.IPPROTO_IP, 15, 1)  # IP_FREEBIND
end.bind(("203.0.113.5", 0))
end.listen()
print(end.getsockname()[1], flush=True)
time.sleep(6000)
"""
"""Listens at an address of another machine."""


@dataclass(frozen=True)
class Mallory:
    """A member with a running job."""

    server: Server
    person: Person

    def run(self, *command: str) -> tuple[str, str]:
        """A job that runs, and the first line that it prints."""
        body = {"queue": "red", "gpus": 1, "command": command, "grace": f"{GRACE_S:g}s"}
        job: str = self.person.client.post("/jobs", json=body).raise_for_status().json()["id"]
        self.server.wait(job, "running")
        return job, eventually(lambda: self.server.client.get(f"/jobs/{job}/logs", params={"tail": 100}).text).strip()

    def enter(self, path: str, token: str = "", **query: str) -> ClientConnection:
        """A web socket of the job."""
        sent = f"Bearer {token}" if token else self.person.client.headers["Authorization"]
        url = f"{self.server.url.replace('http', 'ws')}/api/v1/jobs/{path}?{urlencode(query)}"
        return connect(url, additional_headers={"Authorization": sent}, open_timeout=PATIENCE_S, close_timeout=1)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("stalling")
    started = Server(folder / "data", "--simulate", "--nodes", "2", "--gpus", "4").start()
    yield started
    for job in started.client.get("/jobs", params={"state": "running"}).json()["items"]:
        started.client.post(f"/jobs/{job['id']}:cancel")
        started.wait(job["id"], "cancelled")
    started.stop()


@pytest.fixture
def mallory(server: Server) -> Mallory:
    return Mallory(server, person(server, "member of red"))


@pytest.fixture
def alice(server: Server) -> Person:
    return person(server, "member of blue")


def longest_s(alice: Person, *paths: str) -> float:
    """How long the slowest of some requests takes."""
    longest = 0.0
    for path in paths:
        before_s = time.monotonic()
        alice.client.get(path).raise_for_status()
        longest = max(longest, time.monotonic() - before_s)
    return longest


def test_a_command_that_prints_no_more_and_does_not_end_keeps_nobody_waiting(mallory: Mallory, alice: Person) -> None:
    job, _ = mallory.run("sh", "-c", "echo up; exec sleep 6000")
    with ExitStack() as lines:
        for _ in range(3):
            line = lines.enter_context(mallory.enter(f"{job}/exec"))
            line.send(b"exec >&- 2>&- <&-; exec sleep 6000\n")
        assert longest_s(alice, *["/jobs"] * 20) < AT_ONCE_S


def test_a_port_that_takes_no_connection_keeps_nobody_waiting_and_puts_off_no_end(
    mallory: Mallory, alice: Person
) -> None:
    job, port = mallory.run("/usr/bin/python3", "-c", DEAF)
    over = threading.Event()

    def hammer() -> None:
        while not over.is_set():
            with suppress(InvalidStatus, OSError, EOFError), mallory.enter(f"{job}/forward", port=port):
                pass

    threads = [threading.Thread(target=hammer) for _ in range(16)]
    for thread in threads:
        thread.start()
    try:
        time.sleep(1)
        assert longest_s(alice, *["/jobs"] * 10) < AT_ONCE_S
        before_s = time.monotonic()
        mallory.person.client.post(f"/jobs/{job}:cancel").raise_for_status()
        mallory.server.wait(job, "cancelled")
        assert time.monotonic() - before_s < GRACE_S + 3 * AT_ONCE_S
    finally:
        over.set()
        for thread in threads:
            thread.join()


def test_a_port_at_an_address_of_another_machine_is_not_connected_to(mallory: Mallory) -> None:
    job, port = mallory.run("/usr/bin/python3", "-c", AWAY)
    with pytest.raises(InvalidStatus) as refused:
        mallory.enter(f"{job}/forward", port=port)
    assert refused.value.response.status_code == 409
    assert json.loads(refused.value.response.body or b"")["code"] == "conflict"


def test_the_secret_of_a_session_is_no_token_for_web_sockets(mallory: Mallory) -> None:
    job, _ = mallory.run("sh", "-c", "echo up; exec sleep 6000")
    token = mallory.person.client.headers["Authorization"].partition(" ")[2]
    opened = mallory.person.client.post("/session", json={"token": token}).raise_for_status()
    cookie = opened.cookies["phalanx_session"]
    mallory.person.client.cookies.clear()
    with pytest.raises(InvalidStatus) as refused:
        mallory.enter(f"{job}/exec", cookie)
    assert refused.value.response.status_code == 401


def test_a_log_without_end_takes_the_turns_of_who_reads_it_only(mallory: Mallory, alice: Person) -> None:
    made = {"queue": "blue", "gpus": 1, "command": ["echo", "hello"]}
    other: str = alice.client.post("/jobs", json=made).raise_for_status().json()["id"]
    mallory.server.wait(other, "succeeded")
    script = "import os, time; os.ftruncate(1, 8 << 30); print('up', flush=True); time.sleep(6000)"
    job, _ = mallory.run("/usr/bin/python3", "-c", script)
    path = f"/jobs/{job}/log-lines?tail=1000000"
    for _ in range(8):
        with suppress(Exception):
            mallory.person.client.get(path, timeout=0.2)
    assert longest_s(alice, f"/jobs/{other}/logs", "/series", f"/jobs/{other}/log-lines") < AT_ONCE_S


def test_a_read_for_a_caller_that_has_gone_is_broken_off(mallory: Mallory) -> None:
    script = "import os, time; os.ftruncate(1, 64 << 30); print('up', flush=True); time.sleep(6000)"
    job, _ = mallory.run("/usr/bin/python3", "-c", script)
    worker = mallory.server.pid("api")
    for query in ("tail=1000000", "since_ms=1"):
        # What comes is not read: it would be gigabytes.
        path = f"/jobs/{job}/log-lines?{query}"
        with suppress(httpx2.TimeoutException), mallory.person.client.stream("GET", path, timeout=0.5):
            pass
    eventually(lambda: not grows(worker), patience_s=AT_ONCE_S)


def grows(worker: int) -> bool:
    """Whether a process reads megabytes from files now."""
    before = read_bytes(worker)
    time.sleep(0.2)
    return read_bytes(worker) - before > 1 << 20


def read_bytes(worker: int) -> int:
    lines = Path(f"/proc/{worker}/io").read_text().splitlines()
    return int(dict(line.split(": ") for line in lines)["rchar"])
