"""The server under attack: tokens before bodies, bounds on requests, shares of the planner, and damage that is told."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import sqlite3
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest
from running import PATIENCE_S, Server, eventually

REQUEST_S = 2


@pytest.fixture(scope="module")
def hasty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that gives a request two seconds to arrive."""
    options = ("--backend", "rehearsal", "--nodes", "4", "--gpus", "8", "--request-timeout", str(REQUEST_S))
    server = Server(tmp_path_factory.mktemp("hasty"), *options).start()
    yield server
    server.stop()


def connect(server: Server) -> socket.socket:
    parts = urlsplit(server.url)
    return socket.create_connection((parts.hostname or "", parts.port or 0), timeout=PATIENCE_S)


def head(path: str, *headers: str, method: str = "POST") -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: test", *headers, "", ""]).encode()


def answer_of(connection: socket.socket) -> bytes:
    """All that comes until the server closes."""
    answer = b""
    try:
        while piece := connection.recv(1 << 16):
            answer += piece
    except ConnectionError:
        pass
    return answer


def sent_until_closed(connection: socket.socket, begin: bytes, piece: bytes, most: int) -> int:
    """Sends pieces until the server closes; how many bytes it took."""
    sent = 0
    try:
        connection.sendall(begin)
        while sent < most:
            connection.sendall(piece)
            sent += len(piece)
    except OSError:
        pass
    return sent


def member(server: Server, name: str) -> httpx2.Client:
    """A client of a new user who may submit everywhere."""
    server.client.post("/users", json={"name": name}).raise_for_status()
    server.client.put(f"/users/{name}/roles/-", json={"role": "member"}).raise_for_status()
    made = server.client.post("/tokens", json={"name": "test", "user": name}).raise_for_status().json()
    return server.as_user(made["token"])


@contextmanager
def again_and_again(*attacks: Any) -> Iterator[None]:
    """Has each be done again and again meanwhile, in a thread of its own."""
    over = threading.Event()

    def repeat(attack: Any) -> None:
        while not over.is_set():
            attack()

    threads = [threading.Thread(target=repeat, args=(attack,)) for attack in attacks]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()


def seconds_of(ask: Any, times: int) -> list[float]:
    found = []
    for _ in range(times):
        began_s = time.monotonic()
        ask()
        found.append(time.monotonic() - began_s)
    return found


# Tokens before bodies.


@pytest.mark.parametrize("path", ["/api/v1/plan", "/api/v1/what-if", "/api/v1/jobs:batch", "/api/v1/jobs", "/metrics"])
@pytest.mark.parametrize("length", ["Content-Length: 200000", "Transfer-Encoding: chunked"])
def test_a_request_without_a_token_is_refused_before_its_body_is_read(
    rehearsal: Server, path: str, length: str
) -> None:
    with connect(rehearsal) as connection:
        connection.sendall(head(path, "Content-Type: application/json", length))
        answer = answer_of(connection)
    assert answer.startswith(b"HTTP/1.1 401 ")
    assert b"connection: close" in answer.lower()
    assert b'"unauthenticated"' in answer


def test_a_report_of_progress_needs_the_token_of_an_attempt_before_its_body_is_read(rehearsal: Server) -> None:
    stranger = "Authorization: Bearer phx_attempt_1_1_x"
    with connect(rehearsal) as connection:
        connection.sendall(head("/api/v1/jobs/1/progress", stranger, "Content-Length: 1000"))
        assert answer_of(connection).startswith(b"HTTP/1.1 401 ")


@pytest.mark.parametrize(
    ("path", "most"),
    [
        ("/login", 16 << 10),
        ("/session", 16 << 10),
        ("/jobs/1/progress", 256 << 10),
        ("/tokens", 256 << 10),
        ("/plan", 4 << 20),
        ("/what-if", 4 << 20),
        ("/jobs", 4 << 20),
    ],
)
def test_no_body_is_larger_than_what_its_route_carries(rehearsal: Server, path: str, most: int) -> None:
    response = rehearsal.client.post(path, content=b" " * (most + 1))
    assert (response.status_code, response.json()["code"]) == (413, "too_large")
    assert str(most) in response.json()["message"]
    assert rehearsal.client.post(path, content=b" " * most).status_code != 413


def test_routes_that_need_no_token_still_need_none(rehearsal: Server) -> None:
    for path in ("/", "/healthz", "/readyz", "/favicon.ico", "/ui/static/style/base.css"):
        assert httpx2.get(rehearsal.url + path).status_code == 200, path
    assert httpx2.get(rehearsal.url + "/nothing-there").status_code == 404


def batch_of_kinds(count: int) -> bytes:
    """Jobs that have nothing in common, so that each must be read."""
    jobs = [
        {
            "name": f"job-{n}",
            "command": ["python", "train.py", f"--seed={n}"],
            "gpus": 1,
            "begin": "+10h",
            "env": {f"KEY_{k}": "x" * 200 for k in range(8)},
        }
        for n in range(count)
    ]
    return json.dumps({"jobs": jobs}).encode()


def test_large_bodies_of_a_member_do_not_keep_others_waiting(folder: Path) -> None:
    server = Server(folder, "--backend", "rehearsal", "--nodes", "4", "--gpus", "8").start()
    ada, ben = member(server, "ada"), member(server, "ben")
    headers = {"Content-Type": "application/json"}
    plan = json.dumps({"jobs": [{"command": "true", "gpus": 1, "env": {f"K{i}": "x" * 20 for i in range(1_200)}}] * 90})
    assert len(plan) < 4 << 20
    # Refused at the end of the batch, so that it is read as a whole and the store stays small.
    wrong = batch_of_kinds(8_000)[:-2] + b', {"command": "true", "gpus": -1}]}'
    assert 12 << 20 < len(wrong) < 32 << 20

    def post(path: str, body: bytes) -> None:
        status = ada.post(path, content=body, headers=headers).status_code
        assert status in (200, 422, 429, 503), status

    with again_and_again(lambda: post("/plan", plan.encode()), lambda: post("/jobs:batch", wrong)):
        time.sleep(1)
        took = seconds_of(lambda: ben.get("/jobs").raise_for_status(), 100)
    assert statistics.quantiles(took, n=50)[-1] < 2, sorted(took)[-10:]
    server.stop()


def test_one_user_has_few_large_bodies_at_a_time(rehearsal: Server) -> None:
    token, media = f"Authorization: {rehearsal.client.headers['Authorization']}", "Content-Type: application/json"
    begin = head("/api/v1/jobs:batch", token, media, "Content-Length: 9000000", "Expect: 100-continue")
    large = b'{"jobs": [' + b" " * (1 << 20) + b"]}"
    headers = {"Content-Type": "application/json"}
    with ExitStack() as held:
        for _ in range(2):
            connection = held.enter_context(connect(rehearsal))
            connection.sendall(begin)
            assert b"100 Continue" in connection.recv(1 << 16), "the body is waited for"
        refused = rehearsal.client.post("/jobs:batch", content=large, headers=headers)
        assert (refused.status_code, refused.headers["Retry-After"]) == (429, "1")
        assert rehearsal.client.post("/jobs:batch", json={"jobs": []}).status_code == 422, "small ones are taken"
    eventually(lambda: rehearsal.client.post("/jobs:batch", content=large, headers=headers).status_code == 422)


# Bounds on requests.


@pytest.mark.parametrize(
    ("begin", "piece"),
    [
        (b"GET /healthz HTTP/1.1\r\nHost: x\r\n", b"".join(b"X-%d: %s\r\n" % (n, b"y" * 1000) for n in range(200))),
        (b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Long: ", b"y" * 200_000),
        (b"GET /healthz?", b"y" * 200_000),
        (b"POST /api/v1/login HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX-Trailer: ", b"y" * 200_000),
    ],
    ids=["many headers", "a long header", "a long address", "a long trailer"],
)
def test_headers_of_more_than_64_kb_are_refused(rehearsal: Server, begin: bytes, piece: bytes) -> None:
    with connect(rehearsal) as connection:
        sent = sent_until_closed(connection, begin, piece, 150 << 20)
        answer = answer_of(connection)
    assert sent < 16 << 20
    assert answer.startswith((b"HTTP/1.1 431 ", b"HTTP/1.1 422 ")), answer[:100]


def test_headers_of_exactly_what_is_allowed_are_taken_and_one_more_byte_is_not(rehearsal: Server) -> None:
    for more, status in ((0, b"200"), (1, b"431")):
        line, host = b"GET /healthz HTTP/1.1\r\n", b"Host: test\r\n"
        filling = (64 << 10) - len(line) - len(host) - len(b"X: \r\n\r\n") + more
        with connect(rehearsal) as connection:
            connection.sendall(line + host + b"X: " + b"y" * filling + b"\r\n\r\n")
            assert connection.recv(1 << 16).split(b" ")[1] == status


@pytest.mark.parametrize(
    "half",
    [
        b"",
        b"GET /healthz HT",
        b"GET /healthz HTTP/1.1\r\nHost: x\r\n",
        b"POST /api/v1/login HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{",
        b"POST /nothing-there HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{",
        b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\nGET /healthz",
    ],
    ids=["nothing", "line", "headers", "body", "answered early", "second of two"],
)
def test_a_request_that_does_not_arrive_in_time_is_closed(hasty: Server, half: bytes) -> None:
    with connect(hasty) as connection:
        connection.sendall(half)
        began_s = time.monotonic()
        answer_of(connection)
        assert time.monotonic() - began_s < REQUEST_S + 3


def whole_answer(connection: socket.socket) -> bytes:
    """What `/healthz` answers, in however many pieces it comes."""
    answer = b""
    while not answer.endswith(b'{"alive":true}'):
        piece = connection.recv(1 << 16)
        assert piece, f"closed after {answer!r}"
        answer += piece
    return answer


def test_an_empty_line_after_an_answer_keeps_no_connection_open(hasty: Server) -> None:
    with connect(hasty) as connection:
        connection.sendall(head("/healthz", method="GET"))
        assert whole_answer(connection).startswith(b"HTTP/1.1 200 ")
        connection.sendall(b"\r\n")
        began_s = time.monotonic()
        answer_of(connection)
        assert time.monotonic() - began_s < REQUEST_S + 3


def test_a_request_that_comes_byte_by_byte_is_closed_in_time_too(hasty: Server) -> None:
    began_s = time.monotonic()
    with connect(hasty) as connection:
        sent_until_closed(connection, b"GET /healthz HTTP/1.1\r\nX: ", b"y", 0)
        while time.monotonic() - began_s < REQUEST_S + 5:
            try:
                connection.sendall(b"y")
            except OSError:
                break
            time.sleep(0.05)
    assert time.monotonic() - began_s < REQUEST_S + 3


def test_six_hundred_half_sent_requests_are_gone_after_a_while_and_others_are_served(hasty: Server) -> None:
    with ExitStack() as held:
        opened = [held.enter_context(connect(hasty)) for _ in range(600)]
        for connection in opened:
            connection.sendall(b"POST /api/v1/plan HTTP/1.1\r\nHost: x\r\n")
        assert max(seconds_of(lambda: hasty.client.get("/jobs").raise_for_status(), 20)) < 1
        for connection in opened:
            connection.settimeout(REQUEST_S + 10)
            answer_of(connection)


def test_a_stream_goes_on_for_longer_than_a_request_may_take_to_arrive(hasty: Server) -> None:
    with hasty.client.stream("GET", "/events", params={"follow": "true"}) as stream:
        assert stream.status_code == 200
        lines = stream.iter_lines()
        time.sleep(REQUEST_S + 2)
        job = hasty.submit(name="late", gpus=1, duration="1ms")
        assert any("late" in line or job["id"] in line for line in lines)


def test_a_connection_that_is_kept_alive_may_rest_for_longer_than_a_request_may_take(hasty: Server) -> None:
    with connect(hasty) as connection:
        for _ in range(2):
            connection.sendall(head("/healthz", method="GET"))
            assert whole_answer(connection).startswith(b"HTTP/1.1 200 ")
            time.sleep(REQUEST_S + 1)


def test_requests_in_a_row_on_one_connection_are_answered_in_their_order(hasty: Server) -> None:
    with connect(hasty) as connection:
        connection.sendall(head("/healthz", method="GET") * 3 + head("/readyz", "Connection: close", method="GET"))
        answer = answer_of(connection)
    assert answer.count(b"HTTP/1.1 200 ") == 4
    assert answer.count(b'"alive"') == 3
    assert answer.rstrip().endswith(b"}")
    assert b'"ready"' in answer.rpartition(b"HTTP/1.1")[2]


def test_one_address_opens_a_thousand_connections_at_most(hasty: Server) -> None:
    with ExitStack() as held:
        for _ in range(1_000):
            held.enter_context(connect(hasty))
        eventually(lambda: b" 429 " in _first_line_of_one_more(hasty), every_s=0.1)
    eventually(lambda: b" 200 " in _first_line_of_one_more(hasty), every_s=0.1)


def _first_line_of_one_more(server: Server) -> bytes:
    with connect(server) as connection:
        try:
            connection.sendall(head("/healthz", method="GET"))
            return connection.recv(1 << 16).partition(b"\r\n")[0]
        except ConnectionError:
            return b""


# Shares of the planner.


def test_plans_of_one_member_keep_nobody_from_asking_why(folder: Path) -> None:
    server = Server(folder, "--backend", "rehearsal", "--nodes", "64", "--gpus", "8").start()
    filled = [{"command": "true", "gpus": 8, "duration": f"{n + 1}m", "name": f"job-{n}"} for n in range(600)]
    server.client.post("/jobs:batch", json={"jobs": filled}).raise_for_status()
    ada, ben = member(server, "ada"), member(server, "ben")
    wanted = {"jobs": [{"command": "true", "gpus": 8, "duration": "1h"}] * 100}

    def plan() -> None:
        answer = ada.post("/plan", json=wanted)
        assert answer.status_code in (200, 429), answer.text
        if answer.status_code == 429:
            time.sleep(float(answer.headers["Retry-After"]))

    job = ben.get("/jobs", params={"state": "waiting"}).json()["items"][0]["id"]
    ben.get(f"/jobs/{job}/why").raise_for_status()
    with again_and_again(*[plan] * 8):
        time.sleep(1)
        whys = [ben.get(f"/jobs/{job}/why") for _ in range(20)]
        plans = [ben.post("/plan", json={"jobs": [{"command": "true", "gpus": 8}]}) for _ in range(2)]
    assert [answer.status_code for answer in whys] == [200] * 20
    assert [answer.status_code for answer in plans] == [200] * 2
    server.stop()


def test_a_visitor_of_the_planner_that_says_nothing_keeps_nobody_waiting(folder: Path) -> None:
    server = Server(folder, "--backend", "rehearsal").start()
    job = server.submit(gpus=1, begin="+1h")
    eventually(lambda: server.client.get(f"/jobs/{job['id']}/why").status_code == 200)
    with ExitStack() as held:
        for _ in range(20):
            silent = held.enter_context(socket.socket(socket.AF_UNIX))
            silent.connect(str(folder / "run" / "planner.sock"))
            silent.sendall(b"\x93")
        for _ in range(5):
            assert server.client.get(f"/jobs/{job['id']}/why").status_code == 200
    server.stop()


# A loop that stands still, or is gone.


def test_a_server_whose_loop_stands_still_is_not_ready(folder: Path) -> None:
    server = Server(folder, "--backend", "rehearsal").start()
    loop = server.pid("loop")

    def readiness(status: int) -> dict[str, Any] | None:
        answer = httpx2.get(server.url + "/readyz")
        return dict(answer.json()) if answer.status_code == status else None

    assert readiness(200)
    os.kill(loop, signal.SIGSTOP)
    try:
        began_s = time.monotonic()
        told = eventually(lambda: readiness(503), patience_s=15)
        assert 3 < time.monotonic() - began_s < 10
        assert "has not" in told["why"]
        assert "engine" in told["why"]
    finally:
        os.kill(loop, signal.SIGCONT)
    eventually(lambda: readiness(200), patience_s=15)
    server.stop()


def test_a_server_that_rests_stays_ready(folder: Path) -> None:
    server = Server(folder, "--backend", "rehearsal").start()
    for _ in range(14):
        assert httpx2.get(server.url + "/readyz").status_code == 200
        time.sleep(0.5)
    server.stop()


def test_requests_while_the_loop_is_killed_again_and_again_are_taken_or_told_to_come_again(folder: Path) -> None:
    server = Server(folder, "--backend", "rehearsal").start()
    answers: list[httpx2.Response] = []
    token = server.client.headers["Authorization"]

    def post() -> None:
        with httpx2.Client(base_url=f"{server.url}/api/v1", headers={"Authorization": token}, timeout=30) as client:
            for _ in range(20):
                answers.append(client.post("/jobs", json={"command": "true", "gpus": 1, "begin": "+1h"}))

    with again_and_again(*[post] * 12):
        for _ in range(4):
            eventually(lambda: httpx2.get(server.url + "/readyz").status_code == 200)
            before = len(answers)
            eventually(lambda before=before: len(answers) > before + 40)
            server.kill("loop")
        eventually(lambda: httpx2.get(server.url + "/readyz").status_code == 200)
    assert {answer.status_code for answer in answers} == {201, 503}
    assert all("Retry-After" in answer.headers for answer in answers if answer.status_code == 503)
    server.stop()


# Damage that is told.

PAGE_BYTES = 4096


def filled(folder: Path) -> Server:
    """A server that holds some thousand jobs, stopped."""
    server = Server(folder, "--backend", "rehearsal", "--nodes", "4", "--gpus", "8").start()
    jobs = [{"command": "true", "gpus": 1, "name": f"job-{n}", "begin": "+10h"} for n in range(2_000)]
    server.client.post("/jobs:batch", json={"jobs": jobs}).raise_for_status()
    server.stop()
    # Processes that had to be killed at the stop leave what they wrote last in a file beside the store.
    with closing(sqlite3.connect(server.data / "phalanx.db")) as connection:
        assert connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0
    return server


def smear(folder: Path, share: float = 0.3) -> None:
    """Writes random bytes over pages in the middle of the store; the first pages are left as they are."""
    random_bytes = random.Random(7)
    store = folder / "phalanx.db"
    pages = store.stat().st_size // PAGE_BYTES
    with store.open("r+b") as file:
        for page in range(4, pages):
            if random_bytes.random() < share:
                file.seek(page * PAGE_BYTES)
                file.write(random_bytes.randbytes(PAGE_BYTES))


def up_fails_of(folder: Path) -> str:
    """What `up` says when it cannot start, which is no traceback in any log either."""
    command = [sys.executable, "-m", "phalanx", "up", "--data", str(folder), "--listen", "127.0.0.1:0"]
    ended = subprocess.run([*command, "--backend", "rehearsal"], capture_output=True, text=True, timeout=PATIENCE_S)
    assert ended.returncode != 0
    assert "Traceback" not in ended.stderr
    assert "Traceback" not in (folder / "log" / "loop.log").read_text()
    return ended.stderr


@pytest.mark.parametrize("harm", ["smeared", "truncated", "emptied", "a line of the journal", "a setting"])
def test_a_store_that_is_damaged_is_told_as_such_by_up(folder: Path, harm: str) -> None:
    filled(folder)
    store = folder / "phalanx.db"
    if harm == "smeared":
        smear(folder)
    elif harm == "truncated":
        os.truncate(store, store.stat().st_size // 2)
    elif harm == "emptied":
        os.truncate(store, 0)
    else:
        with sqlite3.connect(store) as connection:
            if harm == "a setting":
                connection.execute(
                    "INSERT OR REPLACE INTO settings (key, value) VALUES ('notices', ?)", (b"\x00\xff{",)
                )
            else:
                connection.execute("DELETE FROM snapshots")
                connection.execute("UPDATE journal SET line = ? WHERE seq = 5", (b'{"seq": 5}',))
        connection.close()
    told = up_fails_of(folder)
    assert "the store is damaged" in told
    assert "put a backup in its place" in told


def test_reads_of_a_store_that_is_smeared_meanwhile_tell_of_the_damage_and_are_no_defect(folder: Path) -> None:
    server = filled(folder).start()
    smear(folder, 0.9)
    ids = [str(number) for number in range(1, 2_000, 50)]
    answers = [server.client.get(f"/jobs/{job}") for job in ids]
    answers += [server.client.get("/jobs", params={"cursor": ""}), server.client.get("/queues")]
    # Pages that are in memory can still be read.
    assert {answer.status_code for answer in answers} <= {200, 401, 503, 404}, [a.text for a in answers][:3]
    told = [answer.json() for answer in answers if answer.status_code == 503]
    assert any("the store is damaged" in each["message"] for each in told)
    server.kill()


def test_a_setting_that_cannot_be_read_is_told_to_who_asks(folder: Path) -> None:
    server = filled(folder).start()
    with sqlite3.connect(folder / "phalanx.db", timeout=10) as connection:
        connection.execute("UPDATE settings SET value = ? WHERE key = 'cluster'", (b"\x00\xff{",))
    connection.close()
    answer = server.client.get("/cluster")
    assert answer.status_code == 503
    assert "the store is damaged" in answer.json()["message"]
    server.kill()


# The store's password.

SECRET = "hunter2-and-more"


def test_a_store_that_cannot_be_reached_is_told_without_its_password(folder: Path) -> None:
    command = [sys.executable, "-m", "phalanx", "up", "--data", str(folder), "--listen", "127.0.0.1:0"]
    store = ["--store", f"postgresql://ada:{SECRET}@127.0.0.1:1/nothing?connect_timeout=2"]
    ended = subprocess.run([*command, *store], capture_output=True, text=True, timeout=PATIENCE_S)
    assert ended.returncode != 0
    assert "postgresql://ada:***@127.0.0.1:1/nothing" in ended.stderr
    assert "PHALANX_STORE" in ended.stderr, "it is said how else to tell"
    written = [path for path in folder.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]
    assert (SECRET in ended.stderr + ended.stdout, written) == (False, [])


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("postgresql://ada:s3c@h/d", "postgresql://ada:***@h/d"),
        ("postgresql://ada:s3c/?@x@h/d", "postgresql://ada:***@h/d"),
        ("postgresql://h:5432/d?user=ada&password=s3c&a=b", "postgresql://h:5432/d?user=ada&password=***&a=b"),
        ("postgresql://ada@h:5432/d", "postgresql://ada@h:5432/d"),
        ("sqlite:////var/lib/phalanx.db", "sqlite:////var/lib/phalanx.db"),
    ],
)
def test_a_url_is_shown_without_its_password(url: str, told: str) -> None:
    from phalanx.server.store.database import has_password, shown

    assert shown(url) == told
    assert has_password(url) == ("s3c" in url)


@pytest.mark.needs("postgres")
def test_the_password_of_the_store_is_in_no_argument_no_log_and_no_bundle(
    database: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PHALANX_STORE", database.replace("phalanx@", f"phalanx:{SECRET}@"))
    server = Server(folder, "--backend", "rehearsal", "--nodes", "2").start()
    server.wait(server.submit(gpus=1, duration="1ms")["id"], "succeeded")
    assert not (folder / "phalanx.db").exists()
    for part in ("loop", "api", "planner"):
        process = Path(f"/proc/{server.pid(part)}")
        assert SECRET not in (process / "cmdline").read_text()
        assert SECRET not in (process / "environ").read_text()
    bundle = server.client.get("/debug/bundle").raise_for_status().content
    pages = server.client.get(server.url + "/").text + server.client.get("/backends").text
    assert SECRET.encode() not in bundle + pages.encode()
    server.stop()
    assert [path for path in folder.rglob("*.log") if SECRET in path.read_text()] == []
