"""The processes of a server, as the kernel tells of them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

PROC = Path("/proc")
PART = re.compile(rb"phalanx\.server\.([a-z]+)\.process")
UTIME, STIME, STARTTIME, RSS = 11, 12, 19, 21
"""Places in /proc/PID/stat, counted behind the name of the process."""


class Process(NamedTuple):
    """A process: the part of the server that it is, the processor time it has had, its memory, and its age."""

    name: str
    pid: int
    cpu_s: float
    memory_mb: int
    up_s: float


def children_of(parent: int) -> list[Process]:
    """The parts of a server below the process that started them; none where the kernel does not say."""
    with suppress(OSError):
        return list(_children(parent))
    return []


def _children(parent: int) -> Iterator[Process]:
    uptime_s = float((PROC / "uptime").read_text().split()[0])
    for child in (PROC / f"{parent}/task/{parent}/children").read_text().split():
        # One that ends meanwhile is not among them.
        with suppress(OSError, ValueError):
            part = PART.search((PROC / child / "cmdline").read_bytes())
            if part is not None:
                yield _process(part[1].decode(), int(child), uptime_s)


def _process(name: str, pid: int, uptime_s: float) -> Process:
    fields = (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    tick = os.sysconf("SC_CLK_TCK")
    cpu_s = (int(fields[UTIME]) + int(fields[STIME])) / tick
    memory_mb = int(fields[RSS]) * os.sysconf("SC_PAGE_SIZE") >> 20
    return Process(name, pid, round(cpu_s, 2), memory_mb, round(uptime_s - int(fields[STARTTIME]) / tick, 1))
