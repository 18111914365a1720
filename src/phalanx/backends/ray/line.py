"""The line to the driver, the process that talks to Ray. It is begun where there is none, and goes on without us."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from phalanx.backends.local.folder import AttemptFolder
from phalanx.backends.local.supervised import SupervisedAttempt
from phalanx.backends.local.wire import Wire, connect_to

SOURCE = str(Path(__file__).parents[3])


class DriverLine:
    """Speaks to the driver of a folder. `site` tells this server's gangs from those of others on the same Ray."""

    def __init__(self, folder: Path, address: str, site: str) -> None:
        self._folder = folder
        self._address = address
        self._site = site
        self.wire: Wire | None = None
        self.replace: Callable[[], None] = self.let_go
        """Called where the driver is found to be gone: lets go of it, and begins to listen to the next."""

    def open(self) -> Wire:
        """The line, to a driver that is there or to a new one."""
        if self.wire is None:
            self._folder.mkdir(parents=True, exist_ok=True)
            self.wire = connect_to(str(self._folder)) or self._begin()
        return self.wire

    def take(self, path: str) -> Wire | None:
        """Has the driver take an attempt on; the line to that. None if the driver has just gone."""
        ours, theirs = socket.socketpair()
        with theirs:
            if self.open().send({"do": "take", "path": path, "site": self._site}, (theirs.fileno(),)):
                return Wire(ours)
        ours.close()
        return None

    def let_go(self) -> None:
        """Closes the line; the driver goes on."""
        if self.wire is not None:
            self.wire.close()
            self.wire = None

    def _begin(self) -> Wire:
        ours, theirs = socket.socketpair()
        with theirs, open(self._folder / "driver.log", "ab") as log:
            # It outlives this process, so that it is not waited for: its parent is one that ends at once.
            program = [sys.executable, "-m", "phalanx.backends.ray.driver", str(self._folder), self._address]
            os.set_inheritable(theirs.fileno(), True)
            subprocess.run(
                ["setsid", "--fork", *program, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(theirs.fileno(),),
                env={**os.environ, "PYTHONPATH": SOURCE, "RAY_USAGE_STATS_ENABLED": "0"},
                check=True,
            )
        return Wire(ours)


class RayAttempt(SupervisedAttempt):
    """One attempt whose shepherd is the driver."""

    def __init__(self, job: str, attempt: int, folder: AttemptFolder, line: DriverLine) -> None:
        super().__init__(job, attempt, folder)
        self.tries = 0
        self._driver = line

    def spawn(self) -> Wire:
        """Has the driver take it on."""
        wire = self._driver.take(self.folder.path)
        if wire is None:
            self._driver.replace()
            wire = self._driver.take(self.folder.path)
        if wire is None:
            raise OSError(0, "the driver of Ray does not start", self.folder.path)
        self.wire = wire
        return wire
