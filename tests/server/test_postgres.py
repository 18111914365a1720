"""The store in PostgreSQL: the same server, with another URL."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from running import Server, eventually

pytestmark = pytest.mark.needs("postgres")


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a real PostgreSQL server of one's own."""
    programs = newest_programs()
    folder = tmp_path_factory.mktemp("postgres")
    user: list[str] = []
    if os.geteuid() == 0:
        # The server refuses to run as root.
        user = ["runuser", "-u", "postgres", "--"]
        for parent in (folder, *folder.parents[:3]):
            parent.chmod(parent.stat().st_mode | 0o055)
        shutil.chown(folder, "postgres")
    data = folder / "data"
    subprocess.run(
        [*user, programs / "initdb", "-D", data, "-A", "trust", "-U", "phalanx"], check=True, capture_output=True
    )
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = subprocess.Popen(
        [*user, programs / "postgres", "-D", data, "-p", str(port), "-k", folder, "-h", "127.0.0.1"],
        stderr=subprocess.DEVNULL,
    )
    url = f"postgresql://phalanx@127.0.0.1:{port}/postgres"
    try:
        eventually(lambda: is_listening(port))
        yield url
    finally:
        server.terminate()
        server.wait()


def is_listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def newest_programs() -> Path:
    versions = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    return versions[-1] if versions else Path(shutil.which("postgres") or "").parent


def test_jobs_run_and_survive_a_crash_in_postgres(database: str, folder: Path) -> None:
    server = Server(folder, "--backend", "rehearsal", "--nodes", "2", "--store", database).start()
    assert not (folder / "phalanx.db").exists()
    done = server.submit(gpus=1, duration="50ms", labels={"a": "b"})
    server.wait(done["id"], "succeeded")
    waits = server.submit(gpus=1, begin="+1h", name="waits")
    held = server.client.post(f"/jobs/{waits['id']}:hold").raise_for_status()
    server.kill()
    server.start()
    found = server.job("waits")
    assert (found["id"], found["reason"], found["version"]) == (waits["id"], "held", held.json()["version"])
    listed = server.client.get("/jobs", params={"label": "a=b", "state": "succeeded"}).json()["items"]
    assert [job["id"] for job in listed] == [done["id"]]
    assert server.client.get("/queues").json()["items"][0]["waiting"] == 1
    assert server.client.get(f"/jobs/{waits['id']}/why").json()["reason"] == "held"
    assert len(server.client.get("/audit").json()["items"]) == 3
    assert server.client.get(server.url + "/metrics").status_code == 200
    server.stop()
