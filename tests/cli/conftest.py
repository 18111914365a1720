"""One real server for all tests of the client verbs, and the command line against it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from live import Phalanx, Result, Server

from phalanx.cli.main import cli, run


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    made = Server(tmp_path_factory.mktemp("server"))
    made.start()
    yield made
    made.stop()


@pytest.fixture
def phalanx(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> Phalanx:
    """Runs a verb against the server and gives what it printed. Its jobs may be of a user that is not this one."""
    tmp_path.chmod(0o755)
    monkeypatch.setenv("PHALANX_ADDR", server.url)
    monkeypatch.setenv("PHALANX_TOKEN_FILE", server.token_file)
    monkeypatch.setenv("PHALANX_CONFIG", str(tmp_path / "config.yaml"))
    for name in ("PHALANX_TOKEN", "PHALANX_CONTEXT", "PHALANX_CA_FILE"):
        monkeypatch.delenv(name, raising=False)

    def call(*arguments: str) -> Result:
        capfdbinary.readouterr()
        code = run(cli, list(arguments))
        out, err = capfdbinary.readouterr()
        return Result(code, out.decode(), err.decode())

    return call
