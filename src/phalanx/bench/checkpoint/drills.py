"""Many drills with one launcher, which has torch loaded."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

from phalanx.bench.checkpoint.drill import Drill


class Outcome:
    """What became of a drill: which ranks died, how often the ranks were started, and what each said at the end."""

    def __init__(self, answer: dict[str, Any]) -> None:
        self.deaths: list[dict[str, Any]] = answer["deaths"]
        self.ranks: list[dict[str, Any]] = answer["ranks"]

    @property
    def starts(self) -> int:
        return len(self.deaths) + 1

    def was_hit(self, kill: str) -> bool:
        """Whether the rank that was to died of SIGKILL, and the ranks were started again once."""
        rank = int(kill.split("@")[2])
        return [(death["rank"], death["status"]) for death in self.deaths] == [(rank, -signal.SIGKILL)]

    @property
    def digests(self) -> list[str]:
        return [rank["digest"] for rank in self.ranks]

    def loaded(self, key: str) -> list[Any]:
        """What each rank says of its last load."""
        return [rank["loaded"][key] for rank in self.ranks]


class Launcher:
    """A process that runs drills, one after the other."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def run(self, drill: Drill) -> Outcome:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(asdict(drill)) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the launcher died of {drill}")
        return Outcome(json.loads(line))


@contextmanager
def launcher() -> Iterator[Launcher]:
    """Starts a launcher, and ends it afterwards."""
    command = [sys.executable, "-m", "phalanx.bench.checkpoint.drill"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            yield Launcher(process)
        finally:
            process.kill()
