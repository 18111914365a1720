"""kill -9 at any moment: what was acknowledged is there, nothing starts twice, and what ran is found again."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading
import time
from pathlib import Path

import httpx2
import pytest
from running import Server, eventually

from phalanx.bench.server import kills


@pytest.fixture
def local(folder: Path) -> Server:
    return Server(folder, "--backend", "local", "--simulate", "--nodes", "2", "--gpus", "8")


def test_random_kills_under_load_lose_and_double_nothing() -> None:
    rows = {row["name"]: row for row in kills.run(6, lambda line: None)}
    assert [name for name, row in rows.items() if row["met"] is False] == []


def test_a_job_that_runs_when_all_is_killed_is_found_again_and_ends_once(local: Server, folder: Path) -> None:
    local.start()
    ledger = folder.parent / "ledger"
    script = (
        f'echo "$PHALANX_ATTEMPT" >> {ledger}; for i in $(seq 1000); do [ -e {ledger}.go ] && exit 0; sleep 0.1; done'
    )
    job = local.submit(gpus=1, command=["bash", "-c", script])
    local.wait(job["id"], "running")
    local.kill()
    local.start()
    found = local.job(job["id"])
    assert (found["state"], found["attempts"]) == ("running", 1)
    Path(f"{ledger}.go").touch()
    local.wait(job["id"], "succeeded")
    assert ledger.read_text() == "1\n"
    local.stop()


def test_jobs_end_as_they_ended_while_nobody_watched(local: Server, folder: Path) -> None:
    local.start()
    mark = folder.parent / "mark"
    jobs = {
        code: local.submit(
            gpus=1, command=["bash", "-c", f"touch {mark}.{code}; sleep 0.5; touch {mark}.{code}.end; exit {code}"]
        )
        for code in (0, 3)
    }
    eventually(lambda: all(Path(f"{mark}.{code}").exists() for code in jobs))
    local.kill()
    eventually(lambda: all(Path(f"{mark}.{code}.end").exists() for code in jobs))
    local.start()
    assert local.wait(jobs[0]["id"], "succeeded", "failed")["state"] == "succeeded"
    failed = local.wait(jobs[3]["id"], "succeeded", "failed")
    assert (failed["state"], failed["exit_code"], failed["attempts"]) == ("failed", 3, 1)
    local.stop()


def test_a_job_that_ended_while_the_server_was_down_ended_then(local: Server, folder: Path) -> None:
    local.start()
    mark = folder.parent / "mark"
    job = local.submit(gpus=2, command=["bash", "-c", f"until [ -e {mark}.go ]; do sleep 0.02; done"])["id"]
    local.wait(job, "running")
    local.kill()
    Path(f"{mark}.go").touch()
    state = folder / "jobs" / job / "1" / "state.json"
    ending = eventually(lambda: json.loads(state.read_text())["ending"])
    back_ms = int(time.time() * 1000)
    local.start()
    ended = local.wait(job, "succeeded")
    attempt = local.client.get(f"/jobs/{job}/attempts").json()["items"][0]
    assert ended["ended_ms"] == attempt["ended_ms"] == ending["ended_ms"] <= back_ms
    assert ended["executed_before_ms"] == attempt["ended_ms"] - attempt["started_ms"]
    local.stop()


def test_a_key_still_stands_for_its_answer_after_a_crash(folder: Path) -> None:
    server = Server(folder, "--backend", "rehearsal").start()
    body, headers = {"gpus": 1, "command": "true", "begin": "+1h"}, {"Idempotency-Key": "the same"}
    first = server.client.post("/jobs", json=body, headers=headers).json()
    server.kill()
    server.start()
    again = server.client.post("/jobs", json=body, headers=headers)
    assert again.json()["id"] == first["id"]
    assert again.headers["Idempotent-Replay"] == "true"
    assert len(server.client.get("/jobs").json()["items"]) == 1
    server.stop()


def test_lists_are_read_while_the_loop_does_nothing_but_decide(folder: Path) -> None:
    """The loop is held still, as it would be by a decision that takes long."""
    server = Server(folder, "--backend", "rehearsal").start()
    job = server.submit(gpus=1, begin="+1h")
    loop = server.pid("loop")
    os.kill(loop, signal.SIGSTOP)
    try:
        for _ in range(50):
            assert server.client.get("/jobs", timeout=10).json()["items"][0]["id"] == job["id"]
        assert server.client.get(f"/jobs/{job['id']}/why", timeout=30).json()["reason"] == "begin_time"
        late: list[httpx2.Response] = []
        asking = threading.Thread(target=lambda: late.append(server.client.post(f"/jobs/{job['id']}:hold")))
        asking.start()
        assert server.client.get("/jobs", timeout=10).status_code == 200
        assert not late, "a change waits for the loop"
    finally:
        os.kill(loop, signal.SIGCONT)
    asking.join(30)
    assert late[0].status_code == 200
    server.stop()


def test_a_revoked_token_lets_nobody_in_from_the_answer_on_whichever_worker_is_asked(folder: Path) -> None:
    server = Server(folder, "--backend", "rehearsal", "--workers", "2").start()
    for number in range(20):
        made = server.client.post("/tokens", json={"name": f"t{number}"}).raise_for_status().json()
        visitors = [server.as_user(made["token"]) for _ in range(4)]
        assert [visitor.get("/jobs").status_code for visitor in visitors] == [200] * 4
        server.client.delete(f"/tokens/{made['id']}").raise_for_status()
        assert [visitor.get("/jobs").status_code for visitor in visitors] == [401] * 4, f"token {number}"
        for visitor in visitors:
            visitor.close()
    server.stop()


def test_who_asks_while_the_loop_is_gone_is_told_to_ask_again(folder: Path) -> None:
    server = Server(folder, "--backend", "rehearsal").start()
    os.kill(server.pid("loop"), signal.SIGSTOP)
    asked: list[httpx2.Response] = []
    asking = threading.Thread(target=lambda: asked.append(server.client.post("/jobs", json={"command": "true"})))
    asking.start()
    server.kill("loop")
    asking.join(30)
    assert asked[0].status_code == 503
    assert asked[0].json()["code"] == "unavailable"
    assert asked[0].headers["Retry-After"] == "1"
    eventually(lambda: server.client.get(server.url + "/readyz").status_code == 200)
    assert server.submit(gpus=1)["id"] == "1", "what was not acknowledged has not happened"
    server.stop()


@pytest.mark.parametrize("part", ["api", "planner"])
def test_what_is_killed_is_started_again(folder: Path, part: str) -> None:
    server = Server(folder, "--backend", "rehearsal").start()
    job = server.submit(gpus=1, begin="+1h")
    old = server.pid(part)
    server.kill(part)

    def answered() -> bool:
        try:
            return server.client.get(f"/jobs/{job['id']}/why").status_code == 200 and server.pid(part) != old
        except (httpx2.TransportError, AssertionError):
            return False

    eventually(answered)
    server.stop()


def test_a_folder_is_used_by_one_server_at_a_time(folder: Path) -> None:
    from phalanx.server.options import Options
    from phalanx.server.up import UpError, up

    server = Server(folder, "--backend", "rehearsal").start()
    with pytest.raises(UpError, match="another server uses this folder"):
        up(Options(data=str(folder), port=0), lambda options: None, lambda line: None)
    server.stop()


def test_an_address_that_is_taken_is_told(folder: Path, rehearsal: Server) -> None:
    from phalanx.server.options import Options
    from phalanx.server.up import UpError, up

    port = int(rehearsal.url.rpartition(":")[2])
    with pytest.raises(UpError, match="choose another address"):
        up(Options(data=str(folder), port=port), lambda options: None, lambda line: None)


def test_a_store_that_is_damaged_under_a_server_is_told_to_who_asks(folder: Path) -> None:
    server = Server(folder, "--backend", "rehearsal").start()
    server.submit(gpus=1, begin="+1h")
    for name in ("phalanx.db", "phalanx.db-wal"):
        (folder / name).write_bytes(b"no database " * 1000)
    server.kill("loop")

    def told() -> bool:
        answer = server.client.get(server.url + "/readyz")
        return answer.status_code == 503 and "the store is damaged" in answer.json().get("why", "")

    eventually(told)
    assert "put a backup in its place" in server.client.get(server.url + "/readyz").json()["why"]
    server.stop()


def test_a_damaged_store_is_told_to_who_starts_the_server(folder: Path) -> None:
    from phalanx.server.options import Options
    from phalanx.server.up import UpError, up

    folder.mkdir()
    (folder / "phalanx.db").write_bytes(b"no database " * 1000)
    with pytest.raises(UpError, match="damaged"):
        up(Options(data=str(folder), port=0), lambda options: None, lambda line: None)


def test_a_part_that_fails_is_told_of_with_what_it_wrote_last(folder: Path) -> None:
    from phalanx.server.options import Options
    from phalanx.server.up import Part, Tree

    (folder / "log").mkdir(parents=True)
    told: list[str] = []
    with socket.socket() as listener:
        part = Part("alerts", [sys.executable, "-c", "raise SystemExit('no such module: ' + 'x')"])
        tree = Tree(Options(data=str(folder)), listener, told.append, [part])
        tree._start(part)
        assert part.process is not None
        part.process.wait(60)
        tree.watch()
        tree.stop()
    [line] = told
    assert line.startswith("alerts ended (exit code 1) and is started again; ")
    assert line.endswith("alerts.log ends: no such module: x")
