"""`phalanx forward` to tasks of a real server, and what it must not reach."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from live import PATIENCE_S, Phalanx, Server, until

from phalanx.cli.exit import Exit

ECHO = """
import socket, threading
def serve(end):
    while data := end.recv(65536):
        end.sendall(data.upper())
    end.sendall(b"bye")
    end.close()
listener = socket.create_server(("127.0.0.1", 0))
print("port", listener.getsockname()[1], flush=True)
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],)).start()
"""


class Forwarding:
    """`phalanx forward` in a process of its own."""

    def __init__(self, *arguments: str) -> None:
        command = [sys.executable, "-m", "phalanx", "forward", *arguments]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert self.process.stderr is not None
        first = self.process.stderr.readline()
        found = re.match(r"127\.0\.0\.1:(\d+) is port", first)
        assert found, first
        self.port = int(found[1])

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), PATIENCE_S)

    def end(self) -> tuple[int, str]:
        _, told = self.process.communicate(timeout=PATIENCE_S)
        return self.process.returncode, told


@pytest.fixture
def echo(phalanx: Phalanx) -> Iterator[tuple[str, str]]:
    """A job that listens, and its port."""
    job = phalanx("submit", "--gpus", "1", "-o", "json", "--", "python3", "-c", ECHO).data["id"]
    until(lambda: "port" in phalanx("logs", job).out)
    yield job, phalanx("logs", job).out.split()[1]
    phalanx("cancel", job)


def said(end: socket.socket, words: bytes) -> bytes:
    end.sendall(words)
    heard = b""
    while len(heard) < len(words):
        heard += end.recv(65536)
    return heard


def test_many_connections_at_once_reach_the_task_until_the_job_ends(phalanx: Phalanx, echo: tuple[str, str]) -> None:
    job, port = echo
    forwarding = Forwarding(job, f"0:{port}")
    ends = [forwarding.connect() for _ in range(8)]
    large = os.urandom(300_000).hex().encode()
    for number, end in enumerate(ends):
        assert said(end, f"line {number}".encode()) == f"LINE {number}".encode()
    sending = threading.Thread(target=ends[0].sendall, args=(large,))
    sending.start()
    heard = b""
    while len(heard) < len(large):
        heard += ends[0].recv(65536)
    sending.join()
    assert heard == large.upper()
    ends[1].shutdown(socket.SHUT_WR)
    assert ends[1].recv(100) == b"bye"
    assert ends[1].recv(100) == b""
    phalanx("cancel", job)
    code, told = forwarding.end()
    assert code == Exit.JOB_CANCELLED
    assert re.search(rf"job {job} (is stopping|was cancelled): forwarding has ended", told)
    assert ends[2].recv(100) in (b"", b"bye")
    for end in ends:
        end.close()


def test_a_port_that_is_not_the_tasks_own_is_not_reached(phalanx: Phalanx, echo: tuple[str, str]) -> None:
    _, port = echo
    other = phalanx("submit", "--gpus", "1", "-o", "json", "--", "sleep", "600").data["id"]
    until(lambda: phalanx("job", other, "-o", "json").data["state"] == "running")
    with closing(socket.create_server(("127.0.0.1", 0))) as mine:
        for wanted in (port, str(mine.getsockname()[1]), "1"):
            forwarding = Forwarding(other, f"0:{wanted}")
            with forwarding.connect() as end:
                assert end.recv(100) == b""
            assert forwarding.process.stderr is not None
            assert f"nothing of task 0 listens on port {wanted}" in forwarding.process.stderr.readline()
            forwarding.process.terminate()
            forwarding.end()
    phalanx("cancel", other)


def test_a_notebook_is_read_as_from_this_machine(phalanx: Phalanx, tmp_path: Path) -> None:
    serve = "import http.server as h; s = h.ThreadingHTTPServer(('', 0), h.SimpleHTTPRequestHandler); "
    serve += "print(s.server_port, flush=True); s.serve_forever()"
    (tmp_path / "page.txt").write_text("hello")
    arguments = ("--workdir", str(tmp_path), "--gpus", "1", "-o", "json")
    job = phalanx("submit", *arguments, "--", "python3", "-c", serve).data["id"]
    until(lambda: phalanx("logs", job).out)
    forwarding = Forwarding(job, f"0:{phalanx('logs', job).out.strip()}")
    for _ in range(3):
        with urllib.request.urlopen(f"http://127.0.0.1:{forwarding.port}/page.txt", timeout=PATIENCE_S) as answer:
            assert answer.read() == b"hello"
    forwarding.process.terminate()
    forwarding.end()
    audit = phalanx("audit", "-o", "json").data
    assert "forward port of job" in [each["verb"] for each in audit if each["target"] == job]
    phalanx("cancel", job)


def test_a_stranger_is_not_let_through(
    phalanx: Phalanx, server: Server, echo: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    phalanx("users", "add", "trudy", "--role", "member")
    token = phalanx("tokens", "add", "of-trudy", "--user", "trudy").out.strip()
    with monkeypatch.context() as trudy:
        trudy.setenv("PHALANX_TOKEN", token)
        shown = phalanx("forward", echo[0], f"0:{echo[1]}")
    assert (shown.code, "belongs to" in shown.err) == (Exit.REFUSED, True)


@pytest.mark.parametrize("ports", ["", "http", "0", "8888:", ":8888", "70000", "1:70000", "-1", "1:2:3", "٣"])
def test_ports_that_there_are_not_are_a_usage_error(phalanx: Phalanx, ports: str) -> None:
    shown = phalanx("forward", "1", "--", ports)
    assert (shown.code, "expected PORT or LOCAL:PORT" in shown.err) == (Exit.USAGE, True)


def test_what_this_machine_cannot_listen_on_is_told(phalanx: Phalanx, echo: tuple[str, str]) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as mine:
        taken = phalanx("forward", echo[0], f"{mine.getsockname()[1]}:{echo[1]}")
        port = mine.getsockname()[1]
    say = f"name another, as in 9000:{echo[1]}, or 0:{echo[1]} for a free one"
    assert (taken.code, taken.err) == (Exit.ERROR, f"phalanx: port {port} of 127.0.0.1 is in use; {say}\n")
    assert phalanx("forward", echo[0], echo[1], "--address", "192.0.2.1").code == Exit.USAGE
    assert phalanx("forward", "999999", "80").code == Exit.NOT_FOUND
