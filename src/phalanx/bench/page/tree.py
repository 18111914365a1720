"""What processes and all that they started have used."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def below(pid: int) -> Iterator[int]:
    """A process and all that it started, and they."""
    yield pid
    with suppress(FileNotFoundError, ProcessLookupError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                yield from below(int(child))


def cpu_s(pid: int) -> float:
    """Processor time of them all so far: what other work on the machine does not change."""
    total = 0
    for each in below(pid):
        with suppress(FileNotFoundError, ProcessLookupError):
            fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
            total += int(fields[11]) + int(fields[12])
    return total / TICKS


def cpu_with_ended_s(pid: int) -> float:
    """The same, with that of the processes among them that have ended."""
    total = 0
    for each in below(pid):
        with suppress(FileNotFoundError, ProcessLookupError):
            fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
            total += sum(map(int, fields[11:15]))
    return total / TICKS


def resident_mb(pid: int) -> float:
    """Memory of them all."""
    total = 0
    for each in below(pid):
        with suppress(FileNotFoundError, ProcessLookupError):
            total += int(Path(f"/proc/{each}/statm").read_text().split()[1])
    return total * PAGE_BYTES / 1e6
