"""Launchers as processes of their own, and a rank that writes down what it sees."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PATIENCE_S = 240.0

RANK = """
import json, os, signal, sys, time
from phalanx.train.launch.progress import beat

out = os.environ["OUT"]
def note(event, **facts):
    said = {"event": event, "epoch": int(os.environ.get("PHALANX_EPOCH", "0")), "rank": int(os.environ["RANK"]),
            "world": int(os.environ["WORLD_SIZE"]), "pid": os.getpid(), **facts}
    with open(out, "a") as file:
        file.write(json.dumps(said) + "\\n")

"""

NOTES, RANK = (
    RANK,
    RANK
    + """
rank, restarts = int(os.environ["RANK"]), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
signal.signal(signal.SIGTERM, lambda *_: (note("saved"), os._exit(0)))
note("began", restarts=restarts)
until = os.environ["OUT"] + ".end"
def train():
    step = 0
    while not os.path.exists(until):
        step += 1
        beat(step)
        time.sleep(0.02)
""",
)
"""What every rank's program begins with; `train()` goes on until it is let go. NOTES is the part that writes down."""


class Launched:
    """One launcher, its standard error, and what the ranks of all launchers of a test wrote."""

    prelude = RANK

    def __init__(
        self, folder: Path, name: str, program: str, options: tuple[str, ...], variables: Mapping[str, str]
    ) -> None:
        self.folder, self.said = folder, folder / f"{name}.err"
        script = folder / "rank.py"
        script.write_text(self.prelude + program)
        command = [*self.launcher(options), str(script)]
        source = str(Path(__file__).parents[2] / "src")
        environment = {**os.environ, "OUT": str(folder / "out"), "PYTHONPATH": source, **variables}
        with self.said.open("w") as file:
            self.process = subprocess.Popen(command, stderr=file, env=environment)

    def launcher(self, options: tuple[str, ...]) -> list[str]:
        """The command, up to the program."""
        return [sys.executable, "-m", "phalanx", "launch", *options, "--", self.interpreter()]

    def interpreter(self) -> str:
        """What runs the program."""
        return sys.executable

    def wait(self, timeout_s: float = PATIENCE_S) -> int:
        return self.process.wait(timeout_s)

    def errors(self) -> str:
        return self.said.read_text()


class Launch:
    """The launchers of one test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.kind = Launched
        self._all: list[Launched] = []

    def __call__(self, program: str = "train()", *options: str, **variables: str) -> Launched:
        launched = self.kind(self.folder, f"launcher-{len(self._all)}", program, options, variables)
        self._all.append(launched)
        return launched

    def notes(self, event: str) -> list[dict[str, Any]]:
        """What ranks have written, of one kind."""
        path = self.folder / "out"
        text = path.read_text() if path.exists() else ""
        # The last line may be half written still.
        whole = text[: text.rfind("\n") + 1]
        return [note for note in map(json.loads, whole.splitlines()) if note["event"] == event]

    def epochs(self) -> dict[int, list[int]]:
        """The ranks that began, by epoch."""
        found: dict[int, list[int]] = {}
        for note in self.notes("began"):
            found.setdefault(note["epoch"], []).append(note["rank"])
        return {epoch: sorted(ranks) for epoch, ranks in found.items()}

    def until(self, condition: Callable[[], Any], what: str, timeout_s: float = PATIENCE_S) -> None:
        deadline = time.monotonic() + timeout_s
        while not condition():
            said = "\n".join(launched.errors() for launched in self._all)
            assert time.monotonic() < deadline, f"not within {timeout_s} s: {what}\n{self.epochs()}\n{said}"
            time.sleep(0.02)

    def world(self, size: int, epochs_before: int = -1) -> None:
        """Waits until a world of that size has begun whole, in a later epoch than the given one."""

        def has_begun() -> bool:
            newest = max(self.epochs(), default=-1)
            return newest > epochs_before and self.epochs()[newest] == list(range(size))

        self.until(has_begun, f"a world of {size}")

    def let_go(self) -> None:
        """Has all ranks end as they should."""
        (self.folder / "out.end").touch()

    def close(self) -> None:
        for launched in self._all:
            if launched.process.poll() is None:
                launched.process.send_signal(signal.SIGCONT)
                launched.process.kill()
                launched.process.wait()


@contextmanager
def launching(folder: Path) -> Iterator[Launch]:
    launch = Launch(folder)
    try:
        yield launch
    finally:
        launch.close()
