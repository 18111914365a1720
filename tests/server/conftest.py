"""Servers that several tests share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from running import Server


@pytest.fixture(scope="session")
def rehearsal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server whose jobs take their time and run nothing: 4 nodes of 8 GPUs."""
    server = Server(tmp_path_factory.mktemp("server"), "--backend", "rehearsal", "--nodes", "4", "--gpus", "8").start()
    yield server
    server.stop()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An empty folder for a server of one's own."""
    return tmp_path / "data"
