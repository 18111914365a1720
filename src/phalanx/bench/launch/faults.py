"""Faults that a rank does to itself, and what the launcher is to say of each."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from typing import NamedTuple


class Fault(NamedTuple):
    """Which rank fails in an epoch, and how."""

    rank: int
    kind: str


def fault_of(epoch: int, world_size: int) -> Fault:
    """The fault of an epoch: the same for the rank that has it and for what checks the launcher's words."""
    drawn = random.Random(f"fault {epoch}")
    return Fault(drawn.randrange(world_size), drawn.choice(sorted(KINDS)))


def fail(kind: str) -> None:
    """Has this process fail in that way; it does not return."""
    KINDS[kind][0]()
    raise AssertionError(f"a process that fails by {kind} goes on")


def _raise(error: Exception) -> None:
    raise error


KINDS: dict[str, tuple[Callable[[], None], str]] = {
    "killed": (lambda: os.kill(os.getpid(), signal.SIGKILL), "ended by SIGKILL"),
    "segmentation fault": (lambda: os.kill(os.getpid(), signal.SIGSEGV), "ended by SIGSEGV"),
    "exit": (lambda: os._exit(7), "exit code 7"),
    "exception": (lambda: _raise(RuntimeError("bad batch")), "RuntimeError: bad batch"),
    "memory": (lambda: _raise(MemoryError("no memory for the batch")), "MemoryError: no memory for the batch"),
    "device": (lambda: _raise(RuntimeError("CUDA error: illegal memory access")), "CUDA error: illegal memory access"),
    "program": (lambda: _raise(KeyError("no such layer")), "KeyError: 'no such layer'"),
    "stopped": (lambda: os.kill(os.getpid(), signal.SIGSTOP), "no progress"),
    "asleep": (lambda: time.sleep(1e6), "no progress"),
}
"""What each does, and the words by which the launcher names it. `device` is an error as CUDA has it, without a GPU."""
