"""New figures: whether series got points since they were last asked for. No record tells of them."""

from __future__ import annotations

from pathlib import Path

from phalanx.server.figures.series import FILE

LOOK_S = 5.0
"""How often it is looked at while nothing else happens: figures are written every ten seconds."""


class NewFigures:
    """Those of one data folder, by when the write-ahead log of their file was last written to."""

    def __init__(self, data: Path) -> None:
        self._log = data / f"{FILE}-wal"
        self._seen_ns = self._written_ns()

    def are_there(self) -> bool:
        """Whether there are any since the last call."""
        written_ns = self._written_ns()
        is_new, self._seen_ns = written_ns != self._seen_ns, written_ns
        return is_new

    def _written_ns(self) -> int:
        try:
            return self._log.stat().st_mtime_ns
        except OSError:
            return 0
