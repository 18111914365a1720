"""Sessions: a command that runs beside a task, with its input and output in our hands. Any process may open one."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import socket
import struct
import termios
from pathlib import Path

from phalanx.backends.local.orders import Yard
from phalanx.backends.local.wire import Wire, connect_to
from phalanx.errors import PhalanxError


class NoSession(PhalanxError):  # noqa: N818
    """A task that nothing can be run beside."""


class Session:
    """A command under way. Reading gives what it prints, and nothing once it has ended."""

    def __init__(self, wire: Wire, line: int, is_terminal: bool) -> None:
        self._wire = wire
        self._line = line
        self._is_terminal = is_terminal
        self._exit_code: int | None = None

    def fileno(self) -> int:
        """Readable when the command has printed something or has ended."""
        return self._line

    def read(self, size: int = 65536) -> bytes:
        """What it has printed; waits for at least one byte, and gives none at the end."""
        try:
            return os.read(self._line, size)
        except OSError:
            # A terminal whose other side is closed gives an error where a pipe gives its end.
            return b""

    def write(self, data: bytes) -> None:
        """Types into it."""
        while data:
            data = data[os.write(self._line, data) :]

    def end_input(self) -> None:
        """Tells it that nothing more will be typed."""
        if self._is_terminal:
            self.write(b"\x04")
        else:
            with socket.socket(fileno=os.dup(self._line)) as line:
                line.shutdown(socket.SHUT_WR)

    def resize(self, rows: int, columns: int) -> None:
        """Sets the size of its terminal."""
        if self._is_terminal:
            fcntl.ioctl(self._line, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def wait(self, timeout_s: float | None = None) -> int:
        """Its exit code, once it has ended; negative for a signal."""
        while self._exit_code is None:
            if not select.select([self._wire], [], [], timeout_s)[0]:
                raise TimeoutError(f"the command did not end within {timeout_s} s")
            messages = self._wire.receive()
            if messages is None:
                raise NoSession("the task has ended, and with it the command beside it")
            for message in messages:
                if "error" in message:
                    raise NoSession(message["error"])
                self._exit_code = message["exit"]
        return self._exit_code

    def close(self) -> None:
        """Hangs up, which ends the command if it still runs."""
        self._wire.close()
        os.close(self._line)


def open_session(
    data: Path, job: str, attempt: int, rank: int, argv: tuple[str, ...], terminal: tuple[int, int] | None = None
) -> Session:
    """Runs a command beside a task; with `terminal` (rows, columns) in a terminal of its own."""
    wire = connect_to(Yard(data).folder(job, attempt).path)
    if wire is None:
        raise NoSession(f"job {job}: attempt {attempt} does not run here")
    if terminal is not None:
        ours, theirs = pty.openpty()
    else:
        ours, theirs = (end.detach() for end in socket.socketpair())
    session = Session(wire, ours, terminal is not None)
    if terminal is not None:
        session.resize(*terminal)
    wire.send({"do": "exec", "rank": rank, "argv": list(argv)}, (theirs, theirs, theirs))
    os.close(theirs)
    return session
