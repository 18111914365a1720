"""The logs of an attempt as one: the lines of all tasks in the order in which they were written."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from pathlib import Path
from threading import Event

from phalanx.backends.local.logs.files import LogFile, logs_in
from phalanx.backends.local.logs.lines import LINE_BYTES_MAX, LineReader, LogLine, line_start, tail_offset
from phalanx.backends.local.logs.times import LogTimes

PIECE_BYTES_MIN, BUFFERS_BYTES = 4096, 16 << 20
"""All buffers together take no more, unless there are thousands of logs."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Of which task and stream (None: all), since when, and how many of the last lines (None: all)."""

    rank: int | None = None
    stream: str | None = None
    since_ms: int | None = None
    tail: int | None = None

    def has(self, log: LogFile) -> bool:
        """Whether a log is of those."""
        return self.rank in (None, log.rank) and self.stream in (None, log.stream)


class MergedLogs:
    """What the tasks of an attempt have printed, read on and on. Its memory does not grow with the logs."""

    def __init__(self, folder: Path, selection: Selection) -> None:
        self._folder = folder
        self._selection = selection
        self._merge = Merge()
        self._stopped = Event()

    def stop(self) -> None:
        """Has what another thread reads end with `ReadStoppedError`."""
        self._stopped.set()

    def begin(self, is_last: bool) -> None:
        """Passes over all but the last lines, where so many are asked for. What `is_last` needs no end to be a line."""
        if self._selection.tail is not None:
            self._skip(self._selection.tail, is_last)

    def undated(self) -> LogFile | None:
        """A log of which no times are known; None if there is none."""
        return next((log for log in self._logs() if not LogTimes(str(log.path)).are_kept), None)

    def lines(self, is_last: bool) -> Iterator[LogLine]:
        """What has been written since it was last asked for. What `is_last` needs no end to be a line."""
        logs = self._logs()
        for log in logs:
            if log not in self._merge.readers:
                self._merge.add(LineReader(log, self._begin(log), None, _piece_bytes(len(logs))))
        return filter(self._is_wanted, self._merge.lines(is_last))

    def _logs(self) -> list[LogFile]:
        return [log for log in logs_in(self._folder, self._stopped) if self._selection.has(log)]

    def _is_wanted(self, line: LogLine) -> bool:
        since_ms = self._selection.since_ms
        return since_ms is None or (line.at_ms is not None and line.at_ms >= since_ms)

    def _begin(self, log: LogFile) -> int:
        if self._selection.since_ms is None:
            return 0
        return line_start(log, LogTimes(str(log.path)).offset_since(self._selection.since_ms))

    def _skip(self, tail: int, is_last: bool) -> None:
        """The lines are counted first, so that none has to be kept."""
        sizes = {log: _size(log) for log in self._logs()}
        begins = {log: max(self._begin(log), tail_offset(log, size, tail)) for log, size in sizes.items()}
        counted, self._merge = Merge(), Merge()
        for log, size in sizes.items():
            counted.add(LineReader(log, begins[log], size, _piece_bytes(len(sizes))))
            self._merge.add(LineReader(log, begins[log], size, _piece_bytes(len(sizes))))
        surplus = sum(map(self._is_wanted, counted.lines(is_last))) - tail
        lines = self._merge.lines(is_last)
        while surplus > 0:
            surplus -= self._is_wanted(next(lines))
        for reader in self._merge.readers.values():
            reader.limit = None


class Merge:
    """Logs of which the oldest line is always next, with one line of each in the hand."""

    def __init__(self) -> None:
        self.readers: dict[LogFile, LineReader] = {}
        self._idle: list[LineReader] = []
        self._heads: list[tuple[tuple[int, int, str], LogLine, LineReader]] = []

    def add(self, reader: LineReader) -> None:
        """Takes a log in."""
        self.readers[reader.log] = reader
        self._idle.append(reader)

    def lines(self, is_last: bool) -> Iterator[LogLine]:
        """All lines there are now. Whoever stops in between goes on there the next time."""
        idle, self._idle = self._idle, []
        for reader in idle:
            self._draw(reader, is_last)
        while self._heads:
            _, line, reader = heappop(self._heads)
            self._draw(reader, is_last)
            yield line

    def _draw(self, reader: LineReader, is_last: bool) -> None:
        line = reader.next(is_last)
        if line is None:
            self._idle.append(reader)
        else:
            # Of one log there is one line, so that the order never comes to comparing more than this.
            heappush(self._heads, (line.order, line, reader))


def _piece_bytes(count: int) -> int:
    return max(PIECE_BYTES_MIN, min(LINE_BYTES_MAX, BUFFERS_BYTES // max(count, 1)))


def _size(log: LogFile) -> int:
    return os.path.getsize(log.path)
