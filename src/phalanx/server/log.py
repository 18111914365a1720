"""Structured logs: one JSON object a line, with the time, the part of the server and what happened."""

from __future__ import annotations

import json
import logging
import os
import sys
from datetime import UTC, datetime
from pathlib import Path

PLAIN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "color_message"}


LINE_BYTES_MAX = 64 << 10


class JsonLines(logging.Formatter):
    """A record as one line of JSON; whatever a record has beyond the usual becomes a key."""

    def __init__(self, part: str) -> None:
        super().__init__()
        self._part = part

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "part": self._part,
            "message": record.getMessage(),
        }
        line.update((key, value) for key, value in vars(record).items() if key not in PLAIN)
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str, ensure_ascii=False)


def last_error(path: Path) -> str:
    """What the process that writes a log failed of last; empty if it has gone on since, or nothing can be read."""
    try:
        with path.open("rb") as file:
            file.seek(max(file.seek(0, os.SEEK_END) - LINE_BYTES_MAX, 0))
            line = json.loads(file.read().rstrip().rpartition(b"\n")[2])
        return str(line["message"]) if line["level"] == "error" else ""
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def log_to_stderr(part: str) -> logging.Logger:
    """Has everything this process logs go to stderr, as the part of the server it is."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines(part))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    return logging.getLogger(f"phalanx.{part}")
