"""Processes that end with the one that made them, however that ends."""

from __future__ import annotations

import ctypes
import os
import signal

KILLED_WITH_PARENT = 1
"""PR_SET_PDEATHSIG of prctl(2)."""

_c = ctypes.CDLL(None)


def die_with_parent() -> None:
    """Has the kernel end this process when its parent is gone. For the moment between fork and exec, too."""
    _c.prctl(KILLED_WITH_PARENT, signal.SIGKILL)


def end_with(parent: int) -> None:
    """Has a forked process end with the one that made it, also if that went before the kernel was told."""
    die_with_parent()
    if os.getppid() != parent:
        os._exit(1)


def fork_mortal() -> int:
    """A copy of this process that does not outlive it: 0 in the copy, its number in the original."""
    original = os.getpid()
    child = os.fork()
    if child == 0:
        end_with(original)
    return child
