"""What the kernel offers to parents and children and Python does not: prctl(2)."""

from __future__ import annotations

import ctypes
import os
import signal

_SET_PDEATHSIG, _SET_CHILD_SUBREAPER = 1, 36

_libc = ctypes.CDLL(None, use_errno=True)


def adopt_orphans() -> None:
    """Has descendants whose parents die become children of this process, so that none is lost sight of."""
    _prctl(_SET_CHILD_SUBREAPER, 1)


def die_with_parent(parent: int) -> None:
    """Has this process killed when its parent dies; at once, if that has happened already."""
    _prctl(_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _prctl(option: int, value: int) -> None:
    if _libc.prctl(option, value, 0, 0, 0):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
