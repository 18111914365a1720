"""The error of a document that cannot be read."""

from __future__ import annotations

from phalanx.errors import PhalanxError

SHOWN_MAX = 60
"""Characters of a wrong value that an error repeats."""


class DocumentError(PhalanxError):
    """One line that names the file, the line, the key, and what was expected there."""

    def __init__(self, source: str, line: int, reason: str, key: str = "") -> None:
        place = f"{source}:{line}: key '{key}'" if key else f"{source}:{line}"
        super().__init__(f"{place}: {reason}")
        self.source = source
        self.line = line
        self.reason = reason
        self.key = key


def brief(text: str) -> str:
    """Text as an error shows it: short, and on one line whatever is in it."""
    if len(text) > SHOWN_MAX:
        text = text[: SHOWN_MAX - 1] + "…"
    return text if text.isprintable() else repr(text)[1:-1]
