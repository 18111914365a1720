"""The clock of the logs: notes how long the logs of an attempt have become, and when they were written to."""

from __future__ import annotations

import os
import time
from contextlib import suppress

from phalanx.backends.local.folder import AttemptFolder
from phalanx.backends.local.host.kernel import watch_writing
from phalanx.backends.local.logs.times import note_time
from phalanx.backends.local.shepherd.loop import Loop

PAUSE_MS = 50
"""How often a task that prints without a pause is looked at."""

LOOK_MS = 500
"""How often it is looked where the kernel does not tell of writing."""

EVENTS_BYTES = 1 << 16


class LogClock:
    """Looks at the logs as long as the attempt goes on. A full disk costs times, and never a line."""

    def __init__(self, loop: Loop, folder: AttemptFolder) -> None:
        self._loop = loop
        self._folder = folder
        self._sizes: dict[str, int] = {}
        self._newest_ms: dict[str, int] = {}

    def begin(self) -> None:
        """Looks from now on whenever something was written."""
        try:
            bell = watch_writing(self._folder.path)
        except OSError:
            self._look_again()
        else:
            self._listen(bell)

    def look(self) -> None:
        """Notes what has been written since the last look."""
        now_ms = int(time.time() * 1000)
        for path, found in self._folder.logs():
            if found.st_size > self._sizes.get(path, 0):
                self._note(path, found, now_ms)

    def _listen(self, bell: int) -> None:
        self.look()
        self._loop.watch(bell, lambda: self._hear(bell))

    def _hear(self, bell: int) -> None:
        """Looks, and does not listen for a while: a task may write without a pause."""
        self._loop.forget(bell)
        with suppress(BlockingIOError):
            os.read(bell, EVENTS_BYTES)
        self.look()
        self._loop.after(PAUSE_MS, lambda: self._listen(bell))

    def _look_again(self) -> None:
        self.look()
        self._loop.after(LOOK_MS, self._look_again)

    def _note(self, path: str, found: os.stat_result, now_ms: int) -> None:
        # A clock that was set back makes no line older than the one before it.
        at_ms = max(min(found.st_mtime_ns // 1_000_000, now_ms), self._newest_ms.get(path, 0))
        with suppress(OSError):
            note_time(path, found.st_size, at_ms)
            self._sizes[path], self._newest_ms[path] = found.st_size, at_ms
