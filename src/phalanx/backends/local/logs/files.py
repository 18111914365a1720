"""What tasks have printed: plain files that only grow, one for each task and stream."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event

from phalanx.backends.local.folder import STREAMS

IN_ATTEMPT, IN_NODES = "*.*", "nodes/*/*.*"
"""Where logs are in the folder of an attempt: there, or in a folder for each of its nodes."""


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
        return read_piece(self.path, offset, size)


def log_files(data: Path, job: str, attempt: int) -> tuple[LogFile, ...]:
    """The logs of an attempt, by rank."""
    from phalanx.backends.local.orders import Yard

    return logs_in(Path(Yard(data).folder(job, attempt).path), Event())


def logs_in(folder: Path, stopped: Event) -> tuple[LogFile, ...]:
    """The logs in the folder of an attempt, by rank."""
    found = [
        LogFile(int(path.stem), path.suffix[1:], path, stopped)
        for pattern in (IN_ATTEMPT, IN_NODES)
        for path in folder.glob(pattern)
        if path.suffix[1:] in STREAMS and path.stem.isdecimal()
    ]
    return tuple(sorted(found))


def where(path: Path) -> Path:
    """Where a log is that could be in the folder of its attempt or in that of a node."""
    if path.exists():
        return path
    return next(path.parent.glob(f"nodes/*/{path.name}"), path)


def read_piece(path: Path, offset: int, size: int) -> bytes:
    """Some of a log; nothing where there is none."""
    try:
        with open(path, "rb", buffering=0, opener=_plainly) as file:
            return os.pread(file.fileno(), size, offset) if _is_own(file.fileno(), path) else b""
    except FileNotFoundError:
        return b""


def _plainly(path: str, flags: int) -> int:
    """Opens a file, and nothing that a link leads to: on some backends the folder is the user's own."""
    try:
        return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        raise FileNotFoundError(error.errno, error.strerror, path) from error


def _is_own(handle: int, path: Path) -> bool:
    """Whether a file is the server's, or of the user whose folder it is in: another's is reached by a hard link.

    In a folder of the server's own a user makes no links; what a container prints to belongs to its user there.
    """
    folder_of = os.stat(path.parent).st_uid
    return folder_of == os.getuid() or os.fstat(handle).st_uid in (os.getuid(), folder_of)
