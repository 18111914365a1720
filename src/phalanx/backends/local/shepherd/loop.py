"""Waiting for whatever comes first: a message, the end of a child, or a moment. Nothing is polled."""

from __future__ import annotations

import os
import selectors
import signal
import time
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Protocol


class HasFile(Protocol):
    """Something that can be waited for."""

    def fileno(self) -> int: ...


Hook = Callable[[], object]


class Timer:
    """A moment at which something is to happen, unless it is called off."""

    def __init__(self, at_s: float, hook: Hook) -> None:
        self.at_s = at_s
        self.hook: Hook | None = hook

    def __lt__(self, other: Timer) -> bool:
        return self.at_s < other.at_s

    def call_off(self) -> None:
        """Has nothing happen."""
        self.hook = None


class Loop:
    """One thread's waiting. Times are monotonic: a clock that is set does not shorten any grace."""

    def __init__(self, on_child: Hook) -> None:
        self._on_child = on_child
        self._selector = selectors.DefaultSelector()
        self._timers: list[Timer] = []
        self._bell, ring = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(ring, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._selector.register(self._bell, selectors.EVENT_READ, self._child)

    def watch(self, what: HasFile | int, hook: Hook) -> None:
        """Calls the hook whenever there is something to read."""
        self._selector.register(what, selectors.EVENT_READ, hook)

    def forget(self, what: HasFile | int) -> None:
        """Waits for it no longer."""
        self._selector.unregister(what)

    def after(self, delay_ms: int, hook: Hook) -> Timer:
        """Calls the hook once, later."""
        timer = Timer(time.monotonic() + delay_ms / 1000, hook)
        heappush(self._timers, timer)
        return timer

    def turn(self) -> None:
        """Waits for the next thing and sees to it."""
        ready = self._selector.select(self._patience_s())
        for key, _ in ready:
            # What came before it in the same turn may have done away with it.
            if self._selector.get_map().get(key.fd) == key:
                key.data()
        while self._timers and self._timers[0].at_s <= time.monotonic():
            timer = heappop(self._timers)
            if timer.hook is not None:
                timer.hook()

    def _patience_s(self) -> float | None:
        while self._timers and self._timers[0].hook is None:
            heappop(self._timers)
        return max(self._timers[0].at_s - time.monotonic(), 0) if self._timers else None

    def _child(self) -> None:
        os.read(self._bell, 4096)
        self._on_child()
