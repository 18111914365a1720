"""The trainer's end of the background process: orders go out, reports come in, nothing waits."""

from __future__ import annotations

import contextlib
import os
import pickle
import secrets
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from phalanx.errors import PhalanxError
from phalanx.train.checkpoint import helper
from phalanx.train.checkpoint.background_process import FINISH_MARGIN_S, MESSAGE_BYTES_MAX, finish_until_s
from phalanx.train.checkpoint.copies.forks import close_in_forks
from phalanx.train.checkpoint.copies.peers import Address
from phalanx.train.checkpoint.host.segment import Segment
from phalanx.train.checkpoint.persist import Target

START_TIMEOUT_S = 60.0

Message = dict[str, Any]


class BackgroundGoneError(PhalanxError):
    """The background process has ended."""


class Background:
    """A process that replicates and persists for this rank."""

    def __init__(
        self, rank: int, world_size: int, host: str, token: str, targets: Sequence[Target], hold_fd: int
    ) -> None:
        self._settings = {
            "rank": rank,
            "world_size": world_size,
            "host": host,
            "token": token,
            "targets": {target.tier: pickle.dumps(target) for target in targets},
            "trainer_pid": os.getpid(),
            "hold_fd": hold_fd,
        }
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        close_in_forks(self._control)
        with theirs:
            self._process = start_process(theirs.fileno(), hold_fd)
        self._send(self._settings)
        self._address: Address | None = None
        self._unread: list[Message] = []

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def address(self) -> Address:
        """Where other ranks reach it."""
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while self._address is None:
            self._wait(deadline_s)
        return self._address

    def lend(self, segment: Segment) -> None:
        """Lets it see a stretch of shared memory."""
        self._send({"do": "lend", "name": segment.name}, [segment.fd])

    def forget(self, name: str) -> None:
        self._send({"do": "forget", "name": name})

    def order(self, what: str, **details: object) -> None:
        """Asks for something to be done; a report follows."""
        self._send({"do": what, **details})

    def reports(self) -> list[Message]:
        """What has been reported since the last call. Does not wait."""
        while self._read():
            pass
        reports, self._unread = self._unread, []
        return reports

    def wait(self, deadline_s: float) -> list[Message]:
        """What has been reported, or is before a moment of the monotonic clock."""
        if not self._unread:
            self._wait(deadline_s)
        return self.reports()

    def close(self) -> None:
        """Ends it. What it has not finished stays undone."""
        self._control.close()
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def leave(self) -> None:
        """Lets it finish by itself what it was ordered to write.

        The first process of a container takes all the rest with it when it ends, so there it is waited for.
        """
        self._control.close()
        if os.getpid() == 1:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=finish_until_s() - time.time() + FINISH_MARGIN_S)
        # Buried by a thread, where this process lives on.
        threading.Thread(target=self._process.wait, daemon=True, name="buries-writer").start()

    def _wait(self, deadline_s: float) -> None:
        ready, _, _ = select.select([self._control], [], [], max(0.0, deadline_s - time.monotonic()))
        if not ready:
            raise TimeoutError(f"the background process {self.pid} said nothing in time")
        self._read()

    def _read(self) -> bool:
        """Takes one report in; whether there was one."""
        try:
            text = self._control.recv(MESSAGE_BYTES_MAX, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except ConnectionError:
            # It was killed with orders unread.
            text = b""
        if not text:
            raise BackgroundGoneError(
                f"the background process {self.pid} of rank {self._settings['rank']} "
                f"ended with status {self._process.poll()}"
            )
        message = pickle.loads(text)
        if message["what"] == "listening":
            self._address = message["address"]
        else:
            self._unread.append(message)
        return True

    def _send(self, message: Message, fds: Sequence[int] = ()) -> None:
        try:
            socket.send_fds(self._control, [pickle.dumps(message)], list(fds))
        except OSError as error:
            raise BackgroundGoneError(f"the background process {self.pid} takes no orders: {error}") from error


def start_process(control_fd: int, hold_fd: int) -> subprocess.Popen[bytes]:
    """A process of its own, not a fork: a fork of a trainer would copy its page tables and must not touch CUDA.

    It has a session of its own, since launchers signal the whole process group of a trainer: what was ordered is
    written also when the trainer is told to end.
    """
    command = [sys.executable, "-m", "phalanx.train.checkpoint.background_process", str(control_fd)]
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        pass_fds=[control_fd, hold_fd],
        env=_environment(),
        start_new_session=True,
    )


def new_token() -> str:
    """What ranks of one job show one another, and no other process knows."""
    return secrets.token_hex(16)


def _environment() -> dict[str, str]:
    """The trainer's environment, without a device: memory of it that a second process took would be missed."""
    home = str(Path(__file__).parents[3])
    path = os.pathsep.join(filter(None, [home, os.environ.get("PYTHONPATH", "")]))
    own = {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1", "PYTHONPATH": path, helper.VARIABLE: helper.WRITER}
    return {**os.environ, **own}
