"""What tasks have printed: plain files that only grow, one for each task and stream."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from phalanx.backends.local.orders import Yard


@dataclass(frozen=True, slots=True)
class LogFile:
    """What one task has printed to its `out` or `err`."""

    rank: int
    stream: str
    path: Path


def log_files(data: Path, job: str, attempt: int) -> tuple[LogFile, ...]:
    """The logs of an attempt, by rank."""
    folder = Path(Yard(data).folder(job, attempt).path)
    found = [
        LogFile(int(path.stem), path.suffix[1:], path)
        for path in folder.glob("*.*")
        if path.suffix in (".out", ".err") and path.stem.isdigit()
    ]
    return tuple(sorted(found, key=lambda log: (log.rank, log.stream)))
