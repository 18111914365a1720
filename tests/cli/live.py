"""A real server for tests of the client verbs, and what a verb did."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PATIENCE_S = 240.0


class Server:
    """`phalanx up` with two simulated nodes of four GPUs."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.url = ""
        self.token_file = ""
        self._port = "0"
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Starts it, again at the same port, and waits until it is ready."""
        for folder in self.data.parents:
            # Jobs of a server that is root run as other users, whom pytest keeps out.
            folder.chmod(folder.stat().st_mode | 0o011)
        options = [
            "--data",
            str(self.data),
            "--listen",
            f"127.0.0.1:{self._port}",
            "--simulate",
            "--nodes",
            "2",
            "--gpus",
            "4",
        ]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "phalanx", "up", "-o", "json", *options], stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        ready = json.loads(self._process.stdout.readline())
        self.url, self.token_file = ready["url"], ready["token_file"]
        self._port = self.url.rpartition(":")[2]

    def kill(self) -> None:
        """Kills it with no warning; its parts end with it."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Stops it as an operator would."""
        self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        self._process.send_signal(number)
        self._process.wait(PATIENCE_S)
        self._process.stdout.close()


@dataclass(frozen=True, slots=True)
class Result:
    """What a verb did."""

    code: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        return json.loads(self.out)


Phalanx = Callable[..., Result]


def until(what: Callable[[], object]) -> None:
    """Waits for something to be so."""
    deadline_s = time.monotonic() + PATIENCE_S
    while not what():
        assert time.monotonic() < deadline_s, "it never came to be"
        time.sleep(0.05)
