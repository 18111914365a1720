"""Idleness: whether anything in an attempt has done any work for a while."""

from __future__ import annotations

import os

from phalanx.backends.local.folder import AttemptFolder
from phalanx.backends.local.processes import Process

BUSY_SHARE = 0.01
"""Of one CPU: a shell or a notebook server that waits uses far less, any computation far more."""


def cpu_ms(flock: list[Process]) -> int:
    """CPU time that these processes have used so far."""
    ticks = 0
    for each in flock:
        try:
            with open(f"/proc/{each.pid}/stat", "rb") as file:
                text = file.read()
        except (FileNotFoundError, ProcessLookupError):
            continue
        fields = text[text.rindex(b")") + 2 :].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks * 1000 // os.sysconf("SC_CLK_TCK")


class Idleness:
    """Compares two looks at an attempt."""

    def __init__(self, folder: AttemptFolder) -> None:
        self._folder = folder
        self._cpu_ms = 0
        self._printed = 0

    def was_idle(self, flock: list[Process], sessions: int, window_ms: int) -> bool:
        """Whether nothing was done since the last look: no session, next to no CPU, nothing printed."""
        used_ms, printed = cpu_ms(flock), self._folder.printed_bytes()
        idle = not sessions and used_ms - self._cpu_ms <= window_ms * BUSY_SHARE and printed == self._printed
        self._cpu_ms, self._printed = used_ms, printed
        return idle
