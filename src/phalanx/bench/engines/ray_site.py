"""A Ray of one's own for benchmarks: a head without GPUs and nodes with some, on this machine."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from phalanx.backends.local.host.processes import descendants
from phalanx.backends.ray.offer import why_not
from phalanx.bench.engines.slurm_site import free_port
from phalanx.errors import PhalanxError

READY_S = 900.0
STORE_BYTES = 80_000_000


class RayError(PhalanxError):
    """Ray is not here, or does not start."""


class Ray:
    """A head and nodes n0, n1, …, until `stop`. Its folder is its own: Ray's sockets need a short path."""

    def __init__(self, nodes: int, gpus: int) -> None:
        if why := why_not():
            raise RayError(why)
        self._folder = Path(tempfile.mkdtemp(prefix="ray-", dir="/tmp"))
        self._address = f"127.0.0.1:{free_port()}"
        self._nodes, self._gpus = nodes, gpus
        self._processes: list[subprocess.Popen[bytes]] = []
        self.environment: Mapping[str, str] = {**os.environ, "RAY_ADDRESS": self._address}

    def start(self) -> None:
        """Starts the head, then one node after the other, and waits until each has joined."""
        port = self._address.partition(":")[2]
        head = ["--head", f"--port={port}", "--include-dashboard=false", f"--temp-dir={self._folder}"]
        self._await(self._spawn("head", 0, 0, head))
        for number in range(self._nodes):
            self._await(self._spawn(f"n{number}", 1, self._gpus, [f"--address={self._address}"]))

    def stop(self) -> None:
        """Ends all of it."""
        for process in reversed(self._processes):
            for pid in (process.pid, *(each.pid for each in descendants(process.pid))):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _spawn(self, name: str, cpus: int, gpus: int, how: list[str]) -> Path:
        log = self._folder / f"{name}.log"
        size = [f"--num-cpus={cpus}", f"--num-gpus={gpus}", f"--object-store-memory={STORE_BYTES}"]
        begun = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--disable-usage-stats"]
        with log.open("wb") as out:
            self._processes.append(
                subprocess.Popen(
                    [*begun, "--node-ip-address=127.0.0.1", f"--labels=phalanx.dev/node={name}", *size, *how],
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=out,
                    env={**os.environ, "RAY_USAGE_STATS_ENABLED": "0"},
                    start_new_session=True,
                )
            )
        return log

    def _await(self, log: Path) -> None:
        deadline_s = time.monotonic() + READY_S
        while "Ray runtime started" not in (told := log.read_text(errors="replace")):
            if time.monotonic() > deadline_s or self._processes[-1].poll() is not None:
                raise RayError(f"Ray did not start: {' '.join(told.split())[-500:]}")
            time.sleep(0.1)
