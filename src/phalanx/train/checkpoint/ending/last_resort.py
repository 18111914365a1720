"""The end of a process that was told to end and cannot, because its main thread waits for a rank that is dead.

A handler written in Python runs in the main thread alone, and not before a call into C++ returns, such as a collective.
Without a handler the signal would have ended the process at once. Launchers wait half a minute before they kill.

Being told is no reason by itself: when all ranks are told, they meet to save their last step. Only where a rank was
lost as well, nothing can be saved together, and nothing is worth waiting for.
"""

from __future__ import annotations

import contextlib
import faulthandler
import logging
import os
import signal
import socket
import threading
from collections.abc import Collection

from phalanx.train.checkpoint.copies.presence import Presence

PATIENCE_S = 0.5
"""What a process has to end by itself after it was told to and a rank was lost."""

log = logging.getLogger("phalanx.checkpoint")


class LastResort:
    """Ends this process once it was told to end by one of some signals, a rank is lost, and a moment has passed."""

    def __init__(self, presence: Presence, signals: Collection[int]) -> None:
        self._presence = presence
        self._signals = frozenset(signals)
        self._lost = threading.Event()
        self._ring: socket.socket | None = None

    def set(self) -> None:
        """Begins to listen. Only the main thread may; a program that listens in the same way keeps its own."""
        if threading.current_thread() is not threading.main_thread():
            return
        bell, ring = socket.socketpair()
        ring.setblocking(False)
        former = signal.set_wakeup_fd(ring.fileno(), warn_on_full_buffer=False)
        if former != -1:
            signal.set_wakeup_fd(former)
            bell.close()
            ring.close()
            return
        self._ring = ring
        _listening.add(self)
        self._presence.on_loss(self._lost.set)
        threading.Thread(target=self._run, args=(bell,), daemon=True, name="last-resort").start()

    def release(self) -> None:
        """Listens no more. A process that was told and has lost a rank still has no more than its moment."""
        if self._ring is None or threading.current_thread() is not threading.main_thread():
            return
        _listening.discard(self)
        signal.set_wakeup_fd(-1)
        self._ring.close()
        self._ring = None

    def _run(self, bell: socket.socket) -> None:
        with bell:
            while numbers := bell.recv(64):
                if self._signals & set(numbers):
                    self._end_when_lost()

    def _end_when_lost(self) -> None:
        self._lost.wait()
        lost = ", ".join(str(rank) for rank in sorted(self._presence.lost))
        log.warning("rank %s has ended and this process was told to end: it has %g s", lost, PATIENCE_S)
        # Needs no interpreter: it works in a call that never returns, and while the interpreter takes itself apart,
        # which takes seconds with torch.
        with open(os.devnull, "w") as nowhere:
            faulthandler.dump_traceback_later(PATIENCE_S, exit=True, file=nowhere)
            threading.Event().wait()


_listening: set[LastResort] = set()


def _listen_no_more() -> None:
    """In a child that was forked: its signals are not its parent's."""
    if _listening:
        _listening.clear()
        with contextlib.suppress(ValueError):
            signal.set_wakeup_fd(-1)


os.register_at_fork(after_in_child=_listen_no_more)
