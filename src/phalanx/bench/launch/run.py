"""Launchers and torchruns as processes, with ranks that write down what they do."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

RANK = str(Path(__file__).with_name("rank.py"))
PATIENCE_S = 300.0
LAUNCH = ("-m", "phalanx", "launch")
TORCHRUN = ("-m", "torch.distributed.run")
PRELOAD = "torch,torch.distributed,phalanx.bench.launch.rank"
"""What standbys import: all that the program does."""


class Process:
    """One agent, and the lines of its standard error with the time of each."""

    def __init__(
        self, python: str, command: Sequence[str], variables: Mapping[str, str], before: Sequence[str] = ()
    ) -> None:
        """`before` is what stands before the interpreter."""
        home = str(Path(__file__).parents[3])
        path = os.pathsep.join(filter(None, [home, os.environ.get("PYTHONPATH", "")]))
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path, **variables}
        self._process = subprocess.Popen(
            [*before, python, *command],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
            # The kernel has stopped processes of a group go on once the shell that started the group has ended.
            process_group=0,
        )
        self.lines: list[tuple[float, str]] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self.lines.append((time.time(), line.rstrip("\n")))

    def leave(self) -> None:
        """Has it end as the scheduler would."""
        self._process.send_signal(signal.SIGTERM)

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def wait(self, patience_s: float = PATIENCE_S) -> int:
        code = self._process.wait(patience_s)
        self._reader.join(PATIENCE_S)
        return code

    def close(self) -> None:
        if self._process.poll() is None:
            self.send(signal.SIGCONT)
            self.leave()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(10)
            self._process.kill()
        self.wait()
        assert self._process.stderr is not None
        self._process.stderr.close()


class Run:
    """The agents of one run and the notes of its ranks; ended with its `with` block."""

    def __init__(self, python: str | None = None) -> None:
        """`python` runs agents, and the ranks of torchrun's; this process's own where none is named."""
        self.python = python or sys.executable
        self._temporary = tempfile.TemporaryDirectory(prefix="phalanx-bench-", ignore_cleanup_errors=True)
        self.folder = Path(self._temporary.name)
        self.processes: list[Process] = []

    def start(
        self, launcher: Sequence[str], way: str, number: int = 0, variables: Mapping[str, str] | None = None
    ) -> Process:
        """Starts an agent; `launcher` is its command up to the program."""
        words = [*launcher, RANK, way, str(self.folder), str(number)]
        process = Process(self.python, words, {"PYTHON_EXEC": self.python, **(variables or {})})
        self.processes.append(process)
        return process

    def notes(self, event: str) -> list[dict[str, Any]]:
        path = self.folder / "notes"
        text = path.read_text() if path.exists() else ""
        # The last line may be half written still.
        lines = text[: text.rfind("\n") + 1].splitlines()
        return [note for note in map(json.loads, lines) if note["event"] == event]

    def steps(self, world_size: int, after_s: float = 0.0) -> list[dict[str, Any]]:
        """The steps of worlds of that size, from a moment on."""
        return [note for note in self.notes("step") if note["world_size"] == world_size and note["at_s"] > after_s]

    def until(self, condition: Callable[[], Any], what: str) -> Any:
        deadline = time.monotonic() + PATIENCE_S
        while not (found := condition()):
            if time.monotonic() > deadline:
                said = "\n".join(line for process in self.processes for _, line in process.lines[-20:])
                raise TimeoutError(f"{what}: not within {PATIENCE_S:g} s\n{said}")
            time.sleep(0.02)
        return found

    def let_go(self) -> None:
        """Has all ranks end as they should."""
        (self.folder / "end").touch()

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *error: object) -> None:
        for process in self.processes:
            process.close()
        self._temporary.cleanup()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port
