"""How soon other users are answered while one user, or a stranger, attacks the server."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from pathlib import Path

from phalanx.bench.row import Row, Tell, quantile, row
from phalanx.bench.server.live import API, Client, LiveServer

TARGET_MS = 300.0
PATIENCE_S = 30.0
SETTLE_S = 1.0
"""How long an attack goes on before it is measured."""

OTHER, ATTACKER = "ben", "mallory"
PASSWORD = "a password of the benchmark"


@dataclass(frozen=True, slots=True)
class Size:
    """How long each attack lasts, how large it is, and how many jobs the server holds."""

    seconds: float
    execs: int
    log_ins: int
    body_mb: int
    headers_mb: int
    half_sent: int
    jobs: int


FULL = Size(seconds=5, execs=8, log_ins=40, body_mb=31, headers_mb=150, half_sent=600, jobs=200)
QUICK = Size(seconds=0.5, execs=2, log_ins=4, body_mb=1, headers_mb=1, half_sent=20, jobs=20)


@dataclass(frozen=True, slots=True)
class Target:
    """A server as an attacker sees it."""

    host: str
    port: int
    token: str
    job: str
    size: Size

    def connect(self) -> socket.socket:
        """A connection of its own."""
        return socket.create_connection((self.host, self.port), timeout=PATIENCE_S)

    def post(self, path: str, body: bytes, token: str = "") -> int:
        """The status of one request."""
        connection = HTTPConnection(self.host, self.port, timeout=PATIENCE_S)
        headers = {"Content-Type": "application/json"}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        try:
            connection.request("POST", f"{API}{path}", body, headers)
            return connection.getresponse().status
        finally:
            connection.close()


def nothing(target: Target) -> None:
    """No attack: what reads take on this machine."""
    threading.Event().wait()


def log_ins(target: Target) -> None:
    """Log-ins with a wrong password, many at a time."""
    body = json.dumps({"user": ATTACKER, "password": "not the password"}).encode()
    _at_once(target.size.log_ins, lambda: target.post("/login", body))


def anonymous_plans(target: Target) -> None:
    """Large plans without a token."""
    job = json.dumps({"command": "true", "gpus": 1, "env": {f"K{n}": "x" * 40 for n in range(1_000)}})
    body = b'{"jobs": [' + b",".join([job.encode()] * ((target.size.body_mb << 20) // len(job))) + b"]}"
    _at_once(2, lambda: target.post("/plan", body))


def plans(target: Target) -> None:
    """Plans of one member, four at a time."""
    jobs = [{"command": "true", "gpus": 8, "duration": f"{n + 1}m"} for n in range(100)]
    body = json.dumps({"jobs": jobs}).encode()
    _at_once(4, lambda: target.post("/plan", body, target.token))


def headers(target: Target) -> None:
    """Requests of endless headers."""
    piece = b"".join(b"X-%d: %s\r\n" % (n, b"y" * 1000) for n in range(64))

    def attack() -> None:
        with target.connect() as connection:
            connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: bench\r\n")
            for _ in range((target.size.headers_mb << 20) // len(piece)):
                connection.sendall(piece)

    _at_once(1, attack)


def half_sent(target: Target) -> None:
    """Requests that never end, opened again when they are closed."""

    def attack() -> None:
        with ExitStack() as held:
            opened = [held.enter_context(target.connect()) for _ in range(target.size.half_sent)]
            for connection in opened:
                connection.sendall(b"POST /api/v1/plan HTTP/1.1\r\nHost: bench\r\n")
            opened[0].settimeout(None)
            opened[0].recv(1)

    _at_once(1, attack)


def execs(target: Target) -> None:
    """Commands beside a job that say nothing and do not end."""
    from websockets.sync.client import connect

    url = f"ws://{target.host}:{target.port}{API}/jobs/{target.job}/exec?arg=sleep&arg=3600"
    authorization = {"Authorization": f"Bearer {target.token}"}
    with ExitStack() as held:
        held.enter_context(connect(url, additional_headers=authorization, open_timeout=PATIENCE_S))
        for _ in range(target.size.execs - 1):
            # A server may bound how many it opens.
            with suppress(Exception):
                held.enter_context(connect(url, additional_headers=authorization, open_timeout=PATIENCE_S))
        threading.Event().wait()


ATTACKS: dict[str, tuple[Callable[[Target], None], str]] = {
    "no attack": (nothing, "rehearsal"),
    "open execs": (execs, "local"),
    "log-ins": (log_ins, "rehearsal"),
    "anonymous plans": (anonymous_plans, "rehearsal"),
    "plans of a member": (plans, "rehearsal"),
    "long headers": (headers, "rehearsal"),
    "half-sent requests": (half_sent, "rehearsal"),
}


def run(size: Size, tell: Tell) -> list[Row]:
    """Reads of another user under each attack, on a server of its own each time."""
    rows: list[Row] = []
    for name, (attack, backend) in ATTACKS.items():
        tell(f"server: reads of others under {name}")
        with _server(backend) as server:
            target, other = _filled(server, size, backend)
            with _attacked(attack, target):
                time.sleep(SETTLE_S)
                seen = asyncio.run(_watch(server, other, target.job, size.seconds))
        for kind, (times_s, refused) in seen.items():
            p99_s = quantile(times_s, 0.99)
            rows.append(
                row(f"{kind} of others under {name}, p99", None if p99_s is None else 1000 * p99_s, "ms", TARGET_MS)
            )
            rows.append(row(f"{kind} refused to others under {name}", refused, "answers", 0))
    return rows


@contextmanager
def _server(backend: str) -> Iterator[LiveServer]:
    nodes = "64" if backend == "rehearsal" else "2"
    with tempfile.TemporaryDirectory(prefix="phalanx-bench-") as folder:
        server = LiveServer(Path(folder), "--backend", backend, "--nodes", nodes, "--gpus", "8")
        server.start()
        try:
            yield server
        finally:
            with suppress(Exception):
                server.ask("POST", f"{API}/jobs/1:cancel")
            server.stop()


def _filled(server: LiveServer, size: Size, backend: str) -> tuple[Target, str]:
    """Two members and some jobs; what the attacker knows, and the token of the other."""
    tokens = {}
    for user in (ATTACKER, OTHER):
        _done(server.ask("POST", f"{API}/users", {"name": user, "password": PASSWORD}))
        _done(server.ask("PUT", f"{API}/users/{user}/roles/-", {"role": "member"}))
        tokens[user] = _done(server.ask("POST", f"{API}/tokens", {"name": "bench", "user": user}))["token"]
    if backend == "local":
        mine = {"user": ATTACKER, "gpus": 1, "command": ["sleep", "3600"], "name": "attacked"}
        job = _done(server.ask("POST", f"{API}/jobs", mine))["id"]
        deadline_s = time.monotonic() + PATIENCE_S
        while server.ask("GET", f"{API}/jobs/{job}")[1]["state"] != "running" and time.monotonic() < deadline_s:
            time.sleep(0.1)
    else:
        jobs = [{"command": "true", "gpus": 8, "duration": f"{n + 1}h"} for n in range(size.jobs)]
        job = _done(server.ask("POST", f"{API}/jobs:batch", {"jobs": jobs}))["ids"][min(64, size.jobs - 1)]
    # The planner starts when the server is ready.
    _done(server.ask("GET", f"{API}/jobs/{job}/why"))
    return Target(server.host, server.port, tokens[ATTACKER], job, size), tokens[OTHER]


def _done(answer: tuple[int, dict[str, str]]) -> dict[str, str]:
    status, body = answer
    if status >= 400:
        raise RuntimeError(f"refused with {status}: {body}")
    return body


@contextmanager
def _attacked(attack: Callable[[Target], None], target: Target) -> Iterator[None]:
    """Has another process attack meanwhile: this one measures."""
    process = multiprocessing.get_context("spawn").Process(target=attack, args=(target,), daemon=True)
    process.start()
    try:
        yield
        if not process.is_alive():
            raise RuntimeError(f"the attack {attack.__name__} ended by itself: nothing was measured")
    finally:
        process.kill()
        process.join()


def _at_once(count: int, attack: Callable[[], object]) -> None:
    """Attacks again and again, so many at a time, until this process is killed."""

    def repeat() -> None:
        while True:
            with suppress(OSError, HTTPException):
                attack()

    for _ in range(count):
        threading.Thread(target=repeat, daemon=True).start()
    threading.Event().wait()


async def _watch(server: LiveServer, token: str, job: str, seconds: float) -> dict[str, tuple[list[float], int]]:
    """What another user waits for answers meanwhile, and how many are refused, by what is asked."""
    head = f"HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer {token}\r\n\r\n"
    asked = {"why": f"GET {API}/jobs/{job}/why {head}", "jobs": f"GET {API}/jobs?limit=100 {head}"}
    found = await asyncio.gather(*(_ask_for(server, text.encode(), seconds) for text in asked.values()))
    return dict(zip(asked, found, strict=True))


async def _ask_for(server: LiveServer, request: bytes, seconds: float) -> tuple[list[float], int]:
    """Asks one time after another; the seconds of each, and how many were refused or not answered."""
    times_s: list[float] = []
    refused = 0
    client = Client(server)
    end_s = time.perf_counter() + seconds
    while time.perf_counter() < end_s:
        began_s = time.perf_counter()
        try:
            status, _ = await asyncio.wait_for(client.ask(request), PATIENCE_S)
            refused += status != 200
        except (OSError, EOFError, TimeoutError):
            refused += 1
            client.close()
            client = Client(server)
        times_s.append(time.perf_counter() - began_s)
    client.close()
    return times_s, refused
