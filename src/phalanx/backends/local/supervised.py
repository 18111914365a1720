"""A flock: one attempt as the backend sees it, and the line to its shepherd."""

from __future__ import annotations

import os
import socket
import sys
import time
from errno import EAGAIN
from pathlib import Path

from phalanx.backends.local.device_memory.start import DRIVER_VARIABLE
from phalanx.backends.local.environment import PASSED_ON
from phalanx.backends.local.folder import AttemptFolder
from phalanx.backends.local.wire import Message, Wire, connect_to
from phalanx.protocol.action import Resize, Resume, Stop, Suspend

PassedOn = Stop | Suspend | Resume | Resize
"""Actions for an attempt that has a shepherd."""

CONNECT_PATIENCE_S = 5.0
"""A shepherd that has its lock listens within milliseconds; more only on a machine that is very busy."""

LEAVING_S = 5.0
"""How long a shepherd may take to be gone once it has told of the end: milliseconds, unless the machine is busy."""

_ROOT = str(Path(__file__).parents[3])
_PROGRAM = (
    f"import sys; sys.path.append({_ROOT!r}); "
    "from phalanx.backends.local.shepherd.__main__ import main; main(sys.argv[1], int(sys.argv[2]))"
)
"""Started without site-packages: a shepherd needs the standard library only, and must start fast."""


_LINE = 3
"""The number under which a shepherd finds its end of the line to us."""


class SupervisedAttempt:
    """One attempt that may be running. `asked` is what its shepherd was told and has not answered, by number. Of one
    that is `unknown` to the store nothing is reported.
    """

    def __init__(self, job: str, attempt: int, folder: AttemptFolder) -> None:
        self.job = job
        self.attempt = attempt
        self.folder = folder
        self.wire: Wire | None = None
        self.ended = False
        self.unknown = False
        self.asked: dict[int, PassedOn] = {}
        self._child = 0

    def spawn(self) -> Wire:
        """Begins a shepherd, which goes on when we end."""
        ours, theirs = socket.socketpair()
        appended = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        with theirs:
            self._child = os.posix_spawn(
                sys.executable,
                [sys.executable, "-I", "-S", "-c", _PROGRAM, self.folder.path, str(_LINE)],
                {name: os.environ[name] for name in (*PASSED_ON, DRIVER_VARIABLE) if name in os.environ},
                file_actions=[
                    (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                    (os.POSIX_SPAWN_OPEN, 1, f"{self.folder.path}/shepherd.log", appended, 0o600),
                    (os.POSIX_SPAWN_DUP2, 1, 2),
                    (os.POSIX_SPAWN_DUP2, theirs.fileno(), _LINE),
                ],
                setsid=True,
            )
        self.wire = Wire(ours)
        return self.wire

    def connect(self) -> Wire | None:
        """Joins a shepherd that is there already; None if it has gone."""
        deadline_s = time.monotonic() + CONNECT_PATIENCE_S
        while not self.deserted() and time.monotonic() < deadline_s:
            self.wire = connect_to(self.folder.path)
            if self.wire is not None:
                self.wire.send({"do": "watch"})
                return self.wire
            time.sleep(0.01)
        return None

    def deserted(self) -> bool:
        """Whether no shepherd looks after it."""
        lock = self.folder.lock()
        if lock is None:
            return False
        os.close(lock)
        return True

    def lock_after_end(self) -> int:
        """The lock of an attempt of whose end its shepherd has told: that is on its way out."""
        deadline_s = time.monotonic() + LEAVING_S
        while (lock := self.folder.lock()) is None:
            if time.monotonic() > deadline_s:
                raise OSError(EAGAIN, "its shepherd has told of its end and is still there", self.folder.path)
            time.sleep(0.01)
        return lock

    def send(self, message: Message) -> bool:
        """Tells the shepherd; False if there is none."""
        return self.wire is not None and self.wire.send(message)

    def let_go(self) -> None:
        """Closes the line; the shepherd goes on."""
        if self.wire is not None:
            self.wire.close()
            self.wire = None

    def reap(self) -> None:
        """Sees the shepherd off, if it was our child."""
        if self._child:
            os.waitpid(self._child, 0)
            self._child = 0
