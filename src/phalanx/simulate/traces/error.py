"""The error of a trace that cannot be read, written or made."""

from __future__ import annotations

from phalanx.errors import PhalanxError


class TraceError(PhalanxError):
    """One line that names the file, the line, the column, the value there, and what was expected instead.

    `place` is a line of a text file; for a file without lines it is spelled out (`job 17`, `row 3`).
    """

    def __init__(self, source: str, reason: str, place: int | str = "", column: str = "") -> None:
        where = f"{source}:{place}" if isinstance(place, int) else ": ".join(filter(None, (source, place)))
        super().__init__(f"{where}: column '{column}': {reason}" if column else f"{where}: {reason}")
        self.source = source
        self.place = place
        self.column = column
        self.reason = reason
