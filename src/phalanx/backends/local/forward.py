"""A connection to a port of a task, made by its shepherd and handed over. Any process of the server may ask for one."""

from __future__ import annotations

import socket
from pathlib import Path

from phalanx.backends.local.orders import Yard
from phalanx.backends.local.session import NoSession
from phalanx.backends.local.wire import Wire, connect_to


class PortAsked:
    """A port that was asked for. `fileno` is readable when there is an answer."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    def fileno(self) -> int:
        """What to wait for."""
        return self._wire.fileno()

    def connected_now(self) -> socket.socket | None:
        """The connection; None while there is no answer. Raises NoSession where there will be none."""
        messages = self._wire.receive()
        if messages is None:
            raise NoSession("the task has just ended")
        for message in messages:
            if "error" in message:
                raise NoSession(message["error"])
            if self._wire.files:
                return socket.socket(fileno=self._wire.files.pop())
        return None

    def close(self) -> None:
        """Hangs up. A connection that was made goes on."""
        self._wire.close()


def ask_for_port(data: Path, job: str, attempt: int, rank: int, port: int) -> PortAsked:
    """Asks for a connection to a port that a task listens on. BlockingIOError: ask again."""
    wire = connect_to(Yard(data).folder(job, attempt).path, waits=False)
    if wire is None:
        raise NoSession(f"job {job}: attempt {attempt} does not run here")
    if not wire.send({"do": "forward", "rank": rank, "port": port}):
        wire.close()
        raise NoSession(f"job {job}: attempt {attempt} has just ended")
    return PortAsked(wire)
