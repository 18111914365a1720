"""The files of the guide that have a server run as a service of its machine."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from running import Server, eventually

GUIDES = Path(__file__).parents[2] / "docs" / "guides"


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
