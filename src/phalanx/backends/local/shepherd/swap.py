"""Swapping: the device memory of an attempt goes to the host, or back, by a process that is begun for it."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from typing import TypedDict

from phalanx.backends.local.device_memory.start import PROGRAM
from phalanx.backends.local.host.processes import signal_process
from phalanx.backends.local.shepherd.loop import Loop, Timer

TIMEOUT_MS = 600_000
"""Longer than all the memory of a node takes; after it, what the driver is doing is unknown."""

ANSWER_BYTES_MAX = 1 << 16


class SwapOutcome(TypedDict, total=False):
    """How a move came out: the memory that was moved, and how long it took; or the reason why not. Of one that was cut
    short it is unknown how far it came.
    """

    ok: bool
    reason: str
    mb: int
    ms: int
    cut_short: bool


class Swap:
    """At most one move at a time."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._child = 0
        self._answer = -1
        self._timer: Timer | None = None
        self._on_done: Callable[[SwapOutcome], None] = lambda _: None

    @property
    def pid(self) -> int:
        """The process that moves memory now; 0 if none does."""
        return self._child

    def begin(self, order: dict[str, object], on_done: Callable[[SwapOutcome], None]) -> None:
        """Begins a move; `on_done` hears how it came out."""
        assert not self._child, "two moves at once"
        told, tell = os.pipe2(os.O_CLOEXEC)
        self._answer, hear = os.pipe2(os.O_CLOEXEC)
        try:
            self._child = os.posix_spawn(
                sys.executable,
                [sys.executable, "-I", "-c", PROGRAM],
                os.environ,
                file_actions=[(os.POSIX_SPAWN_DUP2, told, 0), (os.POSIX_SPAWN_DUP2, hear, 1)],
                setsid=True,
            )
        except OSError as error:
            # A machine that is out of processes or memory: the attempt is as it was.
            for handle in (tell, self._answer):
                os.close(handle)
            failed = SwapOutcome(ok=False, reason=f"device memory cannot be moved now: {error.strerror}")
            self._loop.after(0, lambda: on_done(failed))
            return
        finally:
            os.close(told)
            os.close(hear)
        self._on_done = on_done
        self._timer = self._loop.after(TIMEOUT_MS, self.call_off)
        with os.fdopen(tell, "w") as pipe:
            try:
                json.dump(order, pipe)
                pipe.flush()
            except BrokenPipeError:
                # It is gone already, which will be noticed.
                return

    def call_off(self) -> None:
        """Has it end wherever it is."""
        if self._child:
            signal_process(self._child, signal.SIGKILL)

    def reap(self, pid: int, status: int) -> bool:
        """Takes note of its end; False if the process is none of ours."""
        if pid != self._child:
            return False
        self._child = 0
        if self._timer is not None:
            self._timer.call_off()
        os.set_blocking(self._answer, False)
        try:
            text = os.read(self._answer, ANSWER_BYTES_MAX)
        except BlockingIOError:
            text = b""
        os.close(self._answer)
        self._on_done(_read(text, os.waitstatus_to_exitcode(status)))
        return True


def _read(text: bytes, code: int) -> SwapOutcome:
    try:
        outcome: SwapOutcome = json.loads(text)
        return outcome
    except ValueError:
        ended = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit {code}"
        return SwapOutcome(ok=False, reason=f"the process that moves device memory ended by {ended}", cut_short=True)
