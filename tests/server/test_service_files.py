"""The files of the guide that have a server run as a service of its machine."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from running import Server, eventually, make_passable

GUIDES = Path(__file__).parents[2] / "docs" / "guides"
OF_SYSTEMD = {"LANG": "C.UTF-8", "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
"""All that a service of the machine finds in its environment: no home, and no PATH of a login."""


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd is not installed: apt install systemd")
def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    unit = tmp_path / "phalanx.service"
    program = str(Path(sys.executable).with_name("phalanx"))
    unit.write_text((GUIDES / "phalanx.service").read_text().replace("/opt/phalanx/bin/phalanx", program))
    verified = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)], capture_output=True, text=True, timeout=60, check=False
    )
    about_it = [line for line in verified.stderr.splitlines() if "phalanx.service" in line]
    assert (verified.returncode, about_it) == (0, [])


def test_the_unit_leaves_jobs_alone_and_calls_up_with_options_that_there_are() -> None:
    text = (GUIDES / "phalanx.service").read_text()
    assert "\nKillMode=process\n" in text
    assert "\nDelegate=yes\n" in text
    [command] = [line for line in text.splitlines() if line.startswith("ExecStart=")]
    helped = subprocess.run(
        [sys.executable, "-m", "phalanx", "up", "--help"], capture_output=True, text=True, check=True
    )
    assert [word for word in command.split() if word.startswith("--") and word not in helped.stdout] == []


@contextmanager
def unit(data: Path, cert: Path, key: Path) -> Iterator[str]:
    """The address of a server that the unit's command runs as systemd would, until it is told to stop."""
    [command] = [
        line for line in (GUIDES / "phalanx.service").read_text().splitlines() if line.startswith("ExecStart=")
    ]
    here = {
        "/opt/phalanx/bin/phalanx": str(Path(sys.executable).with_name("phalanx")),
        "/var/lib/phalanx": str(data),
        "0.0.0.0:8470": "127.0.0.1:0",
        "/etc/phalanx/tls.crt": str(cert),
        "/etc/phalanx/tls.key": str(key),
    }
    words = [here.get(word, word) for word in command.removeprefix("ExecStart=").split()]
    quiet = subprocess.DEVNULL
    with subprocess.Popen(words, env=OF_SYSTEMD, cwd="/", stdin=quiet, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().split()[-1]
        finally:
            # KillMode=process: only the first process is told.
            process.terminate()
            process.stdout.read()
    assert process.returncode == 0


def test_the_command_of_the_unit_runs_as_a_service_and_leaves_jobs_alone(folder: Path) -> None:
    folder.mkdir()
    cert, key = folder / "cert.pem", folder / "key.pem"
    request = "req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=127.0.0.1 -addext subjectAltName=IP:127.0.0.1"
    subprocess.run(["openssl", *request.split(), "-keyout", key, "-out", cert], check=True, capture_output=True)
    data = folder / "data"
    make_passable(data)

    def phalanx(address: str, *words: str) -> str:
        about = {"PHALANX_ADDR": address, "PHALANX_TOKEN_FILE": str(data / "admin.token"), "PHALANX_CA_FILE": str(cert)}
        command = [sys.executable, "-m", "phalanx", *words]
        return subprocess.run(
            command, env=OF_SYSTEMD | about, cwd="/", capture_output=True, text=True, check=True
        ).stdout

    with unit(data, cert, key) as address:
        ends = f"until test -e {folder}/go; do sleep 0.1; done; echo over"
        assert phalanx(address, "submit", "--", "sh", "-c", ends) == "submitted job 1\n"
        eventually(lambda: '"running"' in phalanx(address, "job", "1", "-o", "json"))
    (folder / "go").touch()
    with unit(data, cert, key) as address:
        phalanx(address, "wait", "1")
        assert phalanx(address, "logs", "1") == "over\n"
        assert '"attempts": 1' in phalanx(address, "job", "1", "-o", "json")


@pytest.mark.skipif(not shutil.which("logrotate"), reason="logrotate is not installed: apt install logrotate")
def test_logs_of_a_server_are_rotated_while_it_writes_them(folder: Path) -> None:
    server = Server(folder, "--backend", "rehearsal", "--nodes", "1", "--gpus", "1").start()
    log = folder / "log" / "loop.log"
    eventually(lambda: log.stat().st_size)
    config = folder / "logrotate.conf"
    config.write_text((GUIDES / "phalanx.logrotate").read_text().replace("/var/lib/phalanx/log", str(folder / "log")))
    config.chmod(0o600)
    before = log.read_text()
    command = ["logrotate", "--force", "--state", str(folder / "logrotate.state"), str(config)]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    assert (folder / "log" / "loop.log.1").read_text() == before
    assert log.stat().st_size < len(before)
    server.kill("loop")
    eventually(lambda: log.stat().st_size)
    assert not log.read_bytes().startswith(b"\0"), "what is written after the rotation begins at the beginning"
    server.stop()
