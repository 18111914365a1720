"""How a verb finds the server of its own user, and that it hands its token to no other."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from live import Phalanx, Server

from phalanx.cli.context import _listener_of, _server_left_here


def test_a_verb_finds_the_server_of_its_user_wherever_it_listens(
    phalanx: Phalanx, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    for name in ("PHALANX_ADDR", "PHALANX_TOKEN_FILE"):
        monkeypatch.delenv(name)
    own = Server(tmp_path / "phalanx")
    own.start()
    try:
        assert [node["name"] for node in phalanx("nodes", "-o", "json").data] == ["n0", "n1"]
        assert _server_left_here("")[0] == own.url
    finally:
        own.stop()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can listen as another user")
def test_the_token_is_kept_from_another_user_who_listens_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listen = "import os, socket, sys; os.setuid(65534); s = socket.create_server(('127.0.0.1', 0)); "
    script = listen + "print(s.getsockname()[1], flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as squatter:
        assert squatter.stdout is not None
        url = f"http://127.0.0.1:{int(squatter.stdout.readline())}"
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
        (tmp_path / "phalanx").mkdir()
        (tmp_path / "phalanx" / "admin.token").write_text("phx_secret\n")
        (tmp_path / "phalanx" / "url").write_text(f"{url}\n")
        assert _server_left_here("") == (url, "")
        squatter.communicate(b"")


def test_the_user_that_listens_at_a_port_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        assert _listener_of(f"http://127.0.0.1:{port}") == os.getuid()
    assert _listener_of(f"http://127.0.0.1:{port}") is None


def test_whoami_names_the_user_the_server_and_the_roles(phalanx: Phalanx, server: Server) -> None:
    me = phalanx("whoami", "-o", "json")
    assert (me.code, me.data["user"], me.data["server"]) == (0, "admin", server.url)
    assert "admin of every queue" in phalanx("whoami").out
    assert phalanx("whoami", "-o", "name").out == "admin\n"
