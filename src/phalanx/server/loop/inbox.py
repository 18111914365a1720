"""The inbox: where API workers hand in requests and are answered, over a Unix socket. Nothing here blocks."""

from __future__ import annotations

import os
import selectors
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import msgspec

from phalanx.server.loop.wire import Answer, News, Request, framed, frames, request_of
from phalanx.server.unix import bind_unix

READ_BYTES = 1 << 20


@dataclass(slots=True, eq=False)
class Visitor:
    """A worker at the inbox."""

    socket: socket.socket
    received: bytearray = field(default_factory=bytearray)
    to_send: bytearray = field(default_factory=bytearray)


class Asked(NamedTuple):
    """A request, and the connection that waits for the answer."""

    visitor: Visitor
    request: Request


class Inbox:
    """Listens on a Unix socket, and wakes for requests, for `poke`, and for time."""

    def __init__(self, path: Path, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._path = path
        self._selector = selectors.DefaultSelector()
        self._listener = bind_unix(path)
        self._listener.setblocking(False)
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._poked, self._poke = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._selector.register(self._poked, selectors.EVENT_READ)
        self._visitors: dict[int, Visitor] = {}
        self._news = News(-1)

    def poke(self) -> None:
        """Ends the present or next `wait`. May be called from any thread and from signal handlers."""
        with suppress(BlockingIOError):
            os.write(self._poke, b".")

    def wait(self, timeout_s: float | None) -> list[Asked]:
        """Waits for something to do, at most so long; the requests that have arrived."""
        asked: list[Asked] = []
        for key, mask in self._selector.select(timeout_s):
            if key.fileobj is self._listener:
                self._welcome()
            elif key.fd == self._poked:
                os.read(self._poked, READ_BYTES)
            else:
                visitor = self._visitors[key.fd]
                if mask & selectors.EVENT_READ:
                    asked.extend(self._read(visitor))
                if mask & selectors.EVENT_WRITE:
                    self._send(visitor, b"")
        return asked

    def answer(self, visitor: Visitor, answer: Answer) -> None:
        """Answers a request; a worker that has gone is no longer interested."""
        if visitor.socket.fileno() >= 0:
            self._send(visitor, framed(answer))

    def announce(self, news: News) -> None:
        """Tells all workers, if it is news."""
        if news != self._news:
            self._news = news
            for visitor in list(self._visitors.values()):
                self._send(visitor, framed(news))

    def close(self) -> None:
        """Closes all connections."""
        for visitor in list(self._visitors.values()):
            self._part(visitor)
        self.leave_open()
        self._path.unlink(missing_ok=True)

    def leave_open(self) -> None:
        """Closes what this process holds and nothing else: for a copy of this process that has other work."""
        for visitor in self._visitors.values():
            visitor.socket.close()
        self._selector.close()
        self._listener.close()
        os.close(self._poked)
        os.close(self._poke)

    def _welcome(self) -> None:
        connection, _ = self._listener.accept()
        connection.setblocking(False)
        visitor = self._visitors[connection.fileno()] = Visitor(connection)
        self._selector.register(connection, selectors.EVENT_READ)
        self._send(visitor, framed(self._news))

    def _read(self, visitor: Visitor) -> list[Asked]:
        try:
            content = visitor.socket.recv(READ_BYTES)
        except BlockingIOError:
            return []
        except OSError:
            content = b""
        if not content:
            self._part(visitor)
            return []
        visitor.received += content
        try:
            return [Asked(visitor, request_of(frame)) for frame in frames(visitor.received)]
        except (ValueError, msgspec.DecodeError, msgspec.ValidationError) as error:
            self._tell(f"a worker sent what is no request, and is sent away: {error}")
            self._part(visitor)
            return []

    def _send(self, visitor: Visitor, content: bytes) -> None:
        visitor.to_send += content
        try:
            while visitor.to_send:
                sent = visitor.socket.send(visitor.to_send)
                del visitor.to_send[:sent]
        except BlockingIOError:
            pass
        except OSError:
            self._part(visitor)
            return
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if visitor.to_send else 0)
        self._selector.modify(visitor.socket, wanted)

    def _part(self, visitor: Visitor) -> None:
        if visitor.socket.fileno() >= 0:
            self._visitors.pop(visitor.socket.fileno(), None)
            self._selector.unregister(visitor.socket)
            visitor.socket.close()
