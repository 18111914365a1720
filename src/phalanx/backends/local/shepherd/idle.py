"""Idleness: whether anything in an attempt has done any work for a while."""

from __future__ import annotations

import os
from collections.abc import Callable

from phalanx.backends.local.folder import AttemptFolder
from phalanx.backends.local.host.processes import Process, descendants
from phalanx.backends.local.shepherd.loop import Loop

BUSY_SHARE = 0.01
"""Of one CPU: a shell or a notebook server that waits uses far less, any computation far more."""

LOOKS = 4
"""Looks within the time after which an attempt is idle: all must find it so."""

_USER_TICKS, _SYSTEM_TICKS = 11, 12
"""Positions in /proc/PID/stat after the name, counted from the state (proc(5), fields 14 and 15)."""


def cpu_ms(attempt_process: list[Process]) -> int:
    """CPU time that these processes have used so far."""
    ticks = 0
    for each in attempt_process:
        try:
            with open(f"/proc/{each.pid}/stat", "rb") as file:
                text = file.read()
        except (FileNotFoundError, ProcessLookupError):
            continue
        fields = text[text.rindex(b")") + 2 :].split()
        ticks += int(fields[_USER_TICKS]) + int(fields[_SYSTEM_TICKS])
    return ticks * 1000 // os.sysconf("SC_CLK_TCK")


class Idleness:
    """Looks at an attempt from time to time. `is_kept` says whether something keeps it from being idle."""

    def __init__(
        self, loop: Loop, folder: AttemptFolder, is_kept: Callable[[], bool], on_idle: Callable[[], None]
    ) -> None:
        self._loop = loop
        self._folder = folder
        self._is_kept = is_kept
        self._on_idle = on_idle
        self._cpu_ms = 0
        self._printed = 0
        self._idle_looks = 0

    def begin(self, idle_ms: int) -> None:
        """Looks until it was idle for so long."""
        window_ms = idle_ms // LOOKS
        self._loop.after(window_ms, lambda: self._look(idle_ms))

    def _look(self, idle_ms: int) -> None:
        window_ms = idle_ms // LOOKS
        self._idle_looks = self._idle_looks + 1 if self._was_idle(window_ms) else 0
        if self._idle_looks >= LOOKS:
            self._on_idle()
        else:
            self._loop.after(window_ms, lambda: self._look(idle_ms))

    def _was_idle(self, window_ms: int) -> bool:
        """Whether nothing was done since the last look: next to no CPU, nothing printed."""
        used_ms, printed = cpu_ms(descendants(os.getpid())), self._folder.printed_bytes()
        idle = used_ms - self._cpu_ms <= window_ms * BUSY_SHARE and printed == self._printed
        self._cpu_ms, self._printed = used_ms, printed
        return idle and not self._is_kept()
