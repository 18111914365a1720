"""Unix users: whose tasks run as whom, and what they can see of the server."""

from __future__ import annotations

import os
import pwd
import stat
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import uuid4

import httpx2
import pytest
from running import Server

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root can run tasks as somebody else")


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    # What pytest makes is closed to others; the data folder of a server for many users must be where they can pass.
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        started = Server(
            Path(folder, "data"), "--simulate", "--nodes", "1", "--gpus", "4", "--job-user", "daemon"
        ).start()
        yield started
        started.stop()


def member(server: Server, unix_user: str) -> httpx2.Client:
    name = f"user-{uuid4()}"
    server.client.post("/users", json={"name": name, "unix_user": unix_user}).raise_for_status()
    server.client.put(f"/users/{name}/roles/-", json={"role": "member"}).raise_for_status()
    token = server.client.post("/tokens", json={"name": "t", "user": name}).raise_for_status().json()["token"]
    return server.as_user(token)


def printed(server: Server, client: httpx2.Client, script: str) -> tuple[str, str]:
    """What a job of a client printed, and to where errors go."""
    made = client.post("/jobs", json={"command": ["sh", "-c", script], "gpus": 1}).raise_for_status().json()
    server.wait(made["id"], "succeeded", "failed")
    out, err = (client.get(f"/jobs/{made['id']}/logs", params={"stream": each}).text for each in ("out", "err"))
    return out, err


def test_tasks_run_as_the_unix_user_of_their_user_and_all_others_as_the_servers_choice(server: Server) -> None:
    assert printed(server, member(server, "nobody"), "id -un")[0] == "nobody\n"
    assert printed(server, member(server, ""), "id -un")[0] == "daemon\n"


def test_a_task_of_another_user_has_its_own_folders(server: Server) -> None:
    script = "touch mine $PHALANX_CHECKPOINT_DIR/step && cat $PHALANX_GANG_FILE && stat -c %U . $PHALANX_CHECKPOINT_DIR"
    out, err = printed(server, member(server, "nobody"), script)
    assert err == ""
    assert '"world_size": 1' in out
    assert out.endswith("nobody\nnobody\n")


def test_a_task_of_another_user_sees_nothing_of_the_server(server: Server) -> None:
    data = server.data
    script = "; ".join(f"cat {data}/{name}" for name in ("admin.token", "phalanx.db", "log/loop.log"))
    out, err = printed(server, member(server, "nobody"), f"{script}; cat ../*/order.json; ls {data} {data}/jobs")
    assert out == ""
    assert err.count("Permission denied") == 6
    assert stat.S_IMODE((data / "phalanx.db").stat().st_mode) == 0o600


def test_a_unix_user_that_is_not_there_is_refused(server: Server) -> None:
    refused = server.client.post("/users", json={"name": "eve", "unix_user": "nosuchuser"})
    assert refused.status_code == 422
    assert "no such user" in refused.json()["message"]


def test_nobody_but_an_admin_says_as_whom_tasks_run(server: Server) -> None:
    client = member(server, "nobody")
    name = client.get("/me").json()["user"]
    assert client.patch(f"/users/{name}", json={"unix_user": "root"}).status_code == 403
    assert server.client.patch(f"/users/{name}", json={"unix_user": "daemon"}).json()["unix_user"] == "daemon"
    assert printed(server, client, "id -u")[0] == f"{pwd.getpwnam('daemon').pw_uid}\n"
