"""The prompt: what one call of a verb costs, in CPU time and by the clock."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from phalanx.bench.row import Row, Tell, quantile, row
from phalanx.bench.server.live import LiveServer

TARGET_MS = 100.0
INTERPRETER = "python -c pass"
CALLS = {
    INTERPRETER: ("-c", "pass"),
    "phalanx --help": ("-m", "phalanx", "--help"),
    "phalanx jobs": ("-m", "phalanx", "jobs"),
    "phalanx submit": ("-m", "phalanx", "submit", "--gpus", "1", "--duration", "1s", "--", "true"),
    "phalanx why": ("-m", "phalanx", "why", "2"),
    "phalanx logs": ("-m", "phalanx", "logs", "1"),
}
JOBS = (
    ("submit", "--gpus", "1", "--duration", "1h", "--", "sh", "-c", "date; exec sleep 3600"),
    ("submit", "--gpus", "8", "--duration", "1h", "--", "true"),
)
"""The first runs, the second waits for it: there is something to tell of. What runs ends with its folder."""


def run(count: int, tell: Tell) -> list[Row]:
    """Calls each in turn, so many times: what else the machine does falls on all of them."""
    with tempfile.TemporaryDirectory(prefix="phalanx-prompt-", ignore_cleanup_errors=True) as folder:
        server = LiveServer(Path(folder, "data"), "--simulate", "--nodes", "1", "--gpus", "8")
        server.start()
        try:
            around = environment(os.environ, f"http://{server.host}:{server.port}", server.token, folder)
            for job in JOBS:
                _once(("-m", "phalanx", *job), around)
            tell(f"server: {count} calls each of {', '.join(CALLS)}")
            return _rows(around, count)
        finally:
            server.stop()


def environment(own: Mapping[str, str], address: str, token: str, folder: str) -> dict[str, str]:
    """What a verb is called with: the compiled modules of the call before are used, as at a user's prompt."""
    return {
        **{name: value for name, value in own.items() if name != "PYTHONDONTWRITEBYTECODE"},
        "PHALANX_ADDR": address,
        "PHALANX_TOKEN": token,
        "PHALANX_CONFIG": str(Path(folder, "config.yaml")),
    }


def _rows(around: Mapping[str, str], count: int) -> list[Row]:
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in CALLS}
    for turn in range(count + 1):
        for name, arguments in CALLS.items():
            once = _once(arguments, around)
            # The first call compiles what it loads.
            if turn:
                taken[name].append(once)
    rows: list[Row] = []
    for name, each in taken.items():
        cpu_ms, wall_ms = [cpu for cpu, _ in each], [wall for _, wall in each]
        target_ms = None if name == INTERPRETER else TARGET_MS
        rows += [
            row(f"{name}, CPU time, p50", quantile(cpu_ms, 0.5), "ms", target_ms),
            row(f"{name}, CPU time, least", min(cpu_ms), "ms"),
            row(f"{name}, wall-clock time, p50", quantile(wall_ms, 0.5), "ms"),
        ]
    return rows


def _once(arguments: tuple[str, ...], around: Mapping[str, str]) -> tuple[float, float]:
    """Milliseconds of CPU and by the clock of one process."""
    began_s = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, *arguments], env=around, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    _, status, used = os.wait4(process.pid, 0)
    wall_ms = 1000 * (time.perf_counter() - began_s)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"python {' '.join(arguments)} ended with {process.returncode}")
    return 1000 * (used.ru_utime + used.ru_stime), wall_ms
