"""What tasks have printed: plain files that only grow, one for each task and stream."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from phalanx.backends.local.folder import STREAMS


@dataclass(frozen=True, slots=True, order=True)
class LogFile:
    """What one task has printed to its `out` or `err`."""

    rank: int
    stream: str
    path: Path


def log_files(data: Path, job: str, attempt: int) -> tuple[LogFile, ...]:
    """The logs of an attempt, by rank."""
    from phalanx.backends.local.orders import Yard

    return logs_in(Path(Yard(data).folder(job, attempt).path))


def logs_in(folder: Path) -> tuple[LogFile, ...]:
    """The logs in the folder of an attempt, by rank."""
    found = [
        LogFile(int(path.stem), path.suffix[1:], path)
        for path in folder.glob("*.*")
        if path.suffix[1:] in STREAMS and path.stem.isdecimal()
    ]
    return tuple(sorted(found))
