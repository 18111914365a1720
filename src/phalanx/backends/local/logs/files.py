"""What tasks have printed: plain files that only grow, one for each task and stream."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event

from phalanx.backends.local.folder import STREAMS


class ReadStoppedError(Exception):
    """A read of logs was stopped before its end."""


@dataclass(frozen=True, slots=True, order=True)
class LogFile:
    """What one task has printed to its `out` or `err`. Once `stopped` is set nothing more is read of it."""

    rank: int
    stream: str
    path: Path
    stopped: Event = field(default_factory=Event, compare=False, repr=False)

    def piece(self, offset: int, size: int) -> bytes:
        """Some of it. Every long read comes through here, so that it can be stopped from another thread."""
        if self.stopped.is_set():
            raise ReadStoppedError
        try:
            with open(self.path, "rb", buffering=0) as file:
                return os.pread(file.fileno(), size, offset)
        except FileNotFoundError:
            return b""


def log_files(data: Path, job: str, attempt: int) -> tuple[LogFile, ...]:
    """The logs of an attempt, by rank."""
    from phalanx.backends.local.orders import Yard

    return logs_in(Path(Yard(data).folder(job, attempt).path), Event())


def logs_in(folder: Path, stopped: Event) -> tuple[LogFile, ...]:
    """The logs in the folder of an attempt, by rank."""
    found = [
        LogFile(int(path.stem), path.suffix[1:], path, stopped)
        for path in folder.glob("*.*")
        if path.suffix[1:] in STREAMS and path.stem.isdecimal()
    ]
    return tuple(sorted(found))
