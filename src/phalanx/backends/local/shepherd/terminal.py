"""The terminal of a task: what it prints goes to its log and to all attached clients, and what they type goes to it."""

from __future__ import annotations

import fcntl
import os
import socket
import struct
import termios
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from phalanx.backends.local.shepherd.loop import Loop
from phalanx.backends.local.wire import Wire

SIZE = (24, 80)
PIECE_BYTES = 1 << 16
BEHIND_BYTES_MAX = 1 << 20
"""A client further behind than this misses what comes then. The task never waits for clients."""

AGAIN_MS = 50
"""How soon it is tried again to pass on what could not be taken."""

LOG_MODE = 0o640


class Attached:
    """An attached client, and what has yet to be passed on, either way."""

    def __init__(self, wire: Wire, line: int) -> None:
        self.wire = wire
        self.line = socket.socket(fileno=line)
        self.line.setblocking(False)
        self.unsent = bytearray()
        self.is_heard = False

    def send(self, data: bytes) -> None:
        """Passes on what was printed as far as it is taken, and keeps a bounded rest."""
        if len(self.unsent) < BEHIND_BYTES_MAX:
            self.unsent += data
        with suppress(BlockingIOError):
            del self.unsent[: self.line.send(self.unsent)]


class Terminal:
    """A terminal that outlives its clients."""

    def __init__(self, loop: Loop, log_path: str, user: Sequence[int]) -> None:
        self._loop = loop
        self._ours, self.theirs = os.openpty()
        os.set_blocking(self._ours, False)
        if user:
            os.fchown(self.theirs, user[0], -1)
        self._log = os.open(log_path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, LOG_MODE)
        self._attached: list[Attached] = []
        self._is_open = True
        self.resize(*SIZE)
        loop.watch(self._ours, self._print)

    def __len__(self) -> int:
        return len(self._attached)

    def hand_over(self) -> None:
        """Leaves the task's side of it to the task."""
        if self.theirs >= 0:
            os.close(self.theirs)
            self.theirs = -1

    def attach(self, wire: Wire, line: int, rows: int, columns: int) -> None:
        """Lets a client see it and type into it."""
        client = Attached(wire, line)
        self._attached.append(client)
        self._hear(client)
        if rows and columns:
            self.resize(rows, columns)

    def detach(self, wire: Wire) -> None:
        """Lets go of a client; the task does not notice."""
        for client in [each for each in self._attached if each.wire is wire]:
            self._attached.remove(client)
            self._mute(client)
            client.line.close()

    def resize(self, rows: int, columns: int) -> None:
        """Sets its size."""
        with suppress(OSError):
            fcntl.ioctl(self._ours, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def end(self, status: int) -> None:
        """Shows the last of it and tells all clients how the task ended."""
        while self._is_open and self._print():
            pass
        for client in list(self._attached):
            client.send(b"")
            client.wire.send({"exit": status})
            self.detach(client.wire)

    def _print(self) -> bool:
        """Passes on what the task has printed; False if there was nothing."""
        try:
            data = os.read(self._ours, PIECE_BYTES)
        except BlockingIOError:
            return False
        except OSError:
            # The last that had it open has closed it.
            data = b""
        if not data:
            self._is_open = False
            self._loop.forget(self._ours)
            return False
        with suppress(OSError):
            os.write(self._log, data)
        for client in list(self._attached):
            self._send(client, data)
        return True

    def _send(self, client: Attached, data: bytes) -> None:
        if client not in self._attached:
            return
        waits = bool(client.unsent)
        try:
            client.send(data)
        except OSError:
            self.detach(client.wire)
            return
        if client.unsent and not (data and waits):
            self._loop.after(AGAIN_MS, partial(self._send, client, b""))

    def _hear(self, client: Attached) -> None:
        client.is_heard = True
        self._loop.watch(client.line, partial(self._take, client))

    def _mute(self, client: Attached) -> None:
        if client.is_heard:
            client.is_heard = False
            self._loop.forget(client.line)

    def _take(self, client: Attached) -> None:
        try:
            data = client.line.recv(PIECE_BYTES)
        except OSError:
            data = b""
        if not data:
            # Nothing more is typed; what is printed is still wanted until the wire is closed.
            self._mute(client)
            return
        self._type(client, data)

    def _type(self, client: Attached, data: bytes) -> None:
        """Types into the task what it takes now; the client is not heard until it has taken all."""
        if client not in self._attached:
            return
        try:
            data = data[os.write(self._ours, data) :]
        except BlockingIOError:
            pass
        except OSError:
            return
        if data:
            self._mute(client)
            self._loop.after(AGAIN_MS, partial(self._type, client, data))
        elif not client.is_heard:
            self._hear(client)
