"""A fresh machine: a clone of this repository and an empty home, from `scripts/up` to the first job that has ended."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import phalanx
from phalanx.bench.engines.slurm_site import free_port
from phalanx.bench.row import Row, Tell, row
from phalanx.errors import PhalanxError

TARGET_S = 120.0
PATIENCE_S = 600.0
ENDED = "succeeded"


class NoCheckoutError(PhalanxError):
    """There is no repository to clone."""


def run(tell: Tell) -> list[Row]:
    """Times one command. What was downloaded before is taken from the cache of uv, as after downloads."""
    root = Path(phalanx.__file__).parents[2]
    if not (root / "scripts" / "up").exists() or not (root / ".git").exists():
        raise NoCheckoutError(f"{root}: expected a clone of the repository, to clone it again")
    with tempfile.TemporaryDirectory(prefix="phalanx-fresh-") as folder:
        clone = Path(folder, "phalanx")
        subprocess.run(["git", "clone", "--quiet", str(root), str(clone)], check=True)
        tell("server: scripts/up in a fresh clone")
        took_s = _first_job_s(clone, Path(folder, "home"))
    return [row("scripts/up in a fresh clone to the first job that has ended, after downloads", took_s, "s", TARGET_S)]


def _first_job_s(clone: Path, home: Path) -> float:
    home.mkdir()
    port = free_port()
    cache = os.environ.get("UV_CACHE_DIR") or os.path.expanduser("~/.cache/uv")
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("PHALANX_", "VIRTUAL_ENV"))},
        "HOME": str(home),
        "UV_CACHE_DIR": cache,
        "PHALANX_ADDR": f"http://127.0.0.1:{port}",
        "PHALANX_TOKEN_FILE": str(home / "data" / "admin.token"),
    }
    command = ["scripts/up", "--listen", f"127.0.0.1:{port}", "--data", str(home / "data")]
    began_s = time.perf_counter()
    process = subprocess.Popen(
        command,
        cwd=clone,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        said: list[str] = []
        for line in process.stdout:
            said.append(line)
            if ENDED in line:
                return time.perf_counter() - began_s
            if time.perf_counter() - began_s > PATIENCE_S:
                break
        raise RuntimeError(f"no job ended; scripts/up said: {''.join(said[-20:])}")
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(30)
        assert process.stdout is not None
        process.stdout.close()
