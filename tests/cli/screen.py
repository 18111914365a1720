"""A terminal with a verb in it, for tests of what people type and see."""

from __future__ import annotations

import fcntl
import os
import select
import struct
import subprocess
import sys
import termios
import time
from types import TracebackType

PATIENCE_S = 240.0


class Screen:
    """`phalanx VERB` in a terminal of its own, which ends with the block."""

    def __init__(self, *arguments: str, rows: int = 24, columns: int = 80) -> None:
        self._ours, theirs = os.openpty()
        self.resize(rows, columns)
        environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "phalanx", *arguments],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env={**environment, "TERM": "xterm"},
            start_new_session=True,
        )
        os.close(theirs)
        self.text = ""

    def __enter__(self) -> Screen:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait(PATIENCE_S)
        os.close(self._ours)

    def resize(self, rows: int, columns: int) -> None:
        """Makes the window larger or smaller."""
        fcntl.ioctl(self._ours, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, keys: str) -> None:
        """Presses keys."""
        os.write(self._ours, keys.encode())

    def see(self, wanted: str) -> str:
        """Waits until something is on the screen; all that has been since it was last waited for."""
        deadline_s = time.monotonic() + PATIENCE_S
        while wanted not in self.text:
            assert time.monotonic() < deadline_s, f"{wanted!r} never came: {self.text!r}"
            assert self._read(), f"{wanted!r} never came: {self.text!r}"
        seen, self.text = self.text, self.text[self.text.index(wanted) + len(wanted) :]
        return seen

    def end(self) -> int:
        """Waits for the end of the verb; its exit code."""
        while self._read():
            pass
        return self._process.wait(PATIENCE_S)

    def _read(self) -> bool:
        if not select.select([self._ours], [], [], PATIENCE_S)[0]:
            return False
        try:
            data = os.read(self._ours, 65536)
        except OSError:
            return False
        self.text += data.decode(errors="replace")
        return bool(data)
