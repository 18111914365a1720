"""One process per submission: `phalanx submit` beside Slurm's `sbatch`, on this machine."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from phalanx.bench.engines.slurm_site import Slurm, need_slurm
from phalanx.bench.row import Row, Tell, quantile, ratio, row
from phalanx.bench.server.live import LiveServer

AT_ONCE = 4
"""Processes at a time: more than this machine has cores would only wait for one another."""


def run(count: int, tell: Tell) -> list[Row]:
    """Submits so many jobs by each, one process a job."""
    need_slurm(tell)
    with tempfile.TemporaryDirectory(prefix="phalanx-submit-") as folder:
        tell(f"server: {count} jobs by sbatch")
        theirs = _slurm(Path(folder, "slurm"), count)
        tell(f"server: {count} jobs by phalanx submit")
        ours = _phalanx(Path(folder, "data"), count)
    rows = []
    for name, (took_s, latencies) in (("phalanx submit", ours), ("sbatch", theirs)):
        rows += [
            row(f"{name}, {AT_ONCE} processes at a time", count / took_s, "jobs/s"),
            row(f"{name}, latency, p50", 1000 * (quantile(latencies, 0.5) or 0), "ms"),
            row(f"{name}, latency, p99", 1000 * (quantile(latencies, 0.99) or 0), "ms"),
        ]
    return [*rows, row("time of phalanx submit beside sbatch", ratio(ours[0], theirs[0]), "times")]


def _slurm(folder: Path, count: int) -> tuple[float, list[float]]:
    slurm = Slurm(folder)
    try:
        slurm.start()
        return _timed(slurm.submit(), slurm.environment, count)
    finally:
        slurm.stop()


def _phalanx(folder: Path, count: int) -> tuple[float, list[float]]:
    server = LiveServer(folder, "--backend", "rehearsal", "--nodes", "125", "--gpus", "8", "--policy", "fifo")
    server.start()
    try:
        environment = {
            **os.environ,
            "PHALANX_ADDR": f"http://{server.host}:{server.port}",
            "PHALANX_TOKEN": server.token,
            "PHALANX_CONFIG": str(folder / "config.yaml"),
        }
        command = [sys.executable, "-m", "phalanx", "submit", "--gpus", "1", "--duration", "1s", "--", "true"]
        return _timed(command, environment, count)
    finally:
        server.stop()


def _timed(command: list[str], environment: Mapping[str, str], count: int) -> tuple[float, list[float]]:
    """Runs a command so many times, some at a time; seconds in all, and of each."""

    def once(_: int) -> float:
        began_s = time.perf_counter()
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"{command[0]} failed: {done.stderr.strip()}")
        return time.perf_counter() - began_s

    once(0)
    began_s = time.perf_counter()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        latencies = list(pool.map(once, range(count)))
    return time.perf_counter() - began_s, latencies
