"""A trainer's hold on the memory that outlives it."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import select
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from phalanx.errors import PhalanxError
from phalanx.train.checkpoint import helper
from phalanx.train.checkpoint.ending import grace
from phalanx.train.checkpoint.host import keeper_process

LINGER_S = 900.0
"""How long memory is kept when no trainer holds it: longer than a restart takes."""

START_TIMEOUT_S = 30.0

ASK_TIMEOUT_S = 1.0


class KeeperError(PhalanxError):
    """The memory of a rank cannot be had."""


class Keeper:
    """This process's hold on the memory of one seat of a job: found again by the same names, one holder at a time."""

    def __init__(self, connection: socket.socket, pid: int) -> None:
        self._connection = connection
        self.pid = pid

    @classmethod
    def attach(cls, job: str, seat: int, *, linger_s: float = LINGER_S, patience_s: float = 10.0) -> Keeper:
        """The keeper of a job's seat, started if there is none.

        Waits up to `patience_s` for a former trainer to be gone, since a killed process takes a moment to die; and for
        what it left to be written as long as that may take.
        """
        deadline_s = time.monotonic() + patience_s
        written_s = deadline_s + grace.grace_s()
        while True:
            connection = _connect(address_of(job, seat)) or _start(address_of(job, seat), linger_s)
            try:
                reply = _ask(connection, {"do": "hold", "pid": os.getpid()})[0]
            except OSError as error:
                # It was ending just then: the next one that is asked is another.
                connection.close()
                if time.monotonic() > deadline_s:
                    raise KeeperError(f"the keeper of job {job!r}, seat {seat} does not answer: {error}") from error
                time.sleep(0.02)
                continue
            if "pid" in reply:
                return cls(connection, reply["pid"])
            connection.close()
            if time.monotonic() > (deadline_s if is_alive(reply.get("held_by", 0)) else written_s):
                raise KeeperError(
                    f"the memory of job {job!r}, seat {seat} is held by process {reply.get('held_by')}: two trainers "
                    f"cannot share it; stop that one, or give this run another job name"
                )
            time.sleep(0.02)

    def fileno(self) -> int:
        """The connection. A process that inherits it shares the hold, which ends when all of them have let go."""
        return self._connection.fileno()

    def segments(self) -> Mapping[str, int]:
        """Names and sizes in bytes of what is kept."""
        segments: dict[str, int] = self._do("list")[0]["segments"]
        return segments

    def create(self, name: str, size: int) -> int:
        """A file descriptor of fresh memory, which replaces what had that name."""
        return self._do("create", name=name, size=size)[1][0]

    def open(self, name: str) -> int:
        """A file descriptor of what is kept under a name."""
        return self._do("open", name=name)[1][0]

    def drop(self, name: str) -> None:
        """Lets memory go."""
        self._do("drop", name=name)

    def end(self) -> None:
        """The job is over: the keeper ends and its memory is freed."""
        self._do("end")
        self._connection.close()

    def close(self) -> None:
        """Lets go; the memory stays for the next trainer. A process that shares the hold may have it for a while."""
        with contextlib.suppress(OSError):
            self._connection.send(json.dumps({"do": "leave"}).encode())
        self._connection.close()

    def _do(self, what: str, **details: object) -> tuple[dict[str, Any], list[int]]:
        try:
            reply, fds = _ask(self._connection, {"do": what, **details})
        except OSError as error:
            raise KeeperError(f"the keeper process {self.pid} is gone, and the memory with it: {error}") from error
        if "error" in reply:
            raise KeeperError(
                f"the keeper process {self.pid} refused to {what} {details.get('name', '')}: {reply['error']}"
            )
        return reply, fds


def is_awaited(hold_fd: int) -> bool:
    """Whether another trainer has asked for memory that is held; for a process that shares the hold of a dead one."""
    with socket.socket(fileno=os.dup(hold_fd)) as connection:
        try:
            connection.send(json.dumps({"do": "awaited"}).encode(), socket.MSG_DONTWAIT)
            reply: dict[str, Any] = {}
            # An answer to the trainer, which died before it read it, may come first.
            while "awaited" not in reply:
                # A time-out of the socket would make it non-blocking for all who share it: the trainer may live.
                if not _is_readable(connection):
                    return False
                message, fds, _, _ = socket.recv_fds(
                    connection, keeper_process.MESSAGE_BYTES_MAX, 1, socket.MSG_DONTWAIT
                )
                for fd in fds:
                    os.close(fd)
                if not message:
                    return False
                reply = json.loads(message)
        except OSError:
            return False
    return bool(reply["awaited"])


def _is_readable(connection: socket.socket) -> bool:
    ready = select.poll()
    ready.register(connection, select.POLLIN)
    return bool(ready.poll(ASK_TIMEOUT_S * 1e3))


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that is dead and not yet buried does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (OSError, IndexError):
        return False


def address_of(job: str, seat: int) -> str:
    """The name of a keeper's socket, the same in every trainer of that user, job and seat."""
    digest = hashlib.blake2b(job.encode(), digest_size=12).hexdigest()
    return f"phalanx-keeper/{os.getuid()}/{digest}/{seat}"


def _connect(address: str) -> socket.socket | None:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        connection.connect(b"\0" + address.encode())
    except OSError:
        connection.close()
        return None
    return connection


def _start(address: str, linger_s: float) -> socket.socket:
    """Starts a keeper. The loser of a race for the address finds the winner there."""
    command = [sys.executable, "-I", "-S", str(Path(keeper_process.__file__)), address, str(linger_s)]
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        start_new_session=True,
        cwd="/",
        env={**os.environ, helper.VARIABLE: helper.KEEPER},
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
    deadline_s = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline_s:
        connection = _connect(address)
        if connection is not None:
            return connection
        time.sleep(0.01)
    raise KeeperError(f"no keeper process could be started with {' '.join(command)}")


def _ask(connection: socket.socket, request: dict[str, object]) -> tuple[dict[str, Any], list[int]]:
    connection.send(json.dumps(request).encode())
    message, fds, _, _ = socket.recv_fds(connection, keeper_process.MESSAGE_BYTES_MAX, 1)
    if not message:
        raise ConnectionResetError("it closed the connection")
    return json.loads(message), list(fds)
