"""Secrets and environments: which jobs may use a secret, and who sees the values of a job's variables."""

from __future__ import annotations

import io
import json
import os
import sqlite3
import stat
import subprocess
import sys
import threading
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx2
import pytest
from running import Server, eventually

from job_python import JOB_PYTHON

CANARY = "canary-4f1c"
VALUE = "value-93ab"
HIDDEN = "…"
USERS = {
    "ada": ("red", "member"),
    "bob": ("red", "member"),
    "olga": ("red", "operator"),
    "vic": ("red", "viewer"),
    "eve": ("blue", "member"),
    "wim": ("-", "viewer"),
}


@dataclass
class Site:
    """A server with the tenants `red` and `blue`, and a client for each user."""

    server: Server
    clients: dict[str, httpx2.Client]
    tokens: dict[str, str]

    def submit(self, user: str, /, **job: Any) -> httpx2.Response:
        queue = "blue" if user == "eve" else "red"
        return self.clients[user].post("/jobs", json={"command": "true", "gpus": 1, "queue": queue, **job})

    def set(self, name: str, value: str = VALUE, *grants: dict[str, str]) -> str:
        """Sets a secret as the admin."""
        body = {"value": value, "grants": list(grants)}
        self.server.client.put(f"/secrets/{name}", json=body).raise_for_status()
        return name

    def printed(self, user: str, script: str, **job: Any) -> str:
        """What a job of a user printed that succeeded."""
        made = self.submit(user, command=["sh", "-c", script], **job)
        assert made.status_code == 201, made.text
        assert self.server.wait(made.json()["id"], "succeeded", "failed")["end_reason"] == ""
        return self.server.client.get(f"/jobs/{made.json()['id']}/logs").text


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    server = Server(tmp_path_factory.mktemp("server") / "data", "--simulate", "--nodes", "1", "--gpus", "8").start()
    site = Site(server.with_queues("red/llm"), {"admin": server.client}, {})
    for name, (queue, role) in USERS.items():
        server.client.post("/users", json={"name": name}).raise_for_status()
        server.client.put(f"/users/{name}/roles/{queue}", json={"role": role}).raise_for_status()
        body = {"name": "t", "user": name, "scopes": ["read", "write", "admin"]}
        site.tokens[name] = server.client.post("/tokens", json=body).raise_for_status().json()["token"]
        site.clients[name] = server.as_user(site.tokens[name])
    reading = {"name": "r", "user": "ada", "scopes": ["read"]}
    token = server.client.post("/tokens", json=reading).raise_for_status().json()["token"]
    site.clients["ada, to look only"] = server.as_user(token)
    yield site
    server.stop()


@pytest.fixture
def name() -> str:
    """The name of a secret that no other test has."""
    return f"S_{uuid4().hex[:12].upper()}"


# Which jobs may use a secret


def test_a_job_of_a_granted_queue_gets_the_value_and_those_of_other_queues_are_refused(site: Site, name: str) -> None:
    site.set(name, VALUE, {"queue": "red"})
    assert site.printed("ada", f"echo ${name}", secrets=[name], queue="red/llm") == f"{VALUE}\n"
    refused = site.submit("eve", secrets=[name])
    assert refused.status_code == 403
    assert name in refused.json()["message"]
    assert f"phalanx secrets grant {name} --queue blue" in refused.json()["message"]


def test_a_secret_without_a_grant_is_usable_by_no_job_not_even_of_an_admin(site: Site, name: str) -> None:
    site.set(name)
    assert site.submit("ada", secrets=[name]).status_code == 403
    assert site.submit("admin", secrets=[name]).status_code == 403


def test_a_secret_that_may_not_be_used_is_refused_as_one_that_there_is_not(site: Site, name: str) -> None:
    site.set(name, VALUE, {"queue": "red"})
    there, nowhere = (site.submit("eve", secrets=[each]) for each in (name, "S_NOWHERE"))
    assert there.status_code == nowhere.status_code == 403
    assert there.text.replace(name, "S_NOWHERE") == nowhere.text
    told = [
        site.clients["eve"].post(
            "/plan", json={"jobs": [{"command": "true", "gpus": 1, "queue": "blue", "secrets": [each]}]}
        )
        for each in (name, "S_NOWHERE")
    ]
    assert told[0].status_code == told[1].status_code
    assert name not in told[0].text or told[0].text.replace(name, "S_NOWHERE") == told[1].text


def test_a_grant_of_a_queue_and_a_user_needs_both(site: Site, name: str) -> None:
    site.set(name, VALUE, {"queue": "red", "user": "ada"})
    assert site.submit("ada", secrets=[name]).status_code == 201
    assert site.submit("bob", secrets=[name]).status_code == 403
    assert site.submit("eve", secrets=[name]).status_code == 403


def test_a_grant_of_a_user_holds_in_every_queue_and_one_of_the_root_for_every_job(site: Site, name: str) -> None:
    site.set(name, VALUE, {"user": "eve"})
    assert site.submit("eve", secrets=[name]).status_code == 201
    assert site.submit("ada", secrets=[name]).status_code == 403
    site.set(name, VALUE, {"queue": "-"})
    assert site.submit("ada", secrets=[name]).status_code == 201


def test_batches_and_arrays_are_refused_as_a_whole(site: Site, name: str) -> None:
    site.set(name, VALUE, {"queue": "red"})
    job = {"command": "true", "gpus": 1, "queue": "blue"}
    refused = site.clients["eve"].post("/jobs:batch", json={"jobs": [{**job, "name": "a"}, {**job, "secrets": [name]}]})
    assert refused.status_code == 403
    assert refused.json()["detail"]["index"] == 1
    assert site.submit("eve", secrets=[name], array="0-3").status_code == 403
    assert site.submit("ada", secrets=[name], array="0-1").status_code == 201


def test_submitting_for_another_user_does_not_lend_their_secrets(site: Site, name: str) -> None:
    """The operator could read the value out of the job."""
    site.set(name, VALUE, {"user": "ada"})
    assert site.submit("olga", secrets=[name], user="ada").status_code == 403
    site.set(name, VALUE, {"queue": "red"})
    assert site.submit("olga", secrets=[name], user="ada").status_code == 201
    site.set(name, VALUE, {"user": "olga"})
    assert site.submit("olga", secrets=[name], user="ada").status_code == 403


def test_a_grant_that_is_taken_away_ends_the_job_before_it_gets_the_value(site: Site, name: str) -> None:
    site.set(name, VALUE, {"queue": "red"})
    blocked = site.submit("ada", command="sleep 600", gpus=8).json()["id"]
    site.server.wait(blocked, "running")
    waiting = site.submit("ada", command=["sh", "-c", f"echo ${name}"], secrets=[name]).json()["id"]
    site.server.client.delete(f"/secrets/{name}/grants", params={"queue": "red"}).raise_for_status()
    site.clients["ada"].post(f"/jobs/{blocked}:cancel").raise_for_status()
    ended = site.server.wait(waiting, "failed", "succeeded")
    assert ended["state"] == "failed"
    assert f"secret '{name}'" in ended["end_reason"]
    assert "grant" in ended["end_reason"]
    files = [path for path in (site.server.data / "jobs" / waiting).rglob("*") if path.is_file()]
    assert all(VALUE.encode() not in path.read_bytes() for path in files)


def test_a_new_user_of_an_old_name_inherits_no_secret(site: Site, name: str) -> None:
    admin = site.server.client
    user = f"u-{uuid4().hex[:8]}"
    admin.post("/users", json={"name": user}).raise_for_status()
    site.set(name, VALUE, {"user": user})
    admin.delete(f"/users/{user}").raise_for_status()
    assert listed(admin)[name]["grants"] == []


# Managing them


def listed(client: httpx2.Client) -> dict[str, dict[str, Any]]:
    return {item["name"]: item for item in client.get("/secrets").raise_for_status().json()["items"]}


def test_a_list_has_names_and_grants_and_never_values(site: Site, name: str) -> None:
    before = site.server.client.put(f"/secrets/{name}", json={"value": VALUE}).raise_for_status().json()
    assert before["grants"] == []
    granted = site.server.client.put(f"/secrets/{name}/grants", json={"queue": "red", "user": "ada"}).json()
    assert granted["grants"] == [{"queue": "red", "user": "ada"}]
    site.server.client.put(f"/secrets/{name}", json={"value": "another"}).raise_for_status()
    (found,) = (item for item in site.server.client.get("/secrets").json()["items"] if item["name"] == name)
    assert found["grants"] == [{"queue": "red", "user": "ada"}], "a new value leaves the grants"
    assert found["created_ms"] == before["created_ms"] <= found["updated_ms"]
    assert found["has_value"]
    assert VALUE not in json.dumps(site.server.client.get("/secrets").json())


def test_users_see_the_names_that_their_jobs_may_use_and_only_the_grants_that_let_them(site: Site, name: str) -> None:
    site.set(name, VALUE, {"queue": "red"}, {"queue": "blue", "user": "eve"})
    assert listed(site.clients["ada"])[name]["grants"] == [{"queue": "red", "user": ""}]
    assert listed(site.clients["eve"])[name]["grants"] == [{"queue": "blue", "user": "eve"}]
    site.set(name, VALUE, {"queue": "green"})
    assert name not in listed(site.clients["ada"])
    assert name not in listed(site.clients["vic"])


def test_only_an_admin_of_the_whole_cluster_manages_secrets(site: Site, name: str) -> None:
    site.set(name, VALUE, {"queue": "red"})
    for user in ("ada", "olga", "vic", "eve", "wim"):
        client = site.clients[user]
        assert client.put(f"/secrets/{name}", json={"value": "mine"}).status_code == 403
        assert client.put(f"/secrets/{name}/grants", json={"user": user}).status_code == 403
        assert client.delete(f"/secrets/{name}/grants", params={"queue": "red"}).status_code == 403
        assert client.delete(f"/secrets/{name}").status_code == 403
    assert site.printed("ada", f"echo ${name}", secrets=[name]) == f"{VALUE}\n"


def test_a_deleted_secret_is_gone_with_its_file_and_its_grants(site: Site, name: str) -> None:
    site.set(name, VALUE, {"queue": "red"})
    assert site.server.client.delete(f"/secrets/{name}").status_code == 204
    assert not (site.server.data / "secrets" / name).exists()
    assert site.server.client.delete(f"/secrets/{name}").status_code == 404
    site.set(name)
    assert listed(site.server.client)[name]["grants"] == []


def test_values_are_files_that_only_the_server_reads(site: Site, name: str) -> None:
    site.set(name)
    folder = site.server.data / "secrets"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / name).stat().st_mode) == 0o600
    assert (folder / name).read_text() == VALUE
    assert [path.name for path in folder.iterdir() if path.name.startswith(".")] == []


def test_a_file_put_there_by_hand_works_once_it_is_granted(site: Site, name: str) -> None:
    folder = site.server.data / "secrets"
    folder.mkdir(mode=0o700, exist_ok=True)
    (folder / name).write_text("by hand\n")
    assert listed(site.server.client)[name] == {
        "name": name,
        "grants": [],
        "has_value": True,
        "created_ms": None,
        "updated_ms": None,
    }
    assert site.submit("ada", secrets=[name]).status_code == 403
    site.server.client.put(f"/secrets/{name}/grants", json={"queue": "red"}).raise_for_status()
    assert site.printed("ada", f"echo ${name}", secrets=[name]) == "by hand\n"


def test_a_file_that_is_no_text_is_told_without_what_is_in_it(site: Site, name: str) -> None:
    site.set(name, VALUE, {"queue": "red"})
    (site.server.data / "secrets" / name).write_bytes(b"\xff" + VALUE.encode())
    made = site.submit("ada", secrets=[name]).json()["id"]
    reason = site.server.wait(made, "failed", "succeeded")["end_reason"]
    assert "UTF-8" in reason
    assert VALUE not in reason


def test_variables_that_every_task_has_and_those_of_the_loader_are_no_names_of_secrets(site: Site) -> None:
    has = [line.partition("=")[0] for line in site.printed("ada", "exec env").splitlines()]
    assert "RANK" in has
    (site.server.data / "secrets").mkdir(mode=0o700, exist_ok=True)
    for each in (*has, "LD_PRELOAD", "PHALANX_X", "PYTHONPATH", "BASH_ENV", "IFS"):
        refused = site.server.client.put(f"/secrets/{each}", json={"value": VALUE})
        assert refused.status_code == 422, each
        assert not (site.server.data / "secrets" / each).exists()
        (site.server.data / "secrets" / each).write_text(VALUE)
        assert site.server.client.put(f"/secrets/{each}/grants", json={"queue": "red"}).status_code == 422, each
        (site.server.data / "secrets" / each).unlink()
    for each in ("1A", "A-B", "A" * 65, "..", ".A", "A%2FB", "A%0A"):
        assert site.server.client.put(f"/secrets/{each}", json={"value": VALUE}).status_code in (404, 405, 422), each


@pytest.mark.parametrize(
    "body", [{"value": ""}, {"value": "x" * 65537}, {"value": "a\0b"}, {"value": "é" * 40_000}, {}]
)
def test_a_value_that_no_variable_can_have_is_refused(site: Site, name: str, body: dict[str, str]) -> None:
    refused = site.server.client.put(f"/secrets/{name}", json=body)
    assert refused.status_code == 422
    assert len(refused.text) < 1000
    assert not (site.server.data / "secrets" / name).exists()


def test_a_grant_names_a_queue_or_a_user_that_there_is(site: Site, name: str) -> None:
    site.set(name)
    grants = f"/secrets/{name}/grants"
    assert site.server.client.put(grants, json={}).status_code == 422
    assert site.server.client.put(grants, json={"user": "nosuchuser"}).status_code == 404
    assert site.server.client.put(f"/secrets/{name}", json={"value": "x", "grants": [{}]}).status_code == 422
    assert site.server.client.put("/secrets/S_NOWHERE/grants", json={"queue": "red"}).status_code == 404
    assert site.server.client.delete(grants, params={"queue": "red"}).status_code == 404
    assert site.server.client.delete(grants).status_code == 422


def test_the_audit_log_says_who_set_and_granted_what_and_no_value_is_kept_anywhere_else(site: Site, name: str) -> None:
    value = f"v{uuid4().hex}"
    site.set(name, value, {"queue": "red"})
    site.server.client.delete(f"/secrets/{name}/grants", params={"queue": "red"}).raise_for_status()
    site.server.client.put(f"/secrets/{name}", json={"vaule": value})
    site.server.client.put(
        f"/secrets/{name}", content=f'{{"value": "{value}"', headers={"Content-Type": "application/json"}
    )
    site.clients["eve"].put(f"/secrets/{name}", json={"value": value})
    entries = site.server.client.get("/audit", params={"target": name}).json()["items"]
    assert [(entry["user"], entry["verb"]) for entry in entries] == [
        ("admin", "revoke secret"),
        ("admin", "set secret"),
    ]
    holders = [path for path in site.server.data.rglob("*") if path.is_file() and value.encode() in path.read_bytes()]
    assert holders == [site.server.data / "secrets" / name]
    bundle = site.server.client.get("/debug/bundle").raise_for_status().content
    with zipfile.ZipFile(io.BytesIO(bundle)) as archive:
        assert all(value.encode() not in archive.read(each) for each in archive.namelist())


def phalanx(site: Site, *arguments: str, user: str = "admin", given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    token = site.tokens.get(user) or (site.server.data / "admin.token").read_text().strip()
    env = {**os.environ, "PHALANX_ADDR": site.server.url, "PHALANX_TOKEN": token}
    command = [sys.executable, "-m", "phalanx", *arguments]
    return subprocess.run(command, input=given, capture_output=True, env=env, timeout=60, check=False)


def test_the_command_line_sets_grants_lists_revokes_and_deletes(site: Site, name: str, tmp_path: Path) -> None:
    done = phalanx(site, "secrets", "set", name, given=b"from a pipe\n")
    assert (done.returncode, done.stdout) == (0, b"")
    assert b"secrets grant" in done.stderr
    assert phalanx(site, "secrets", "grant", name, "--queue", "red").returncode == 0
    assert site.printed("ada", f"echo ${name}", secrets=[name]) == "from a pipe\n"
    (tmp_path / "value").write_text("from a file")
    assert phalanx(site, "secrets", "set", name, "--from-file", str(tmp_path / "value")).returncode == 0
    assert site.printed("ada", f"echo ${name}", secrets=[name]) == "from a file\n"
    for arguments in (("secrets", "-o", "json"), ("secrets", "list", "-o", "json")):
        rows = json.loads(phalanx(site, *arguments, user="ada").stdout)
        assert [row["grants"] for row in rows if row["name"] == name] == [[{"queue": "red", "user": ""}]]
    assert phalanx(site, "secrets", "grant", name).returncode == 2
    assert phalanx(site, "secrets", "revoke", name, "--queue", "red").returncode == 0
    assert site.submit("ada", secrets=[name]).status_code == 403
    assert phalanx(site, "secrets", "delete", name).returncode == 0
    assert name not in listed(site.server.client)
    assert phalanx(site, "secrets", "set", name, given=b"\xff\xfe").returncode != 0
    assert phalanx(site, "secrets", "set", name, given=b"").returncode != 0


def test_a_secret_and_its_grants_are_there_after_a_kill(folder: Path) -> None:
    server = Server(folder, "--simulate", "--nodes", "1", "--gpus", "1").start()
    server.client.put("/secrets/KEY", json={"value": VALUE, "grants": [{"queue": "default"}]}).raise_for_status()
    server.kill()
    server.start()
    made = server.submit(command=["sh", "-c", "echo $KEY"], secrets=["KEY"], gpus=1)["id"]
    server.wait(made, "succeeded")
    assert server.client.get(f"/jobs/{made}/logs").text == f"{VALUE}\n"
    server.stop()


def test_a_store_from_before_has_grants_once_it_is_opened(folder: Path) -> None:
    server = Server(folder, "--simulate", "--nodes", "1", "--gpus", "1").start()
    server.stop()
    with sqlite3.connect(folder / "phalanx.db") as store:
        store.executescript("DROP TABLE secrets; DROP TABLE secret_grants; UPDATE store_version SET version = 3;")
    server.start()
    server.client.put("/secrets/KEY", json={"value": VALUE, "grants": [{"queue": "default"}]}).raise_for_status()
    assert listed(server.client)["KEY"]["grants"] == [{"queue": "default", "user": ""}]
    server.stop()


def test_a_value_that_cannot_be_written_is_refused_and_leaves_no_grant(folder: Path) -> None:
    server = Server(folder, "--simulate", "--nodes", "1", "--gpus", "1").start()
    (folder / "secrets").write_text("in the way")
    refused = server.client.put("/secrets/KEY", json={"value": VALUE, "grants": [{"queue": "default"}]})
    assert refused.status_code == 503
    assert "KEY" in refused.json()["message"]
    assert listed(server.client) == {}
    server.stop()


# Environments


@pytest.fixture(scope="module")
def canary(site: Site) -> str:
    """A running job of ada's with a value that others must not see, after one that ended, was changed and waits."""
    env = {"KEY": CANARY, "OTHER": f"x{CANARY}"}
    site.submit("ada", env=env, name="ended").raise_for_status()
    resized = {"env": env, "name": "changed", "gang": [{"replicas": 8, "gpus": 1}], "begin": "+10h"}
    changed = site.clients["ada"].post("/jobs", json={"command": "true", "queue": "red", **resized}).json()["id"]
    site.clients["ada"].post(f"/jobs/{changed}:resize", json={"replicas": 4, "min": 4}).raise_for_status()
    site.submit("ada", env=env, name="big", gpus=8, begin="+10h").raise_for_status()
    made = site.submit("ada", env=env, command="sleep 600", name="canary").json()["id"]
    site.server.wait(made, "running")
    return str(made)


def operations(site: Site) -> list[tuple[str, str]]:
    document = site.server.client.get("/openapi.json").raise_for_status().json()
    return [(method.upper(), path) for path, methods in document["paths"].items() for method in methods]


BODIES: dict[tuple[str, str], Any] = {
    ("POST", "/plan"): {"jobs": [{"command": "true", "gpus": 1, "queue": "red"}]},
    ("POST", "/what-if"): {"fail": ["n0"]},
}
KEPT = {"/users/{name}", "/tokens/{token}", "/jobs/{job}:cancel", "/policy", "/cluster", "/login", "/session"}
"""Routes that must not be called here with effect: they would end the job or the user that the test looks at."""


def told(site: Site, user: str, job: str) -> dict[tuple[str, str], bytes]:
    """What every route tells a user."""
    found = {}
    for method, full in operations(site):
        path = full.removeprefix("/api/v1")
        if method != "GET" and path in KEPT:
            continue
        filled = (
            path.replace("{job}", job).replace("{name}", "n0").replace("{queue}", "red").replace("{token}", "0" * 12)
        )
        url = site.server.url + full if path == full else filled
        parameters = (
            {"follow": "false", "since": "0"} if path == "/events" else {"others": "true"} if path == "/jobs" else None
        )
        body = BODIES.get((method, path), None if method in ("GET", "DELETE") else {})
        found[method, path] = site.clients[user].request(method, url, json=body, params=parameters).content
    return found


OTHERS = ("vic", "bob", "eve", "wim", "ada, to look only")


@pytest.mark.parametrize("user", OTHERS)
def test_no_route_shows_the_values_of_a_job_to_those_who_may_not_change_it(site: Site, canary: str, user: str) -> None:
    answers = told(site, user, canary)
    assert len(answers) > 30
    assert [route for route, content in answers.items() if CANARY.encode() in content] == []
    if user != "eve":
        shown = json.loads(answers["GET", "/jobs/{job}"])["spec"]["execution"]["env"]
        assert shown == [["KEY", HIDDEN], ["OTHER", HIDDEN]]
        assert HIDDEN.encode() in answers["GET", "/events"]


@pytest.mark.parametrize("user", ["ada", "olga", "admin"])
def test_those_who_may_change_a_job_see_its_values(site: Site, canary: str, user: str) -> None:
    env = site.clients[user].get(f"/jobs/{canary}").json()["spec"]["execution"]["env"]
    assert env == [["KEY", CANARY], ["OTHER", f"x{CANARY}"]]
    events = site.clients[user].get("/events", params={"follow": "false", "since": "0"}).text
    assert events.count(f'"{CANARY}"') >= 5, "four were submitted, and one of them was changed"


def test_an_operator_of_one_queue_sees_in_the_events_no_values_of_another(site: Site, canary: str) -> None:
    site.server.client.put("/users/olga/roles/blue", json={"role": "viewer"}).raise_for_status()
    site.submit("eve", env={"KEY": "of-eve"}).raise_for_status()
    events = site.clients["olga"].get("/events", params={"follow": "false", "since": "0"}).text
    assert '"queue":"blue"' in events
    assert "of-eve" not in events


def test_a_repeated_submission_tells_no_values(site: Site) -> None:
    job = {"command": "true", "gpus": 1, "queue": "red", "env": {"KEY": CANARY}}
    answers = [site.clients["ada"].post("/jobs", json=job, headers={"Idempotency-Key": "again"}) for _ in range(2)]
    assert answers[1].headers["Idempotent-Replay"] == "true"
    assert all(CANARY not in answer.text for answer in answers)


def test_logs_of_the_server_have_no_values_of_jobs(site: Site, canary: str) -> None:
    site.submit("ada", env={"KEY": CANARY}, queue="blue")
    site.submit("ada", env={"KEY": [CANARY]})
    site.submit("ada", env={"KEY": CANARY}, command="/nonexistent", name="broken")
    assert all(CANARY.encode() not in path.read_bytes() for path in (site.server.data / "log").iterdir())


def test_a_webhook_is_told_no_values(folder: Path, hook: tuple[str, list[bytes]]) -> None:
    url, heard = hook
    file = folder.parent / "alerts.yaml"
    file.write_text(f"webhook: {url}\nrules:\n- {{name: hung, when: stuck_job, for: 100ms}}\n")
    server = Server(folder, "--simulate", "--nodes", "1", "--gpus", "1", "--alerts", str(file)).start()
    report = (
        "import os, json, time, urllib.request as r\n"
        "token = os.environ['PHALANX_PROGRESS_TOKEN']\n"
        "headers = {'Authorization': f'Bearer {token}', 'Content-Type': 'application/json'}\n"
        "r.urlopen(r.Request(os.environ['PHALANX_PROGRESS_URL'], json.dumps({'step': 1}).encode(), headers))\n"
        "time.sleep(600)\n"
    )
    made = server.submit(command=[JOB_PYTHON, "-c", report], env={"KEY": CANARY}, gpus=1)["id"]
    eventually(lambda: heard)
    assert json.loads(heard[0])["subject"] == made
    assert all(CANARY.encode() not in body for body in heard)
    server.client.post(f"/jobs/{made}:cancel").raise_for_status()
    server.wait(made, "cancelled")
    server.stop()


@pytest.fixture
def hook() -> Iterator[tuple[str, list[bytes]]]:
    """A webhook, and what it was told."""
    heard: list[bytes] = []

    class Hook(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            heard.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Quiet."""

    with HTTPServer(("127.0.0.1", 0), Hook) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/", heard
        server.shutdown()


def test_a_bundle_has_no_values_and_decides_the_same(site: Site, canary: str, tmp_path: Path) -> None:
    path = tmp_path / "bundle.zip"
    path.write_bytes(site.server.client.get("/debug/bundle").raise_for_status().content)
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    assert [name for name, content in parts.items() if CANARY.encode() in plain(content)] == []
    assert f'["KEY","{HIDDEN}"]'.encode() in parts["journal.jsonl"]
    replayed = phalanx(site, "replay", "--verify", str(path), "-o", "json")
    assert replayed.returncode == 0, replayed.stderr
    from phalanx.engine.fold.snapshot import load

    state = load(parts["snapshot.bin"])
    assert json.loads(replayed.stdout)["digest"] == str(state.digest), "the journal leads to the snapshot"
    assert state.seq == len(parts["journal.jsonl"].splitlines()) - 1
    assert dict(state.record(canary).job.execution.env) == {"KEY": HIDDEN, "OTHER": HIDDEN}
    assert phalanx(site, "why", canary, "--state", str(path)).returncode == 0


def test_a_bundle_of_a_long_journal_begins_with_a_state_without_values(folder: Path, tmp_path: Path) -> None:
    """As many records as need a beginning take long: the bound is lowered instead, in a bundle made from the store."""
    from phalanx.engine.fold.snapshot import dump, load
    from phalanx.engine.state.journal import GENESIS
    from phalanx.server import bundle
    from phalanx.server.options import Options
    from phalanx.server.planner.answers import answer
    from phalanx.server.planner.questions import HideValues, TakeSnapshot
    from phalanx.server.store import snapshots
    from phalanx.server.store.database import open_database
    from phalanx.server.store.recovery import recover

    server = Server(folder, "--backend", "rehearsal", "--nodes", "1", "--gpus", "8").start()
    server.submit(gpus=1, env={"KEY": CANARY}, duration="1h")
    server.stop()
    database = open_database(f"sqlite:///{folder}/phalanx.db")
    with database.reading() as connection:
        middle = recover(connection, "")
    snapshots.write(database, middle, dump(middle))
    database.close()
    server.start()
    server.submit(gpus=8, env={"KEY": CANARY}, duration="1h")
    server.stop()
    database = open_database(f"sqlite:///{folder}/phalanx.db")
    with database.reading() as connection:
        end = recover(connection, "")
        start = bundle.start_of(connection, end.seq, records_max=1)
        assert start is not None
        assert start.seq == middle.seq
        assert CANARY.encode() in plain(start.content)
        lines, link = bundle.journal_between(connection, start.seq, end.seq)
        snapshot = answer(HideValues(answer(TakeSnapshot(), end).body, link), end).body
        beginning = answer(HideValues(start.content, GENESIS), end).body
        made = bundle.bundle(connection, Options(data=str(folder)), bundle.Parts(snapshot, lines, beginning), b"")
    database.close()
    path = tmp_path / "bundle.zip"
    path.write_bytes(made)
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    assert [name for name, content in parts.items() if CANARY.encode() in plain(content)] == []
    command = [sys.executable, "-m", "phalanx", "replay", "--verify", str(path), "-o", "json"]
    replayed = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    assert replayed["records"] == end.seq - middle.seq
    assert replayed["digest"] == str(load(parts["snapshot.bin"]).digest) != str(end.digest)


def test_a_snapshot_has_no_values(site: Site, canary: str) -> None:
    from phalanx.engine.fold.snapshot import load

    content = site.server.client.get("/snapshot").raise_for_status().content
    assert CANARY.encode() not in plain(content)
    assert dict(load(content).record(canary).job.execution.env) == {"KEY": HIDDEN, "OTHER": HIDDEN}


def plain(content: bytes) -> bytes:
    """Bytes with what is compressed in a snapshot laid open."""
    header, _, body = content.partition(b"\n")
    return header + zlib.decompress(body) if header.startswith(b"phalanx snapshot") else content
