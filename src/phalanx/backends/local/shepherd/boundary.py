"""The boundary between two steps: tasks that know of it stop there by themselves, where they have least in memory.

A task says `RANK STEP` in the pipe `steps` to be known, and when it has come to a boundary while the file `rest.json`
is there. `after_step` of that file is the step after which all are to stop: the ranks of a gang wait for one another
within a step, so all must stop after the same one. It is not set before one of several has said how far it is.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress

from phalanx.backends.local.folder import SHARED, AttemptFolder, write_durably
from phalanx.backends.local.shepherd.loop import Loop, Timer

AHEAD_STEPS = 2
"""So many steps after the first of several ranks has said how far it is, all have heard after which to stop."""

LINES_BYTES_MAX = 1 << 16
DIGITS_MAX = 18
"""What is longer is no rank and no step, but a task that tries what becomes of it."""


class Boundary:
    """Waits for the tasks of an attempt to come to a boundary. `ranks` are those that run."""

    def __init__(self, loop: Loop, folder: AttemptFolder, ranks: Callable[[], Collection[int]]) -> None:
        self._loop = loop
        self._folder = folder
        self._ranks = ranks
        self._pipe = -1
        self._known: dict[int, None] = {}
        self._arrived: dict[int, None] = {}
        self._after_step: int | None = None
        self._number = 0
        self._timer: Timer | None = None
        self._then: Callable[[], None] | None = None

    def open(self, user: Sequence[int]) -> None:
        """Opens the pipe, for the job's user alone. Where there can be none, no task is waited for."""
        self.close()
        with suppress(OSError):
            os.mkfifo(self._folder.steps_path, 0o600)
            if user:
                os.chown(self._folder.steps_path, user[0], user[1])
            self._pipe = os.open(self._folder.steps_path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
            self._loop.watch(self._pipe, self._hear)

    def close(self) -> None:
        """Leaves nothing behind that a task might wait for."""
        for path in (self._folder.steps_path, self._folder.rest_path):
            with suppress(OSError):
                os.unlink(path)

    def wait(self, patience_ms: int, then: Callable[[], None]) -> None:
        """Does something once all are at a boundary, or patience has run out; at once if one does not know of it."""
        self.call_off()
        ranks = self._ranks()
        if not patience_ms or not ranks or any(rank not in self._known for rank in ranks):
            then()
            return
        self._then = then
        self._number += 1
        self._arrived.clear()
        self._timer = self._loop.after(patience_ms, self._go_on)
        self._ask(0 if len(ranks) == 1 else None)

    def call_off(self) -> None:
        """Waits no longer, and lets tasks that have stopped go on."""
        if self._timer is not None:
            self._timer.call_off()
            self._timer = self._then = None
        with suppress(OSError):
            os.unlink(self._folder.rest_path)

    def _ask(self, after_step: int | None) -> None:
        self._after_step = after_step
        with suppress(OSError):
            write_durably(self._folder.rest_path, {"number": self._number, "after_step": after_step}, SHARED)

    def _hear(self) -> None:
        for line in os.read(self._pipe, LINES_BYTES_MAX).split(b"\n"):
            words = line.split()
            if len(words) == 2 and all(word.isdigit() and len(word) <= DIGITS_MAX for word in words):
                self._note(int(words[0]), int(words[1]))

    def _note(self, rank: int, step: int) -> None:
        if rank not in self._ranks():
            return
        self._known[rank] = None
        if self._then is None:
            return
        if self._after_step is None:
            self._ask(step + AHEAD_STEPS)
        elif step >= self._after_step:
            self._arrived[rank] = None
            if all(each in self._arrived for each in self._ranks()):
                self._go_on()

    def _go_on(self) -> None:
        """Tasks that have stopped stay where they are until they are called off."""
        then, self._then = self._then, None
        if self._timer is not None:
            self._timer.call_off()
            self._timer = None
        if then is not None:
            then()
