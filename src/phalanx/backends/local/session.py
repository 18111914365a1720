"""Sessions: a command that runs beside a task, with its input and output in our hands. Any process may open one."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import socket
import struct
import termios
from contextlib import ExitStack
from pathlib import Path

from phalanx.backends.local.orders import Yard
from phalanx.backends.local.wire import Wire, connect_to
from phalanx.errors import PhalanxError

END_OF_INPUT = b"\x04"
"""What is typed into a terminal to end the input."""


class NoSession(PhalanxError):  # noqa: N818
    """A task that nothing can be run beside."""


class Session:
    """A command under way. Reading gives what it prints, and nothing once it has ended.

    What ends with `_now` never waits; `fileno` and `exit_fileno` tell what to wait for.
    """

    def __init__(self, wire: Wire, line: int, is_terminal: bool) -> None:
        os.set_blocking(line, False)
        self._wire = wire
        self._line = line
        self._exit_code: int | None = None
        self.is_terminal = is_terminal

    def fileno(self) -> int:
        """Readable when the command has printed something or has ended, writable when it can be typed into."""
        return self._line

    def exit_fileno(self) -> int:
        """Readable when it is known how the command ended."""
        return self._wire.fileno()

    def read(self, size: int = 65536) -> bytes:
        """What it has printed; waits for at least one byte, and gives none at the end."""
        while (printed := self.read_now(size)) is None:
            select.select([self._line], [], [])
        return printed

    def read_now(self, size: int = 65536) -> bytes | None:
        """What it has printed, none at the end; None if it has printed nothing yet."""
        try:
            return os.read(self._line, size)
        except BlockingIOError:
            return None
        except OSError:
            # A terminal whose other side is closed gives an error where a pipe gives its end.
            return b""

    def write(self, data: bytes) -> None:
        """Types into it."""
        while data := data[self.write_now(data) :]:
            select.select([], [self._line], [])

    def write_now(self, data: bytes | memoryview) -> int:
        """Types into it as much as it takes now, and says how much that was."""
        try:
            return os.write(self._line, data)
        except BlockingIOError:
            return 0

    def end_input(self) -> None:
        """Tells it that nothing more will be typed."""
        if self.is_terminal:
            self.write(END_OF_INPUT)
        else:
            self.shut_input()

    def shut_input(self) -> None:
        """Ends the input of a command that has no terminal."""
        with socket.socket(fileno=os.dup(self._line)) as line:
            line.shutdown(socket.SHUT_WR)

    def resize(self, rows: int, columns: int) -> None:
        """Sets the size of its terminal."""
        if self.is_terminal:
            fcntl.ioctl(self._line, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def wait(self, timeout_s: float | None = None) -> int:
        """Its exit code, once it has ended; negative for a signal."""
        while (code := self.exit_now()) is None:
            if not select.select([self._wire], [], [], timeout_s)[0]:
                raise TimeoutError(f"the command did not end within {timeout_s} s")
        return code

    def exit_now(self) -> int | None:
        """Its exit code, negative for a signal; None while it is not known."""
        messages = self._wire.receive() if self._exit_code is None else []
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
    data: Path,
    job: str,
    attempt: int,
    rank: int,
    argv: tuple[str, ...],
    terminal: tuple[int, int] | None = None,
    waits: bool = True,
) -> Session:
    """Runs a command beside a task; with `terminal` (rows, columns) in a terminal of its own.

    Where many are opened at the same time it waits for its turn; with `waits` unset, BlockingIOError tells of it.
    """
    wire = connect_to(Yard(data).folder(job, attempt).path, waits)
    if wire is None:
        raise NoSession(f"job {job}: attempt {attempt} does not run here")
    with ExitStack() as unless_opened:
        unless_opened.callback(wire.close)
        ours, theirs = pty.openpty() if terminal is not None else _sockets()
        unless_opened.callback(os.close, ours)
        try:
            session = Session(wire, ours, terminal is not None)
            if terminal is not None:
                session.resize(*terminal)
            if not wire.send({"do": "exec", "rank": rank, "argv": list(argv)}, (theirs, theirs, theirs)):
                raise NoSession(f"job {job}: attempt {attempt} has just ended")
        finally:
            os.close(theirs)
        unless_opened.pop_all()
    return session


def _sockets() -> tuple[int, int]:
    ours, theirs = socket.socketpair()
    return ours.detach(), theirs.detach()


class Attachment(Session):
    """The terminal of a task itself. Hanging up leaves the task as it is."""

    def __init__(self, wire: Wire, line: int, rank: int) -> None:
        super().__init__(wire, line, is_terminal=False)
        self._rank = rank

    def resize(self, rows: int, columns: int) -> None:
        """Sets the size of the task's terminal, unless its shepherd is too busy to hear of it."""
        self._wire.send_now({"do": "resize terminal", "rank": self._rank, "rows": rows, "columns": columns})


def attach(data: Path, job: str, attempt: int, rank: int, size: tuple[int, int]) -> Attachment:
    """Attaches to the terminal of a task, of a size (0, 0: as it is). BlockingIOError: ask again."""
    wire = connect_to(Yard(data).folder(job, attempt).path, waits=False)
    if wire is None:
        raise NoSession(f"job {job}: attempt {attempt} does not run here")
    ours, theirs = _sockets()
    try:
        asked = {"do": "attach", "rank": rank, "rows": size[0], "columns": size[1]}
        if not wire.send(asked, (theirs,)):
            wire.close()
            os.close(ours)
            raise NoSession(f"job {job}: attempt {attempt} has just ended")
    finally:
        os.close(theirs)
    return Attachment(wire, ours, rank)
