"""`phalanx view` for tests: the real process tree, over a journal of the simulator."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx2

PATIENCE_S = 120.0
TRACE = """job_id,submit_s,duration_s,gpus,user,queue
1,0,7200,8,ada,red
2,60,7200,16,bob,blue
3,120,600,16,ada,red
4,10000,600,4,bob,blue
"""
CLUSTER = """
name: small
nodes: [{name: n, count: 4, gpus: 8, gpu_type: H100}]
policy: fifo
queues: [{name: red, deserved: {gpus: 16}}, {name: blue, deserved: {gpus: 16}}]
"""


def simulated(folder: Path, *options: str) -> Path:
    """The journal of a short simulated run: job 3 waits for 8 GPUs of job 1 or 2, from the second minute."""
    (folder / "cluster.yaml").write_text(CLUSTER)
    (folder / "trace.csv").write_text(TRACE)
    journal = folder / "journal.jsonl"
    command = [sys.executable, "-m", "phalanx", "simulate", "--cluster", str(folder / "cluster.yaml"), *options]
    told = subprocess.run(
        [*command, "--trace", str(folder / "trace.csv"), "--costs", "none", "--journal", str(journal)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.returncode == 0, told.stderr
    return journal


class Viewer:
    """A journal that is shown, and a client that went to the address that was printed."""

    def __init__(self, path: Path, folder: Path) -> None:
        ready = folder / "address"
        ready.unlink(missing_ok=True)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "phalanx", "view", str(path), "--ready-file", str(ready)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "TMPDIR": str(folder)},
        )
        deadline_s = time.monotonic() + PATIENCE_S
        while not ready.exists() and self._process.poll() is None and time.monotonic() < deadline_s:
            time.sleep(0.02)
        assert ready.exists(), self._process.communicate()[0]
        self.address = ready.read_text().strip()
        self.url = self.address.partition("/ui/")[0]
        self.client = httpx2.Client(base_url=f"{self.url}/api/v1", timeout=60)
        self.client.get(self.address)

    def stop(self) -> int:
        """Ends it as Ctrl-C would; its exit code."""
        self.client.close()
        self._process.send_signal(signal.SIGINT)
        self._process.communicate(timeout=60)
        return self._process.returncode
