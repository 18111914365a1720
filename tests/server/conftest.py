"""Servers that several tests share."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from running import Server, eventually


@pytest.fixture(scope="session")
def rehearsal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server whose jobs take their time and run nothing: 4 nodes of 8 GPUs."""
    server = Server(tmp_path_factory.mktemp("server"), "--backend", "rehearsal", "--nodes", "4", "--gpus", "8").start()
    yield server
    server.stop()


@pytest.fixture
def tmp_path(tmp_path: Path) -> Path:
    """As pytest's, but open to the jobs of a server that is root, which run as other users."""
    tmp_path.chmod(0o777)
    return tmp_path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An empty folder for a server of one's own."""
    return tmp_path / "data"


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
