"""A store that is restored from a backup: ids go on, attempts of the lost time end and are listed."""

from __future__ import annotations

import fcntl
import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from running import Server, eventually

LONG = "for i in $(seq 6000); do sleep 0.1; done"


@pytest.fixture
def server(folder: Path) -> Iterator[Server]:
    """A server of one node with four GPUs that runs jobs as processes. What still runs at the end is ended."""
    made = Server(folder, "--simulate", "--nodes", "1", "--gpus", "4")
    yield made
    end_all_attempts(folder.parent)
    made.stop()


def end_all_attempts(folder: Path) -> None:
    for live in folder.rglob("backend/live/*"):
        job, _, attempt = live.name.rpartition("@")
        paper = live.parents[2] / "jobs" / job / attempt / "state.json"
        if paper.exists():
            state = json.loads(paper.read_text())
            for pid in (state["pid"], *(task["pid"] for task in state["tasks"])):
                if pid and is_alive(pid):
                    os.kill(pid, signal.SIGKILL)


def back_up(server: Server, copy: Path) -> Path:
    """The documented backup, while the server runs."""
    with closing(sqlite3.connect(server.data / "phalanx.db")) as source, closing(sqlite3.connect(copy)) as target:
        source.backup(target)
    return copy


def restore(copy: Path, data: Path) -> None:
    """The documented restore, when the server has ended."""
    eventually(lambda: has_ended(data))
    for end in ("-wal", "-shm"):
        (data / f"phalanx.db{end}").unlink(missing_ok=True)
    shutil.copy(copy, data / "phalanx.db.new")
    (data / "phalanx.db.new").replace(data / "phalanx.db")


def has_ended(data: Path) -> bool:
    """Whether no loop works in a data folder: those of a server that was killed follow it a moment later."""
    if not (data / "backend" / "lock").exists():
        return True
    with (data / "backend" / "lock").open() as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def run(server: Server, script: str = "true", **job: Any) -> str:
    return str(server.submit(**{"gpus": 1, "grace": "5s", **job, "command": ["sh", "-c", script]})["id"])


def printed(server: Server, job: str, attempt: int | None = None) -> str:
    asked = server.client.get(f"/jobs/{job}/logs", params={"attempt": attempt} if attempt else {})
    return asked.text if asked.status_code == 200 else ""


def found(server: Server) -> dict[tuple[str, int], dict[str, Any]]:
    items = server.client.get("/found").raise_for_status().json()["items"]
    return {(item["job"], item["attempt"]): item for item in items}


def incarnation(data: Path) -> str:
    with closing(sqlite3.connect(data / "phalanx.db")) as store:
        (value,) = store.execute("SELECT value FROM settings WHERE key = 'incarnations'").fetchone()
    return str(json.loads(value)[-1]["id"])


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def pid_of(server: Server, job: str, attempt: int = 1) -> int:
    path = server.data / "jobs" / job / str(attempt) / "state.json"
    state = eventually(lambda: path.exists() and (read := json.loads(path.read_text()))["tasks"] and read)
    return int(state["tasks"][0]["pid"])


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_new_jobs_get_new_ids_and_run_after_a_restore(server: Server, folder: Path, tmp_path: Path, how: str) -> None:
    server.start()
    first = run(server, "echo first")
    server.wait(first, "succeeded")
    copy = back_up(server, tmp_path / "copy.db")
    ended = run(server, "echo of the lost time")
    server.wait(ended, "succeeded")
    running = run(server, f"echo of the lost time; {LONG}")
    server.wait(running, "running")
    stray = pid_of(server, running)
    waiting = run(server, "echo never", gpus=4)
    getattr(server, how)()
    restore(copy, folder)
    server.start()
    assert not is_alive(stray), "it held a GPU that the store gives to others"
    lost = {ended, running, waiting}
    fresh = [run(server, "echo new", gpus=4) for _ in range(3)]
    for job in fresh:
        server.wait(job, "succeeded")
        assert printed(server, job) == "new\n"
    assert not lost & set(fresh)
    assert int(fresh[0]) == int(waiting) + 1, "no more ids are skipped than were given"
    assert server.job(first)["state"] == "succeeded"
    assert server.client.get(f"/jobs/{running}").status_code == 404
    listed = found(server)
    assert listed[running, 1]["outcome"] == "stopped"
    assert listed[ended, 1]["outcome"] == "succeeded"
    log = server.client.get(f"/found/{listed[running, 1]['id']}/logs")
    assert (log.status_code, log.text) == (200, "of the lost time\n")


def test_a_job_of_the_backup_goes_on_and_may_still_report(server: Server, folder: Path, tmp_path: Path) -> None:
    server.start()
    job = run(server, f'echo "$PHALANX_PROGRESS_TOKEN"; while [ ! -e {tmp_path}/go ]; do sleep 0.1; done')
    server.wait(job, "running")
    token = eventually(lambda: printed(server, job)).strip()
    copy = back_up(server, tmp_path / "copy.db")
    run(server, "echo of the lost time")
    server.kill()
    restore(copy, folder)
    server.start()
    assert (server.job(job)["state"], server.job(job)["attempts"]) == ("running", 1)
    assert server.as_user(token).post(f"/jobs/{job}/progress", json={"step": 7}).status_code == 200
    (tmp_path / "go").touch()
    assert server.wait(job, "succeeded")["attempts"] == 1
    assert (job, 1) not in found(server)


def test_a_job_of_the_backup_that_ended_in_the_lost_time_ends_as_it_did(
    server: Server, folder: Path, tmp_path: Path
) -> None:
    server.start()
    job = run(server, f"while [ ! -e {tmp_path}/go ]; do sleep 0.1; done; exit 3")
    server.wait(job, "running")
    copy = back_up(server, tmp_path / "copy.db")
    (tmp_path / "go").touch()
    server.wait(job, "failed")
    server.kill()
    restore(copy, folder)
    server.start()
    again = server.wait(job, "failed")
    assert (again["exit_code"], again["attempts"]) == (3, 1)


def test_an_attempt_of_the_lost_time_is_not_taken_for_the_new_one_of_its_number(
    server: Server, folder: Path, tmp_path: Path
) -> None:
    """Attempt 1 fails, the backup is taken while the job waits for its next; attempt 2 of the lost time still runs."""
    server.start()
    script = (
        f'echo "$PHALANX_ATTEMPT $PHALANX_PROGRESS_TOKEN" >> {tmp_path}/tokens; echo "$(wc -l < {tmp_path}/tokens)"; '
        f'[ "$PHALANX_ATTEMPT" = 1 ] && exit 1; {LONG}'
    )
    job = run(server, script, retry={"limit": 3})
    eventually(lambda: server.job(job)["attempts"] == 1 and server.job(job)["state"] == "waiting")
    copy = back_up(server, tmp_path / "copy.db")
    eventually(lambda: server.job(job)["attempts"] == 2)
    stray = pid_of(server, job, 2)
    eventually(lambda: printed(server, job, 2) == "2\n")
    server.kill()
    restore(copy, folder)
    server.start()
    assert not is_alive(stray)
    eventually(lambda: server.job(job)["attempts"] == 2)
    server.wait(job, "running")
    eventually(lambda: printed(server, job, 2) == "3\n")
    listed = found(server)[job, 2]
    assert Path(listed["path"]).name == f"2.{listed['incarnation']}"
    assert (Path(listed["path"]) / "0.out").read_text() == "2\n"
    old, new = [line.split()[1] for line in (tmp_path / "tokens").read_text().splitlines() if line.startswith("2 ")]
    refused = server.as_user(old).post(f"/jobs/{job}/progress", json={"step": 1})
    assert refused.status_code == 409, refused.text
    assert server.as_user(new).post(f"/jobs/{job}/progress", json={"step": 1}).status_code == 200


def test_a_job_that_was_stopped_in_the_lost_time_starts_again(server: Server, folder: Path, tmp_path: Path) -> None:
    server.start()
    job = run(server, LONG)
    server.wait(job, "running")
    copy = back_up(server, tmp_path / "copy.db")
    server.client.post(f"/jobs/{job}:cancel").raise_for_status()
    server.wait(job, "cancelled")
    server.kill()
    restore(copy, folder)
    server.start()
    eventually(lambda: (told := server.job(job))["state"] == "running" and told["attempts"] == 2)


def test_a_job_that_was_resized_in_the_lost_time_starts_again_as_the_store_knows_it(
    server: Server, folder: Path, tmp_path: Path
) -> None:
    server.start()
    gang = [{"role": "worker", "replicas": {"min": 1, "max": 3}, "gpus": 1}]
    job = str(server.submit(gang=gang, grace="5s", command=["sh", "-c", LONG])["id"])
    eventually(lambda: server.job(job)["gpus"] == 3 and server.job(job)["state"] == "running")
    copy = back_up(server, tmp_path / "copy.db")
    server.client.post(f"/jobs/{job}:resize", json={"replicas": 1}).raise_for_status()
    eventually(lambda: server.job(job)["gpus"] == 1)
    server.kill()
    restore(copy, folder)
    server.start()
    eventually(lambda: (told := server.job(job))["attempts"] == 2 and told["state"] == "running")
    assert server.job(job)["gpus"] == 3
    (_, first) = sorted(server.client.get(f"/jobs/{job}/attempts").json()["items"], key=lambda each: -each["number"])
    assert first["reason"].startswith("lost: it was stopped after the backup")


def test_a_stray_gets_notice_and_its_grace_before_its_gpus_are_given_away(
    server: Server, folder: Path, tmp_path: Path
) -> None:
    server.start()
    job = run(server, "echo first", gpus=4)
    server.wait(job, "succeeded")
    waits = run(server, f"[ -e {tmp_path}/saved ] && echo saved", gpus=4, begin="+1h")
    copy = back_up(server, tmp_path / "copy.db")
    run(server, f"trap 'sleep 1; touch {tmp_path}/saved; exit 0' TERM; {LONG}", gpus=4)
    eventually(lambda: list((folder / "backend" / "live").iterdir()))
    pid_of(server, str(int(waits) + 1))
    server.wait(str(int(waits) + 1), "running")
    server.kill()
    restore(copy, folder)
    server.start()
    assert (tmp_path / "saved").exists(), "the first decision is made when it has left"


def test_a_shepherd_that_does_not_answer_is_killed_with_its_tasks(server: Server, folder: Path, tmp_path: Path) -> None:
    server.start()
    copy = back_up(server, tmp_path / "copy.db")
    job = run(server, LONG, grace="0s")
    server.wait(job, "running")
    task = pid_of(server, job)
    shepherd = json.loads((folder / "jobs" / job / "1" / "state.json").read_text())["pid"]
    os.kill(shepherd, signal.SIGSTOP)
    server.kill()
    restore(copy, folder)
    server.start()
    eventually(lambda: not is_alive(task) and not is_alive(shepherd))
    assert found(server)[job, 1]["outcome"] == "lost"


def test_a_restore_into_another_folder_skips_ids_and_starts_anew(server: Server, folder: Path, tmp_path: Path) -> None:
    server.start()
    job = run(server, LONG)
    server.wait(job, "running")
    copy = back_up(server, tmp_path / "copy.db")
    token = (folder / "admin.token").read_text()
    server.client.post(f"/jobs/{job}:cancel").raise_for_status()
    server.wait(job, "cancelled")
    server.stop()
    other = tmp_path / "other"
    other.mkdir()
    restore(copy, other)
    (other / "admin.token").write_text(token)
    moved = Server(other, "--simulate", "--nodes", "1", "--gpus", "4").start()
    try:
        eventually(lambda: (told := moved.job(job))["attempts"] == 2 and told["state"] == "running")
        fresh = run(moved, "echo new")
        moved.wait(fresh, "succeeded")
        assert int(fresh) == 2000
        moved.client.post(f"/jobs/{job}:cancel").raise_for_status()
        moved.wait(job, "cancelled")
    finally:
        moved.stop()


def test_a_store_that_is_restored_twice_keeps_the_ids_of_both_lost_times(
    server: Server, folder: Path, tmp_path: Path
) -> None:
    server.start()
    server.wait(run(server), "succeeded")
    copy = back_up(server, tmp_path / "copy.db")
    seen: list[str] = []
    incarnations = {incarnation(folder)}
    for number in range(3):
        job = run(server, f"echo {number}")
        server.wait(job, "succeeded")
        assert printed(server, job) == f"{number}\n"
        assert job not in seen
        seen.append(job)
        server.kill()
        restore(copy, folder)
        server.start()
        incarnations.add(incarnation(folder))
    assert len(incarnations) == 4
    assert {job for job, _ in found(server)} == set(seen)


def test_a_backup_of_an_older_incarnation_does_not_adopt_what_a_newer_one_started(
    server: Server, folder: Path, tmp_path: Path
) -> None:
    """Two backups, before and after a retry; the older is restored, makes another attempt 2, then the newer is."""
    server.start()
    count = f"echo x >> {tmp_path}/runs; wc -l < {tmp_path}/runs"
    job = run(server, f'{count}; [ "$PHALANX_ATTEMPT" = 1 ] && exit 1; {LONG}', retry={"limit": 5})
    eventually(lambda: server.job(job)["attempts"] == 1 and server.job(job)["state"] == "waiting")
    older = back_up(server, tmp_path / "older.db")
    eventually(lambda: server.job(job)["attempts"] == 2 and server.job(job)["state"] == "running")
    newer = back_up(server, tmp_path / "newer.db")
    server.kill()
    restore(older, folder)
    server.start()
    eventually(lambda: server.job(job)["attempts"] == 2 and server.job(job)["state"] == "running")
    eventually(lambda: printed(server, job, 2) == "3\n")
    server.kill()
    restore(newer, folder)
    server.start()
    eventually(lambda: server.job(job)["attempts"] == 3 and server.job(job)["state"] == "running")
    eventually(lambda: printed(server, job, 3) == "4\n")
    assert printed(server, job, 2) == "", "that attempt 2 is another than the newer backup knows"
    assert len([each for each in server.client.get("/found").json()["items"] if each["attempt"] == 2]) == 2


def test_a_kill_in_the_middle_of_the_first_start_after_a_restore_changes_nothing(
    server: Server, folder: Path, tmp_path: Path
) -> None:
    server.start()
    copy = back_up(server, tmp_path / "copy.db")
    job = run(server, f"trap 'echo told; touch {tmp_path}/told; sleep 2; echo saved; exit 0' TERM; {LONG}")
    server.wait(job, "running")
    pid_of(server, job)
    server.kill()
    restore(copy, folder)
    server.begin()
    eventually((tmp_path / "told").exists)
    server.kill()
    server.start()
    fresh = run(server, "echo new")
    server.wait(fresh, "succeeded")
    assert int(fresh) == int(job) + 1
    listed = found(server)[job, 1]
    assert server.client.get(f"/found/{listed['id']}/logs").text == "told\nsaved\n"


def test_ordinary_restarts_skip_nothing_and_find_nothing(server: Server, folder: Path) -> None:
    server.start()
    first = incarnation(folder)
    going = run(server, LONG)
    server.wait(going, "running")
    for number, end in enumerate((server.kill, server.stop, lambda: server.kill())):
        end()
        server.start()
        assert run(server) == str(number + 2)
        assert incarnation(folder) == first
        assert found(server) == {}
        assert (server.job(going)["state"], server.job(going)["attempts"]) == ("running", 1)
    assert not (folder / "run" / "restored").exists()


def test_a_store_of_an_older_release_gets_an_incarnation_without_a_gap(server: Server, folder: Path) -> None:
    server.start()
    job = run(server, f'echo "$PHALANX_PROGRESS_TOKEN"; {LONG}')
    server.wait(job, "running")
    server.stop()
    make_old(folder)
    order = folder / "jobs" / job / "1" / "order.json"
    written = json.loads(order.read_text())
    del written["incarnation"]
    order.write_text(json.dumps(written))
    server.start()
    assert (server.job(job)["state"], server.job(job)["attempts"]) == ("running", 1)
    assert run(server) == str(int(job) + 1)
    assert found(server) == {}
    old = old_token(folder, job)
    assert server.as_user(old).post(f"/jobs/{job}/progress", json={"step": 7}).status_code == 200


def make_old(folder: Path) -> None:
    """Takes away what a store and a data folder of an older release do not have."""
    (folder / "backend" / "mark").unlink()
    with closing(sqlite3.connect(folder / "phalanx.db")) as store:
        store.execute("DELETE FROM settings WHERE key IN ('incarnations', 'next_id', 'account_changes')")
        store.commit()


def old_token(folder: Path, job: str) -> str:
    from phalanx.server.accounts.tokens import attempt_token

    with closing(sqlite3.connect(folder / "phalanx.db")) as store:
        (secret,) = store.execute("SELECT value FROM settings WHERE key = 'secret'").fetchone()
    return attempt_token(secret, job, 1)


def test_a_backup_of_an_older_release_is_known_by_the_folders_of_jobs(
    server: Server, folder: Path, tmp_path: Path
) -> None:
    server.start()
    server.wait(run(server), "succeeded")
    copy = back_up(server, tmp_path / "copy.db")
    lost = run(server, "echo of the lost time")
    server.wait(lost, "succeeded")
    server.stop()
    restore(copy, folder)
    make_old(folder)
    server.start()
    fresh = run(server, "echo new")
    server.wait(fresh, "succeeded")
    assert (int(fresh), printed(server, fresh)) == (int(lost) + 1, "new\n")


def test_a_store_that_was_deleted_begins_after_the_ids_of_the_one_before(server: Server, folder: Path) -> None:
    server.start()
    lost = run(server, "echo of the lost time")
    server.wait(lost, "succeeded")
    server.stop()
    for path in folder.glob("phalanx.db*"):
        path.unlink()
    server.start()
    fresh = run(server, "echo new")
    server.wait(fresh, "succeeded")
    assert (int(fresh), printed(server, fresh)) == (int(lost) + 1, "new\n")


def test_tokens_and_users_that_were_shut_out_stay_out(server: Server, folder: Path, tmp_path: Path) -> None:
    server.start()
    tokens = {}
    for name in ("ada", "bob", "eve", "kim"):
        server.client.post("/users", json={"name": name}).raise_for_status()
        tokens[name] = server.client.post("/tokens", json={"name": "t", "user": name}).json()
    copy = back_up(server, tmp_path / "copy.db")
    server.client.delete(f"/tokens/{tokens['ada']['id']}").raise_for_status()
    server.client.delete("/users/bob").raise_for_status()
    server.client.patch("/users/eve", json={"disabled": True}).raise_for_status()
    server.client.patch("/users/kim", json={"disabled": True}).raise_for_status()
    server.client.patch("/users/kim", json={"disabled": False}).raise_for_status()
    server.kill()
    restore(copy, folder)
    server.start()
    status = {name: server.as_user(token["token"]).get("/me").status_code for name, token in tokens.items()}
    assert status == {"ada": 401, "bob": 401, "eve": 401, "kim": 200}
    users = {user["name"]: user["disabled"] for user in server.client.get("/users").json()["items"]}
    assert users == {"admin": False, "ada": False, "eve": True, "kim": False}


def test_an_admin_whose_token_was_replaced_in_the_lost_time_gets_a_new_one(
    server: Server, folder: Path, tmp_path: Path
) -> None:
    server.start()
    copy = back_up(server, tmp_path / "copy.db")
    (first,) = server.client.get("/tokens").json()["items"]
    made = server.client.post("/tokens", json={"name": "next", "scopes": ["read", "write", "admin"]}).json()
    server.as_user(made["token"]).delete(f"/tokens/{first['id']}").raise_for_status()
    (folder / "admin.token").write_text(made["token"])
    server.kill()
    restore(copy, folder)
    server.start()
    assert server.client.get("/users").status_code == 200
    listed = {token["id"]: token["revoked_ms"] for token in server.client.get("/tokens").json()["items"]}
    assert listed[first["id"]] is not None


def test_an_idempotency_key_of_a_lost_submission_is_new(server: Server, folder: Path, tmp_path: Path) -> None:
    server.start()
    copy = back_up(server, tmp_path / "copy.db")
    body, headers = {"command": "true", "begin": "+1h"}, {"Idempotency-Key": "k"}
    lost = server.client.post("/jobs", json=body, headers=headers).json()["id"]
    server.kill()
    restore(copy, folder)
    server.start()
    again = server.client.post("/jobs", json=body, headers=headers)
    assert again.status_code == 201
    assert again.json()["id"] != lost


def test_the_start_and_the_audit_log_tell_of_the_restore(server: Server, folder: Path, tmp_path: Path) -> None:
    server.start()
    copy = back_up(server, tmp_path / "copy.db")
    jobs = [run(server, LONG), run(server, begin="+1h")]
    server.wait(jobs[0], "running")
    server.kill()
    restore(copy, folder)
    server.start()
    line = server.told()
    assert "the store was restored" in line
    assert f"2 job ids, {jobs[0]} to {jobs[1]}, are skipped" in line
    assert "1 attempt" in line
    audited = {entry["verb"]: entry for entry in server.client.get("/audit").json()["items"]}
    assert audited["restore store"]["outcome"] == "done"
    assert audited["find attempt"]["target"] == f"{jobs[0]}/1"
    environment = {**os.environ, "PHALANX_ADDR": server.url, "PHALANX_TOKEN_FILE": str(folder / "admin.token")}
    command = [sys.executable, "-m", "phalanx", "jobs", "--found", "-o", "json"]
    (listed,) = json.loads(subprocess.run(command, env=environment, capture_output=True, check=True).stdout)
    assert (listed["job"], listed["outcome"], listed["ran"]) == (jobs[0], "stopped", True)


def test_found_attempts_are_seen_by_those_who_see_the_queue(server: Server, folder: Path, tmp_path: Path) -> None:
    server.start()
    tokens = {}
    for name, queue in (("ada", "red"), ("bob", "blue")):
        server.client.post("/users", json={"name": name}).raise_for_status()
        server.client.put(f"/users/{name}/roles/{queue}", json={"role": "member"}).raise_for_status()
        tokens[name] = server.client.post("/tokens", json={"name": "t", "user": name}).json()["token"]
    copy = back_up(server, tmp_path / "copy.db")
    job = server.as_user(tokens["ada"]).post("/jobs", json={"queue": "red", "command": "echo hello"}).json()["id"]
    server.wait(job, "succeeded")
    server.kill()
    restore(copy, folder)
    server.start()
    (listed,) = server.as_user(tokens["ada"]).get("/found").json()["items"]
    assert (listed["job"], listed["user"], listed["queue"]) == (job, "ada", "red")
    assert server.as_user(tokens["ada"]).get(f"/found/{listed['id']}/logs").text == "hello\n"
    assert server.as_user(tokens["bob"]).get("/found").json()["items"] == []
    assert server.as_user(tokens["bob"]).get(f"/found/{listed['id']}/logs").status_code == 404


def test_a_backup_of_any_moment_can_be_restored(server: Server, folder: Path, tmp_path: Path) -> None:
    """Jobs come and go while the backup is taken; after each restore no id repeats and everything ends."""
    dice = random.Random(7)
    server.start()
    given: set[str] = set()
    for round_ in range(3):
        copy = tmp_path / f"{round_}.db"
        moment = dice.randrange(8)
        for number in range(8):
            if number == moment:
                back_up(server, copy)
            job = run(server, f"echo {round_}.{number}; sleep 0.{dice.randrange(6)}", gpus=dice.randint(1, 3))
            assert job not in given
            given.add(job)
        server.kill()
        restore(copy, folder)
        server.start()
    last = run(server, "echo last", gpus=4)
    server.wait(last, "succeeded")
    assert last not in given
    assert printed(server, last) == "last\n"
    for item in server.client.get("/jobs", params={"limit": 1000}).json()["items"]:
        assert server.wait(item["id"], "succeeded")["attempts"] >= 1


@pytest.mark.skipif(os.getuid() != 0, reason="only a server that is root gives accounts numbers")
def test_a_new_user_does_not_get_the_number_of_one_that_the_backup_does_not_know(
    server: Server, folder: Path, tmp_path: Path
) -> None:
    server.start()
    copy = back_up(server, tmp_path / "copy.db")
    lost = number_of(server, "lost")
    server.kill()
    restore(copy, folder)
    server.start()
    assert number_of(server, "new") != lost


def number_of(server: Server, name: str) -> str:
    """The Unix user that a new account's jobs run as."""
    server.client.post("/users", json={"name": name}).raise_for_status()
    server.client.put(f"/users/{name}/roles/-", json={"role": "member"}).raise_for_status()
    job = run(server, "id -u", user=name)
    server.wait(job, "succeeded")
    return printed(server, job)


def test_a_user_made_anew_does_not_bring_back_the_one_of_its_name_that_was_deleted(
    server: Server, folder: Path, tmp_path: Path
) -> None:
    server.start()
    leaver = {"name": "leaver", "password": "the old password"}
    server.client.post("/users", json=leaver).raise_for_status()
    server.client.put("/users/leaver/roles/-", json={"role": "admin"}).raise_for_status()
    copy = back_up(server, tmp_path / "copy.db")
    server.client.delete("/users/leaver").raise_for_status()
    server.client.post("/users", json={"name": "leaver"}).raise_for_status()
    server.kill()
    restore(copy, folder)
    server.start()
    refused = server.client.post("/login", json={"user": "leaver", "password": "the old password"})
    assert refused.status_code == 401
