"""The lines of a log with their times, read a piece at a time, however long the log and its lines are."""

from __future__ import annotations

import re
from dataclasses import dataclass

from phalanx.backends.local.logs.files import LogFile
from phalanx.backends.local.logs.times import LogTimes

LINE_BYTES_MAX = 1 << 16
"""What is longer comes in parts."""

_RETURNS = re.compile(rb"\r+(?=\r)")
"""Returns before another end no line, however many there are."""

_END = re.compile(rb"\r\n|\n|\r")
"""A bar of progress writes over itself after a carriage return: each state of it is a line of its own."""


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line, without what ends it. `end` is the offset behind it; not `whole` is a part of a line that goes on."""

    at_ms: int | None
    rank: int
    stream: str
    end: int
    text: bytes
    whole: bool = True

    @property
    def order(self) -> tuple[int, int, str]:
        """Where it stands among the lines of other logs; those of which no time is known come first."""
        return (self.at_ms or 0, self.rank, self.stream)


class LineReader:
    """Reads a log from an offset on. What was written after a `limit` is not there, while there is one."""

    def __init__(self, log: LogFile, offset: int, limit: int | None, piece_bytes: int) -> None:
        self.log = log
        self.limit = limit
        self.times = LogTimes(str(log.path))
        self._piece_bytes = piece_bytes
        self._unread = b""
        self._begin = offset
        self._looked = 0

    def next(self, is_last: bool) -> LogLine | None:
        """The next line; None if there is no whole one. What `is_last` needs no end to be a line."""
        while True:
            self._pass_over_returns()
            found = _END.search(self._unread, self._looked)
            if found and (found.end() < len(self._unread) or found.group() != b"\r"):
                line = self._take(found.start(), found.end())
                if line.text or found.group() != b"\r":
                    return line
            elif len(self._unread) >= LINE_BYTES_MAX:
                return self._take(LINE_BYTES_MAX, LINE_BYTES_MAX, whole=False)
            elif not self._read():
                return self._rest() if is_last and self._unread else None

    def _rest(self) -> LogLine:
        text = len(self._unread.removesuffix(b"\r"))
        return self._take(text, len(self._unread))

    def _take(self, text: int, end: int, whole: bool = True) -> LogLine:
        content, self._unread = self._unread[:text], self._unread[end:]
        self._begin += end
        self._looked = 0
        at_ms = self.times.at_ms(self._begin)
        return LogLine(at_ms, self.log.rank, self.log.stream, self._begin, content, whole)

    def _pass_over_returns(self) -> None:
        if found := _RETURNS.match(self._unread):
            self._unread = self._unread[found.end() :]
            self._begin += found.end()
            self._looked = 0

    def _read(self) -> bool:
        # A carriage return may yet turn out to be half of an end.
        self._looked = max(len(self._unread) - 1, 0)
        at = self._begin + len(self._unread)
        size = self._piece_bytes if self.limit is None else min(self._piece_bytes, self.limit - at)
        piece = self.log.piece(at, size) if size > 0 else b""
        self._unread += piece
        return bool(piece)


def line_start(log: LogFile, offset: int) -> int:
    """Where the line begins in which an offset lies; of a very long one, the part of it."""
    before = max(offset - LINE_BYTES_MAX, 0)
    content = log.piece(before, offset - before)
    ends = [found.end() for found in _END.finditer(content)]
    return before + (ends[-1] if ends else 0)


def tail_offset(log: LogFile, size: int, count: int) -> int:
    """Where the last lines of a log begin, so many or a few more."""
    offset, left = size, count + 1
    while offset > 0:
        begin = max(offset - LINE_BYTES_MAX, 0)
        content = log.piece(begin, offset - begin)
        count_here = content.count(b"\n")
        if count_here >= left:
            return begin + _nth_last(content, left) + 1
        # What has no end within the length of a line is a line all the same, in parts.
        left -= max(count_here, 1)
        if left <= 0:
            return begin
        offset = begin
    return 0


def _nth_last(content: bytes, count: int) -> int:
    """Where the last line feed but some is."""
    at = len(content)
    for _ in range(count):
        at = content.rindex(b"\n", 0, at)
    return at
