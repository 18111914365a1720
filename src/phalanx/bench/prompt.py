"""The prompt: what one call of a verb costs the person who types it, in CPU time and by the clock."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from phalanx.bench.live import LiveServer
from phalanx.bench.row import Row, Tell, quantile, row

TARGET_MS = 100.0
VERBS = {
    "jobs": ("jobs",),
    "submit": ("submit", "--gpus", "1", "--duration", "1s", "--", "true"),
    "why": ("why", "2"),
    "logs": ("logs", "1"),
}
JOBS = (
    ("submit", "--gpus", "1", "--duration", "1h", "--", "sh", "-c", "date; exec sleep 3600"),
    ("submit", "--gpus", "8", "--duration", "1h", "--", "true"),
)
"""The first runs, the second waits for it: there is something to tell of. What runs ends with its folder."""


def run(count: int, tell: Tell) -> list[Row]:
    """Calls each verb so many times, one after another, once it has been called before."""
    with tempfile.TemporaryDirectory(prefix="phalanx-prompt-", ignore_cleanup_errors=True) as folder:
        server = LiveServer(Path(folder, "data"), "--simulate", "--nodes", "1", "--gpus", "8")
        server.start()
        try:
            around = _environment(server, folder)
            for job in JOBS:
                _once(job, around)
            rows: list[Row] = []
            for name, verb in VERBS.items():
                tell(f"server: {count} calls of phalanx {name}")
                rows += _rows(name, verb, around, count)
            return rows
        finally:
            server.stop()


def _environment(server: LiveServer, folder: str) -> dict[str, str]:
    return {
        **os.environ,
        "PHALANX_ADDR": f"http://{server.host}:{server.port}",
        "PHALANX_TOKEN": server.token,
        "PHALANX_CONFIG": str(Path(folder, "config.yaml")),
    }


def _rows(name: str, verb: tuple[str, ...], around: Mapping[str, str], count: int) -> list[Row]:
    _once(verb, around)
    taken = [_once(verb, around) for _ in range(count)]
    return [
        row(f"phalanx {name}, CPU time, p50", quantile([cpu_ms for cpu_ms, _ in taken], 0.5), "ms", TARGET_MS),
        row(f"phalanx {name}, wall-clock time, p50", quantile([wall_ms for _, wall_ms in taken], 0.5), "ms"),
    ]


def _once(verb: tuple[str, ...], around: Mapping[str, str]) -> tuple[float, float]:
    """Milliseconds of CPU and by the clock of one process."""
    began_s = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "phalanx", *verb], env=around, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    _, status, used = os.wait4(process.pid, 0)
    wall_ms = 1000 * (time.perf_counter() - began_s)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"phalanx {' '.join(verb)} ended with {process.returncode}")
    return 1000 * (used.ru_utime + used.ru_stime), wall_ms
