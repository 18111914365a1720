"""Jobs of a server that train: what several test modules ask of them."""

from __future__ import annotations

import functools
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from running import PATIENCE_S, Server, eventually

from job_python import JOB_PYTHON

PROGRAM = str(Path(__file__).with_name("training.py"))
STEPS = 150
GRACE = "300s"
"""On a busy machine what saves is as long in importing torch as a job in its usual grace."""

CAN_TRAIN = sys.executable == JOB_PYTHON
"""Whether jobs can run the Python that has torch."""


@functools.cache
def undisturbed() -> str:
    """The digest of the weights in which a training ends to which nothing happens."""
    command = [sys.executable, PROGRAM, str(STEPS)]
    told = subprocess.run(command, check=True, capture_output=True, text=True, timeout=PATIENCE_S)
    return told.stdout.strip()


def training(step_s: float, *launcher: str) -> list[str]:
    """The command of a training; by itself, or started by a launcher."""
    return [*launcher, JOB_PYTHON, PROGRAM, str(STEPS), str(step_s)]


class Trainings:
    """A server with two nodes of two GPUs whose jobs train."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self._hurry = server.data.parent / "hurry"
        self._jobs: list[str] = []
        self._drained: list[str] = []

    def submit(self, command: Sequence[str], env: dict[str, str] | None = None, **job: Any) -> str:
        """Submits a training that saves its work; its id."""
        settings = {"checkpoint": {}, "grace": GRACE, "env": {"TRAINING_HURRY": str(self._hurry), **(env or {})}, **job}
        self._jobs.append(str(self.server.submit(command=list(command), **settings)["id"]))
        return self._jobs[-1]

    def hurry(self) -> None:
        """Has all steps take no time from now on: nothing more is to happen while they are done."""
        self._hurry.touch()

    def logs(self, job: str, attempt: int, stream: str = "out") -> str:
        """What all tasks of an attempt printed."""
        folder = self.server.data / "jobs" / job / str(attempt)
        return "".join(path.read_text() for path in sorted(folder.glob(f"*.{stream}")))

    def await_log(self, job: str, attempt: int, line: str) -> None:
        """Waits until a task has printed it; where none does, all that the attempts printed is told."""
        try:
            eventually(lambda: line in self.logs(job, attempt))
        except AssertionError:
            streams = [(number, stream) for number in range(1, attempt + 1) for stream in ("out", "err")]
            told = "".join(self.logs(job, *each) for each in streams)
            raise AssertionError(f"{line!r} in attempt {attempt}: {self.server.job(job)}\n{told}") from None

    def await_saved(self, job: str) -> None:
        """Waits until a step is whole in the directory that all ranks see, however long a busy machine takes for it."""
        eventually(lambda: any((self.server.data / "checkpoints" / job).glob("step-*/COMMITTED")))

    def nodes_of(self, job: str, attempt: int) -> list[str]:
        attempts = self.server.client.get(f"/jobs/{job}/attempts").raise_for_status().json()["items"]
        return next(list(each["nodes"]) for each in attempts if each["number"] == attempt)

    def preempt(self, gpus: int = 4) -> str:
        """Has a job of a higher priority take their place; its id, once it runs."""
        gang = [{"replicas": gpus, "gpus": 1}]
        self._jobs.append(str(self.server.submit(command=["sleep", "1000"], priority=100, gang=gang)["id"]))
        self.server.wait(self._jobs[-1], "running")
        return self._jobs[-1]

    def cancel(self, job: str) -> None:
        self.server.client.post(f"/jobs/{job}:cancel").raise_for_status()

    def drain(self, job: str, attempt: int) -> str:
        """Drains the only node on which an attempt was; its name."""
        (node,) = self.nodes_of(job, attempt)
        self.server.client.post(f"/nodes/{node}:drain").raise_for_status()
        self._drained.append(node)
        return node

    def resize(self, job: str, replicas: int) -> None:
        self.server.client.post(f"/jobs/{job}:resize", json={"replicas": replicas}).raise_for_status()

    def configure(self, text: str) -> None:
        """Changes the cluster by a file."""
        headers = {"Content-Type": "application/yaml"}
        self.server.client.put("/cluster", content=text, headers=headers).raise_for_status()

    def clear(self) -> None:
        """Leaves the server as the next test wants it."""
        for job in self._jobs:
            if self.server.job(job)["state"] not in ("succeeded", "failed", "cancelled"):
                self.cancel(job)
                self.server.wait(job, "cancelled")
        self.configure("maintenance: []\n")
        for node in self._drained:
            self.server.client.post(f"/nodes/{node}:undrain").raise_for_status()
        self._hurry.unlink(missing_ok=True)


@contextmanager
def training_server(folder: Path) -> Iterator[Server]:
    """A server with two nodes of two GPUs."""
    server = Server(folder, "--simulate", "--nodes", "2", "--gpus", "2", "--policy", "priority").start()
    try:
        yield server
    finally:
        server.stop()
