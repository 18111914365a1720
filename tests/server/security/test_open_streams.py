"""Streams end with the right to them, are bounded in number, need no threads and leave no descriptors behind."""

from __future__ import annotations

import http.client
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import httpx2
import pytest
from running import Server, eventually
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from phalanx.server.api.streams.slots import OpenConnections

QUEUE = "red"
END_S = 2.0
"""How soon a stream ends once the right to it is gone."""

AT_ONCE_S = 2.0
GROWTH_BYTES_MAX = 24 << 20
TYPED_BYTES_MAX = 32 << 20
_numbers = count(1)


@dataclass
class User:
    """A user of the server with one token."""

    name: str
    token: str
    token_id: str
    expires_ms: int | None
    client: httpx2.Client


class Stream:
    """A response that goes on, read over a socket of its own."""

    def __init__(self, server: Server, token: str, path: str) -> None:
        parts = urlsplit(server.url)
        self._line = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=30)
        self._line.request("GET", f"/api/v1{path}", headers={"Authorization": f"Bearer {token}"})
        self.response = self._line.getresponse()
        self.status = self.response.status

    def error(self) -> dict[str, Any]:
        """What the server says it refuses."""
        return dict(json.loads(self.response.read()))

    def first(self) -> bytes:
        """What comes first."""
        return self.response.read1(65536)

    def ends_within(self, seconds: float) -> bool:
        """Whether it ends in time; what comes before the end is passed over."""
        deadline_s = time.monotonic() + seconds
        try:
            while (left_s := deadline_s - time.monotonic()) > 0:
                self.socket.settimeout(left_s)
                if not self.response.read1(65536):
                    return True
        except TimeoutError:
            return False
        except (http.client.HTTPException, OSError):
            return True
        return False

    @property
    def socket(self) -> socket.socket:
        """The socket it comes over."""
        found: socket.socket = self.response.fp.raw._sock  # type: ignore[attr-defined]
        return found

    def close(self) -> None:
        """Hangs up."""
        self.response.close()
        self._line.close()


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("local")
    server = Server(folder / "data", "--backend", "local", "--simulate", "--nodes", "2", "--gpus", "8").start()
    yield server.with_queues(QUEUE)
    server.stop()


@pytest.fixture(scope="module")
def job(local: Server) -> Iterator[str]:
    """A running job of a member of the queue `red`, which has printed a line."""
    made = submit(local, gpus=1, command=["sh", "-c", "echo hello; exec sleep 6000"], grace="1s", queue=QUEUE)
    local.wait(made["id"], "running")
    eventually(lambda: local.client.get(f"/jobs/{made['id']}/logs").text == "hello\n")
    yield str(made["id"])
    cancel(local, made["id"])


def cancel(server: Server, job: str) -> None:
    """Ends a job, which would outlive its server."""
    server.client.post(f"/jobs/{job}:cancel").raise_for_status()
    server.wait(job, "cancelled")


def new_user(server: Server, role: str = "operator", ttl_s: int = 3600) -> User:
    """A user with a role in the queue `red`."""
    name = f"user{next(_numbers)}"
    server.client.post("/users", json={"name": name}).raise_for_status()
    server.client.put(f"/users/{name}/roles/{QUEUE}", json={"role": role}).raise_for_status()
    body = {"name": "test", "user": name, "scopes": ["read", "write"], "ttl_s": ttl_s}
    made = server.client.post("/tokens", json=body).raise_for_status().json()
    return User(name, made["token"], made["id"], made["expires_ms"], server.as_user(made["token"]))


def submit(server: Server, **job: Any) -> dict[str, Any]:
    """Submits a job of a member of the queue, whom its operators may act for."""
    member = new_user(server, "member")
    return dict(member.client.post("/jobs", json=job).raise_for_status().json())


def exec_url(server: Server, job: str, *words: str, **query: str | int) -> str:
    return (
        server.url.replace("http", "ws")
        + f"/api/v1/jobs/{job}/exec?"
        + urlencode([*query.items(), *(("arg", word) for word in words)])
    )


def run_beside(server: Server, user: User, job: str, *words: str, **query: str | int) -> ClientConnection:
    headers = {"Authorization": f"Bearer {user.token}"}
    return connect(exec_url(server, job, *words, **query), additional_headers=headers, close_timeout=1)


def is_running(*words: str) -> bool:
    """Whether a process with these very words runs anywhere on the machine."""
    wanted = b"\0".join(word.encode() for word in words) + b"\0"
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with suppress(OSError):
                if (folder / "cmdline").read_bytes() == wanted:
                    return True
    return False


def unique_sleep() -> tuple[str, str]:
    """A command that lasts, told from all others by how long."""
    return "sleep", f"6000.{os.getpid()}{next(_numbers)}"


def revoke(server: Server, user: User) -> None:
    server.client.delete(f"/tokens/{user.token_id}").raise_for_status()


def disable(server: Server, user: User) -> None:
    server.client.patch(f"/users/{user.name}", json={"disabled": True}).raise_for_status()


def delete(server: Server, user: User) -> None:
    server.client.delete(f"/users/{user.name}").raise_for_status()


def take_role(server: Server, user: User) -> None:
    server.client.delete(f"/users/{user.name}/roles/{QUEUE}").raise_for_status()


def expire(server: Server, user: User) -> None:
    assert user.expires_ms is not None
    time.sleep(max(user.expires_ms / 1000 - time.time(), 0))


LOSSES = [revoke, disable, delete, take_role, expire]
Loss = Callable[[Server, User], None]


def lifetime_s(loss: Loss) -> int:
    return 3 if loss is expire else 3600


@pytest.mark.parametrize("loss", LOSSES)
def test_an_event_stream_ends_when_its_caller_loses_the_right(local: Server, job: str, loss: Loss) -> None:
    user = new_user(local, "viewer", lifetime_s(loss))
    stream = Stream(local, user.token, "/events")
    assert stream.first().startswith(b":")
    loss(local, user)
    assert stream.ends_within(END_S)
    stream.close()


@pytest.mark.parametrize("loss", LOSSES)
def test_a_followed_log_ends_when_its_caller_loses_the_right(local: Server, job: str, loss: Loss) -> None:
    user = new_user(local, "viewer", lifetime_s(loss))
    stream = Stream(local, user.token, f"/jobs/{job}/logs?follow=true")
    assert stream.first() == b"hello\n"
    loss(local, user)
    assert stream.ends_within(END_S)
    stream.close()


@pytest.mark.parametrize("loss", LOSSES)
def test_a_command_beside_a_task_is_hung_up_when_its_caller_loses_the_right(
    local: Server, job: str, loss: Loss
) -> None:
    user, words = new_user(local, "operator", lifetime_s(loss)), unique_sleep()
    with run_beside(local, user, job, *words) as line:
        eventually(lambda: is_running(*words))
        loss(local, user)
        with pytest.raises(ConnectionClosed) as closed:
            line.recv(timeout=END_S)
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1008
    wanted = "role" if loss is take_role else "token"
    assert wanted in closed.value.rcvd.reason
    eventually(lambda: not is_running(*words), END_S)


def test_a_stream_that_is_not_read_ends_too(local: Server, tmp_path: Path) -> None:
    made = submit(
        local, gpus=1, command=["sh", "-c", "yes | head -c 50000000; exec sleep 6000"], grace="1s", queue=QUEUE
    )
    local.wait(made["id"], "running")
    user = new_user(local, "viewer")
    before = gauge(local)
    stream = Stream(local, user.token, f"/jobs/{made['id']}/logs?follow=true")
    eventually(lambda: gauge(local) == before + 1)
    revoke(local, user)
    eventually(lambda: gauge(local) == before, END_S)
    stream.close()
    cancel(local, made["id"])


def test_an_event_stream_shows_what_its_caller_may_see_now(local: Server, job: str) -> None:
    user = new_user(local, "viewer")
    local.client.put(f"/users/{user.name}/roles/blue", json={"role": "viewer"}).raise_for_status()
    stream = Stream(local, user.token, "/events")
    local.client.delete(f"/users/{user.name}/roles/{QUEUE}").raise_for_status()
    hidden = local.submit(gpus=1, queue=QUEUE, begin="+10h")["id"]
    shown = local.submit(gpus=1, queue="blue", begin="+10h")["id"]
    heard = b""
    while f'"id":"{shown}"'.encode() not in heard:
        heard += stream.first()
    assert f'"id":"{hidden}"'.encode() not in heard
    stream.close()


def test_a_command_that_ignores_hanging_up_is_killed_with_all_it_has_started(local: Server, job: str) -> None:
    user, words = new_user(local), unique_sleep()
    script = f"trap '' HUP; {' '.join(words)} & wait; {' '.join(words)}"
    with run_beside(local, user, job, "sh", "-c", script):
        eventually(lambda: is_running(*words))
        revoke(local, user)
        eventually(lambda: not is_running(*words), 15)
    assert local.job(job)["state"] == "running"


def test_exec_tells_that_the_right_was_lost(local: Server, job: str, tmp_path: Path) -> None:
    user, words = new_user(local), unique_sleep()
    verb = begin_verb(local, user, tmp_path, "exec", job, "--", *words)
    eventually(lambda: is_running(*words))
    take_role(local, user)
    out, err = verb.communicate(timeout=30)
    assert (verb.returncode, out) == (4, "")
    assert "no longer has the role" in err
    assert "the connection was closed" in err


@pytest.mark.parametrize("words", [("events",), ("logs", "-f", "JOB"), ("logs", "-f", "--attempt", "1", "JOB")])
def test_verbs_that_follow_tell_that_the_token_is_gone(
    local: Server, job: str, tmp_path: Path, words: tuple[str, ...]
) -> None:
    user = new_user(local)
    before = gauge(local)
    verb = begin_verb(local, user, tmp_path, *(job if word == "JOB" else word for word in words))
    eventually(lambda: gauge(local) > before)
    revoke(local, user)
    err = verb.communicate(timeout=30)[1]
    assert verb.returncode == 4
    assert "phalanx login" in err


def begin_verb(server: Server, user: User, folder: Path, *words: str) -> subprocess.Popen[str]:
    """Begins a verb as a user."""
    token_file = folder / "token"
    token_file.write_text(user.token)
    return subprocess.Popen(
        [sys.executable, "-m", "phalanx", *words],
        env={**os.environ, "PHALANX_ADDR": server.url, "PHALANX_TOKEN_FILE": str(token_file)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("number", [6, 8])
def test_open_commands_stop_nobodys_logs_and_lists(local: Server, job: str, number: int) -> None:
    user, other = new_user(local), new_user(local, "viewer")
    with ExitStack() as lines:
        for _ in range(number):
            lines.enter_context(run_beside(local, user, job, "cat"))
        before_s = time.monotonic()
        assert other.client.get(f"/jobs/{job}/logs", timeout=AT_ONCE_S).text == "hello\n"
        assert other.client.get("/jobs", timeout=AT_ONCE_S).status_code == 200
        follower = Stream(local, other.token, f"/jobs/{job}/logs?follow=true")
        assert follower.first() == b"hello\n"
        follower.close()
        assert time.monotonic() - before_s < AT_ONCE_S


def test_a_user_has_so_many_commands_open_and_no_more(local: Server, job: str) -> None:
    user = new_user(local)
    with ExitStack() as lines:
        for _ in range(8):
            lines.enter_context(run_beside(local, user, job, "cat"))
        with pytest.raises(InvalidStatus) as refused:
            run_beside(local, user, job, "cat")
        assert refused.value.response.status_code == 429
        told = json.loads(refused.value.response.body or b"")
        assert told["code"] == "rate_limited"
        assert "8" in told["message"]
        assert user.name in told["message"]
        other = new_user(local)
        ends_normally(local, other, job)
    eventually(lambda: not refused_for_now(ends_normally, local, user, job), AT_ONCE_S)


@pytest.mark.parametrize("path", ["/events", "/jobs/{job}/logs?follow=true"])
def test_a_user_has_so_many_streams_open_and_one_that_is_left_makes_room(local: Server, job: str, path: str) -> None:
    user, path = new_user(local, "viewer"), path.format(job=job)
    streams = [Stream(local, user.token, path) for _ in range(32)]
    assert {stream.status for stream in streams} == {200}
    refused = Stream(local, user.token, path)
    assert refused.status == 429
    told = refused.error()
    assert told["code"] == "rate_limited"
    assert "32" in told["message"]
    assert user.client.get("/jobs").status_code == 200
    assert user.client.get(f"/jobs/{job}/logs").status_code == 200
    streams.pop().close()
    eventually(lambda: streams.append(Stream(local, user.token, path)) or streams[-1].status == 200, AT_ONCE_S)
    for stream in [*streams, refused]:
        stream.close()


def gauge(server: Server) -> float:
    text = httpx2.get(f"{server.url}/metrics", headers=dict(server.client.headers)).text
    lines = [line for line in text.splitlines() if line.startswith("phalanx_http_streams")]
    return sum(float(line.rpartition(" ")[2]) for line in lines)


def test_a_stream_that_is_left_is_no_longer_counted(local: Server, job: str) -> None:
    user = new_user(local, "viewer")
    before = eventually(lambda: [gauge(local)])[0]
    streams = [Stream(local, user.token, path) for path in ("/events", f"/jobs/{job}/logs?follow=true")]
    assert eventually(lambda: gauge(local) == before + 2)
    for stream in streams:
        stream.close()
    eventually(lambda: gauge(local) <= before, AT_ONCE_S)


def test_a_browser_that_does_not_read_has_the_command_wait(local: Server, job: str) -> None:
    user = new_user(local)
    with run_beside(local, user, job, "cat", "/dev/zero"):
        grows_little(local)
        assert user.client.get("/jobs", timeout=AT_ONCE_S).status_code == 200


def test_a_command_that_does_not_read_has_its_caller_wait(local: Server, job: str) -> None:
    user, words = new_user(local), unique_sleep()
    with run_beside(local, user, job, *words) as line:
        sent = [0]
        typing = threading.Thread(target=type_on, args=(line, sent), daemon=True)
        typing.start()
        grows_little(local)
        assert sent[0] < TYPED_BYTES_MAX
        assert user.client.get("/jobs", timeout=AT_ONCE_S).status_code == 200
        revoke(local, user)
        eventually(lambda: not is_running(*words), END_S)
    typing.join(10)


def type_on(line: ClientConnection, sent: list[int]) -> None:
    """Types without end, and counts the bytes that were taken."""
    with suppress(OSError, ConnectionClosed):
        while True:
            line.send(b"x" * 65536)
            sent[0] += 65536


def grows_little(server: Server) -> None:
    """The API worker takes no more memory after a while of this than before."""
    before = memory_bytes(server)
    deadline_s = time.monotonic() + 1.5
    while time.monotonic() < deadline_s:
        assert memory_bytes(server) - before < GROWTH_BYTES_MAX
        time.sleep(0.1)


def memory_bytes(server: Server) -> int:
    pages = int(Path(f"/proc/{server.pid('api')}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def test_what_is_typed_is_not_compressed_and_bounded(local: Server, job: str) -> None:
    with run_beside(local, new_user(local), job, "cat") as line:
        assert "Sec-WebSocket-Extensions" not in (line.response.headers if line.response else {})
        line.send(b"x" * ((1 << 20) + 1))
        with pytest.raises(ConnectionClosed) as closed:
            line.recv(timeout=10)
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1009


def test_what_is_typed_and_printed_comes_whole(local: Server, job: str) -> None:
    user, size = new_user(local), 3_000_000
    with run_beside(local, user, job, "cat") as line:
        sent = os.urandom(size)
        for at in range(0, size, 50_000):
            line.send(sent[at : at + 50_000])
        line.send(json.dumps({"eof": True}))
        assert printed_by(line) == (sent, {"exit": 0})


def test_what_is_printed_comes_whole_even_if_the_command_ends_without_reading(local: Server, job: str) -> None:
    user = new_user(local)
    with run_beside(local, user, job, "sh", "-c", "sleep 0.3; head -c 300000 /dev/zero; exit 3") as line:
        with suppress(ConnectionClosed):
            for _ in range(40):
                line.send(b"y" * 65536)
        printed, told = printed_by(line)
        assert (len(printed), told) == (300_000, {"exit": 3})


def test_a_terminal_has_the_size_it_is_given_and_ends_its_input(local: Server, job: str) -> None:
    user = new_user(local)
    with run_beside(local, user, job, "sh", "-c", "stty size; read a; stty size; cat", tty="40x132") as line:
        assert line.recv(timeout=10) == b"40 132\r\n"
        line.send(json.dumps({"resize": [20, 60]}))
        line.send(b"go\n")
        line.send(json.dumps({"eof": True}))
        printed, told = printed_by(line)
    assert b"20 60" in printed
    assert told == {"exit": 0}


def printed_by(line: ClientConnection) -> tuple[bytes, dict[str, Any]]:
    """All that a command prints, and how it ends."""
    printed, told = b"", {}
    for message in line:
        if isinstance(message, bytes):
            printed += message
        else:
            told = json.loads(message)
    return printed, told


def test_a_caller_that_has_gone_has_a_silent_command_hung_up(local: Server, job: str) -> None:
    user, words = new_user(local), unique_sleep()
    with run_beside(local, user, job, *words):
        eventually(lambda: is_running(*words))
    eventually(lambda: not is_running(*words), AT_ONCE_S)


def shepherd_of(server: Server, job: str) -> int:
    """The process that looks after a job's attempt."""
    folder = str(server.data / "jobs" / job / "1")
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
                if folder in words and any("local.shepherd" in word for word in words):
                    return int(entry.name)
    raise AssertionError(f"job {job} has no shepherd")


def handles(*pids: int) -> list[int]:
    return [len(os.listdir(f"/proc/{pid}/fd")) for pid in pids]


def ends_normally(server: Server, user: User, job: str) -> None:
    with run_beside(server, user, job, "echo", "done") as line:
        assert printed_by(line) == (b"done\n", {"exit": 0})


def ends_in_a_terminal(server: Server, user: User, job: str) -> None:
    with run_beside(server, user, job, "echo", "done", tty="24x80") as line:
        assert printed_by(line) == (b"done\r\n", {"exit": 0})


def is_left_by_its_caller(server: Server, user: User, job: str) -> None:
    with run_beside(server, user, job, "cat"):
        pass


def is_cut_off(server: Server, user: User, job: str) -> None:
    with run_beside(server, user, job, "cat", tty="24x80") as line:
        line.socket.shutdown(socket.SHUT_RDWR)


def has_no_such_rank(server: Server, user: User, job: str) -> None:
    with pytest.raises(InvalidStatus, match="404"):
        run_beside(server, user, job, "true", rank=77)


def has_no_such_command(server: Server, user: User, job: str) -> None:
    with run_beside(server, user, job, "/no/such/program") as line:
        assert "no such program" in printed_by(line)[1]["error"]


def is_denied(server: Server, user: User, job: str) -> None:
    with pytest.raises(InvalidStatus):
        run_beside(server, user, "99999", "true")
    with pytest.raises(InvalidStatus):
        connect(exec_url(server, job, "true"))
    with pytest.raises(InvalidStatus):
        run_beside(server, user, job, "true", tty="big")


def is_dropped_in_the_handshake(server: Server, user: User, job: str) -> None:
    parts = urlsplit(exec_url(server, job, "cat"))
    with socket.create_connection((parts.hostname, parts.port)) as line:
        line.sendall(
            f"GET {parts.path}?{parts.query} HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
            f"Authorization: Bearer {user.token}\r\n\r\n".encode()
        )


ENDS = [
    ends_normally,
    ends_in_a_terminal,
    is_left_by_its_caller,
    is_cut_off,
    has_no_such_rank,
    has_no_such_command,
    is_denied,
    is_dropped_in_the_handshake,
]


@pytest.mark.parametrize("end", ENDS)
def test_a_command_leaves_no_descriptors_however_it_ends(
    local: Server, job: str, end: Callable[[Server, User, str], None]
) -> None:
    user = new_user(local)
    pids = local.pid("api"), local.pid("loop"), shepherd_of(local, job)
    end(local, user, job)
    before = settled(pids)
    for _ in range(50):
        eventually(lambda: not refused_for_now(end, local, user, job))
    few = [then + 10 for then in before]  # A connection of the server's own may be open now that was not then.
    eventually(lambda: all(now <= most for now, most in zip(handles(*pids), few, strict=True)), 10)


def refused_for_now(end: Callable[[Server, User, str], None], server: Server, user: User, job: str) -> bool:
    """Whether the caller's commands of a moment ago are still being ended."""
    try:
        end(server, user, job)
    except InvalidStatus as error:
        if error.response.status_code != 429:
            raise
        return True
    return False


def settled(pids: tuple[int, ...]) -> list[int]:
    """How many descriptors processes have once they open and close none."""
    time.sleep(0.5)
    return eventually(lambda: found if (found := handles(*pids)) == handles(*pids) else None)  # type: ignore[no-any-return]


def test_a_shepherd_without_descriptors_refuses_commands_and_goes_on(local: Server, job: str) -> None:
    user, shepherd = new_user(local), shepherd_of(local, job)
    before = settled((shepherd,))
    soft, hard = resource.prlimit(shepherd, resource.RLIMIT_NOFILE)
    highest = max(int(name) for name in os.listdir(f"/proc/{shepherd}/fd"))
    for spare in range(1, 9):
        resource.prlimit(shepherd, resource.RLIMIT_NOFILE, (highest + spare, hard))
        try:
            with run_beside(local, user, job, "echo", "done") as line, suppress(TimeoutError):
                line.recv(timeout=0.5)
        finally:
            resource.prlimit(shepherd, resource.RLIMIT_NOFILE, (soft, hard))
    ends_normally(local, user, job)
    eventually(lambda: handles(shepherd) <= before, 10)
    assert local.job(job)["state"] == "running"


def test_a_shepherd_that_takes_no_connections_keeps_nobody_else_waiting(local: Server) -> None:
    made = submit(local, gpus=1, command=["sleep", "6000"], grace="1s", queue=QUEUE)
    local.wait(made["id"], "running")
    user, shepherd = new_user(local), shepherd_of(local, made["id"])
    folder = os.open(control_of(shepherd), os.O_RDONLY | os.O_DIRECTORY)
    os.kill(shepherd, signal.SIGSTOP)
    with ExitStack() as knocking:
        knocking.callback(os.close, folder)
        knocking.callback(os.kill, shepherd, signal.SIGCONT)
        with suppress(BlockingIOError):
            while True:
                end = knocking.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
                end.setblocking(False)
                end.connect(f"/proc/self/fd/{folder}/control")
        asking = [threading.Thread(target=is_refused, args=(local, user, made["id"]), daemon=True) for _ in range(7)]
        for thread in asking:
            thread.start()
        assert user.client.get("/jobs", timeout=AT_ONCE_S).status_code == 200
        assert user.client.get(f"/jobs/{made['id']}/logs", timeout=AT_ONCE_S).status_code in (200, 404)
        with pytest.raises(InvalidStatus) as refused:
            run_beside(local, user, made["id"], "true")
        assert refused.value.response.status_code == 503
        for thread in asking:
            thread.join(10)
            assert not thread.is_alive()
    ends_normally(local, user, made["id"])
    cancel(local, made["id"])


def is_refused(server: Server, user: User, job: str) -> None:
    with pytest.raises(InvalidStatus):
        run_beside(server, user, job, "true")


def control_of(shepherd: int) -> str:
    """The folder in which a shepherd listens."""
    words = Path(f"/proc/{shepherd}/cmdline").read_bytes().decode().split("\0")
    return next(word for word in words if Path(word, "control").exists())


@pytest.mark.parametrize(
    "number", ["9" * 19, "9" * 25, "1" + "0" * 300, "-1", "+1", "²", "٣", "1_0", " ", "1.0", "0x1"]
)
def test_an_event_id_that_no_record_can_have_is_refused(local: Server, number: str) -> None:
    parts = urlsplit(local.url)
    with socket.create_connection((parts.hostname, parts.port), timeout=30) as line:
        line.sendall(
            b"GET /api/v1/events?follow=false HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
            b"Authorization: " + local.client.headers["Authorization"].encode() + b"\r\n"
            b"Last-Event-ID: " + number.encode() + b"\r\n\r\n"
        )
        answer = b""
        while piece := line.recv(65536):
            answer += piece
    status, body = answer.split(b" ", 2)[1], answer.partition(b"\r\n\r\n")[2]
    if not number.strip():
        assert status == b"200"
        return
    assert status == b"400"
    assert b"Last-Event-ID" in body


def test_the_largest_event_id_is_one_that_no_record_has_yet(local: Server) -> None:
    largest = 1 << 62
    for headers, params in (({"Last-Event-ID": str(largest)}, {}), ({}, {"since": largest}), ({}, {"since": -1})):
        response = local.client.get("/events", params={"follow": "false", **params}, headers=headers)
        assert response.status_code == 200
    for since in (largest + 1, 10**19, 10**30, -2):
        assert local.client.get("/events", params={"since": since}).status_code == 422


def test_the_documents_tell_the_limits() -> None:
    docs = Path(__file__).parents[3] / "docs"
    guide = (docs / "guides" / "server.md").read_text()
    slots = OpenConnections()
    kinds = (
        ("`exec`", slots.execs),
        ("connections of `forward`", slots.forwards),
        ("followed logs", slots.followers),
        ("event streams", slots.streams),
    )
    for row, kind in kinds:
        line = next(line for line in guide.splitlines() if line.startswith(f"| {row}"))
        assert line.endswith(f"| {kind.per_user} | {kind.per_worker} |")
    execs, forwards, followers, streams = (kind for _, kind in kinds)
    told = (
        f"a user has at most {execs.per_user} commands, {forwards.per_user} forwarded ports, "
        f"{followers.per_user} followed logs and {streams.per_user} event streams open, "
        f"and all users together {execs.per_worker}, {forwards.per_worker}, {followers.per_worker} "
        f"and {streams.per_worker}"
    )
    assert told in (docs / "reference" / "rest.md").read_text().replace("\n", " ")
