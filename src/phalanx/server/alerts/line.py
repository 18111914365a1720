"""A line to the loop for a process that asks for one thing at a time."""

from __future__ import annotations

import socket
from pathlib import Path

from phalanx.server.loop.wire import LENGTH, Answer, Caller, Mutation, Request, framed, message_of
from phalanx.server.unix import short_address

PATIENCE_S = 30.0


def ask_loop(path: Path, caller: Caller, body: Mutation) -> Answer:
    """Has the loop make a change, and waits until it is durable. Raises OSError if the loop is not there."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
        line.settimeout(PATIENCE_S)
        with short_address(path) as address:
            line.connect(address)
        line.sendall(framed(Request(1, caller, body)))
        with line.makefile("rb") as stream:
            while True:
                head = stream.read(LENGTH.size)
                if len(head) < LENGTH.size:
                    raise ConnectionError("the loop went away before it answered")
                message = message_of(stream.read(*LENGTH.unpack(head)))
                if isinstance(message, Answer):
                    return message
