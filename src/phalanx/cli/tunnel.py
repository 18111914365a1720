"""Connections of this machine that go on over lines into a job, each over a line of its own."""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from threading import Lock, Thread
from typing import TYPE_CHECKING

import click

from phalanx.errors import PhalanxError

if TYPE_CHECKING:
    from websockets.sync.client import ClientConnection

PIECE_BYTES = 1 << 16
EOF = json.dumps({"eof": True})


class Tunnel:
    """Takes connections until it is ended, and ends with all of them."""

    def __init__(self, listener: socket.socket, open_line: Callable[[], ClientConnection]) -> None:
        self._listener = listener
        self._open_line = open_line
        self._open: set[socket.socket] = set()
        self._lock = Lock()
        self._told: set[str] = set()
        self._is_over = False

    def begin(self) -> None:
        """Takes connections beside what else happens."""
        Thread(target=self._serve, daemon=True).start()

    def end(self) -> None:
        """Takes no more, and closes those there are."""
        self._is_over = True
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        with self._lock:
            for each in self._open:
                with suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)

    def _serve(self) -> None:
        while not self._is_over:
            try:
                end, _ = self._listener.accept()
            except OSError:
                return
            Thread(target=self._pass_on, args=(end,), daemon=True).start()

    def _pass_on(self, end: socket.socket) -> None:
        with self._lock:
            self._open.add(end)
        try:
            with end, self._open_line() as line:
                Thread(target=_send, args=(end, line), daemon=True).start()
                _receive(line, end)
        except PhalanxError as error:
            self._tell(str(error))
        finally:
            with self._lock:
                self._open.discard(end)

    def _tell(self, message: str) -> None:
        """Says what is wrong, once: a browser tries again and again."""
        with self._lock:
            if message not in self._told and not self._is_over:
                self._told.add(message)
                click.echo(f"phalanx: {message}", err=True)
                sys.stderr.flush()


def _send(end: socket.socket, line: ClientConnection) -> None:
    from websockets.exceptions import ConnectionClosed

    with suppress(ConnectionClosed, OSError):
        while data := end.recv(PIECE_BYTES):
            line.send(data)
        line.send(EOF)


def _receive(line: ClientConnection, end: socket.socket) -> None:
    """Passes on what comes until the task has ended its side, or the line has broken."""
    from websockets.exceptions import ConnectionClosed

    with suppress(ConnectionClosed, OSError):
        while isinstance(data := line.recv(), bytes):
            end.sendall(data)
        end.shutdown(socket.SHUT_WR)
