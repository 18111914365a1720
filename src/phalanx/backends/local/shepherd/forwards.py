"""Connections to ports of tasks. Only what a task itself listens on is reached, and nothing else on the machine."""

from __future__ import annotations

import os
import socket
import time

from phalanx.backends.local.host.ports import Listener, held_of, listeners, own_listener
from phalanx.backends.local.host.processes import descendants
from phalanx.backends.local.shepherd.tasks.task import Task
from phalanx.backends.local.wire import Message, Wire

CONNECT_S = 0.1
"""How long a listener of this machine may take to take a connection. Nothing else happens meanwhile, so that a task
could put off its end by one that takes none."""

LOOK_S = 0.2
"""How long is looked for the sockets of a task: it may have millions of open files. Nothing else happens meanwhile."""


def connect_to_port(message: Message, wire: Wire, task: Task | None) -> None:
    """Connects to a port of a task and hands the connection over; says why if it cannot."""
    rank, port = message["rank"], message["port"]
    if task is None or not task.alive:
        wire.send({"error": f"task {rank} does not run"})
        return
    try:
        end = _connected(task, port)
    except OSError as error:
        wire.send({"error": f"port {port} of task {rank}: {error.strerror or error}"})
        return
    if end is None:
        wire.send({"error": f"nothing of task {rank} listens on port {port}"})
        return
    with end:
        wire.send({"connected": True}, (end.fileno(),))


def _connected(task: Task, port: int) -> socket.socket | None:
    """A connection to what a task listens on; None if that is nothing.

    It is looked again after the connection was made: a socket that was there before and after was there in between.
    """
    before = _own_listener(task, port)
    if before is None:
        return None
    end = socket.socket(before.family, socket.SOCK_STREAM)
    try:
        end.settimeout(CONNECT_S)
        # Any process may listen at an address of another machine (IP_FREEBIND), and would be connected to that machine.
        # No client can come from there that is not here.
        end.bind((before.address[0], 0))
        end.connect(before.address)
        end.settimeout(None)
        if _own_listener(task, port) == before:
            return end
    except BaseException:
        end.close()
        raise
    end.close()
    return None


def _own_listener(task: Task, port: int) -> Listener | None:
    found = listeners(port)
    if not found:
        return None
    own = (each.pid for each in descendants(os.getpid()) if task.owns(each))
    return own_listener(found, held_of({each.inode for each in found}, own, time.monotonic() + LOOK_S))
