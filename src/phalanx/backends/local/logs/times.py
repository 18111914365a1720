"""When what is in a log was written: a file beside it, `0.out.times`, which its shepherd keeps.

A log is written by the task itself, so that nothing stands between the two that could lose a line or slow the task
down. The shepherd hears of it and notes how long the log has become and when it was last written to. What was written
between two looks has the time of the later one: the time of a line is exact if it was written by itself, and in a burst
as late as the shepherd lets pass between looks.
"""

from __future__ import annotations

import os
import struct
from bisect import bisect_left
from collections.abc import Callable
from contextlib import suppress

_NOTE = struct.Struct("<QQ")
_Test = Callable[[tuple[int, int]], bool]
_BLOCK = 256
"""So many notes are read at once."""


def times_path(log_path: str) -> str:
    """Where the times of a log are."""
    return f"{log_path}.times"


def begin_times(log_path: str) -> None:
    """Has there be times of a log, none so far: a log without them is one of which no time is known."""
    with suppress(OSError):
        open(times_path(log_path), "ab").close()


def note_time(log_path: str, size: int, at_ms: int) -> None:
    """Notes that all up to a size was written by a moment. Raises OSError where the disk is full."""
    with open(times_path(log_path), "ab", buffering=0) as file:
        if torn := file.tell() % _NOTE.size:
            file.truncate(file.tell() - torn)
        file.write(_NOTE.pack(size, at_ms))


class LogTimes:
    """The times of a log, read as they are needed. Nothing stays open."""

    def __init__(self, log_path: str) -> None:
        self._log_path = log_path
        self._path = times_path(log_path)
        self._ends: list[int] = []
        self._at_ms: list[int] = []
        self._before = 0

    @property
    def are_kept(self) -> bool:
        """Whether there are any: logs of attempts that an older version began have none."""
        return os.path.exists(self._path)

    def at_ms(self, end: int) -> int | None:
        """When what ends at an offset was written; None if nothing is known of it."""
        if not self._before < end <= (self._ends[-1] if self._ends else 0):
            self._load(end)
        found = bisect_left(self._ends, end)
        if found < len(self._ends):
            return self._at_ms[found]
        if not self.are_kept:
            return None
        # The shepherd has not looked since.
        return max(_written_ms(self._log_path), self._at_ms[-1] if self._at_ms else 0)

    def offset_since(self, since_ms: int) -> int:
        """Where that begins which was written since a moment: nothing before it was."""
        try:
            with open(self._path, "rb", buffering=0) as file:
                count = _count(file.fileno())
                first = _search(file.fileno(), count, lambda note: note[1] >= since_ms)
                return _note(file.fileno(), first - 1)[0] if first else 0
        except FileNotFoundError:
            return 0

    def _load(self, end: int) -> None:
        """Reads notes around an offset, so that lines before and after it need no other look."""
        self._ends, self._at_ms, self._before = [], [], 0
        try:
            with open(self._path, "rb", buffering=0) as file:
                handle = file.fileno()
                count = _count(handle)
                first = max(_search(handle, count, lambda note: note[0] >= end) - 1, 0)
                content = os.pread(handle, _BLOCK * _NOTE.size, first * _NOTE.size)
        except FileNotFoundError:
            return
        notes = list(_NOTE.iter_unpack(content[: len(content) // _NOTE.size * _NOTE.size]))
        self._ends = [note[0] for note in notes]
        self._at_ms = [note[1] for note in notes]
        self._before = self._ends[0] if first else 0


def _count(handle: int) -> int:
    return os.fstat(handle).st_size // _NOTE.size


def _note(handle: int, at: int) -> tuple[int, int]:
    end, at_ms = _NOTE.unpack(os.pread(handle, _NOTE.size, at * _NOTE.size))
    return end, at_ms


def _search(handle: int, count: int, is_reached: _Test) -> int:
    """The first note of which something is true, as it is of all behind it; their number if it is of none."""
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        if is_reached(_note(handle, middle)):
            high = middle
        else:
            low = middle + 1
    return low


def _written_ms(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns // 1_000_000
    except FileNotFoundError:
        return 0
