"""Sharded files of lines (JSON lines, text, CSV without header), seen as one sequence of samples."""

from __future__ import annotations

import os
from array import array
from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, BinaryIO

from phalanx.errors import PhalanxError

MARK_EVERY = 64
"""Of so many lines one is remembered by its place in the file."""

OPEN_MAX = 64
"""So many files are held open at once."""


class LineFiles:
    """Sample `number` is a line of one of the files, as `parse` reads it; files in the order in which they are given.

    The files are read once when this is made, to count their lines. Reading on where the last read ended costs no more
    than the line.
    """

    def __init__(self, paths: Sequence[str | Path], parse: Callable[[bytes], Any] = bytes) -> None:
        if not paths:
            raise PhalanxError("there are no files to read samples from")
        self._paths, self._parse = [Path(path) for path in paths], parse
        self._marks: list[array[int]] = []
        self.counts: list[int] = []
        """The lines of each file, as `Lanes` wants them."""
        for path in self._paths:
            marks, count = marked(path)
            self._marks.append(marks)
            self.counts.append(count)
        self._firsts = [0, *accumulate(self.counts)]
        self._readers: dict[int, Reader] = {}
        self._opened_in = 0

    def __len__(self) -> int:
        return self._firsts[-1]

    def __getitem__(self, number: int) -> Any:
        if not 0 <= number < len(self):
            raise IndexError(number)
        file = bisect_right(self._firsts, number) - 1
        return self._parse(self._reader(file).line(number - self._firsts[file]))

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_readers": {}}

    def _reader(self, file: int) -> Reader:
        if self._opened_in != os.getpid():
            # A forked worker shares the places in files that were opened before.
            self._readers, self._opened_in = {}, os.getpid()
        reader = self._readers.pop(file, None) or Reader(self._paths[file], self._marks[file])
        self._readers[file] = reader
        if len(self._readers) > OPEN_MAX:
            # The one that was not asked for the longest.
            self._readers.pop(next(iter(self._readers))).close()
        return reader


class Reader:
    """One open file, and the line it stands at."""

    def __init__(self, path: Path, marks: Sequence[int]) -> None:
        self._path, self._marks = path, marks
        self._file: BinaryIO = path.open("rb")
        self._next = 0

    def line(self, row: int) -> bytes:
        """A line without its end."""
        if not self._next <= row < self._next + MARK_EVERY:
            self._next = row // MARK_EVERY * MARK_EVERY
            self._file.seek(self._marks[row // MARK_EVERY])
        while self._next < row:
            self._file.readline()
            self._next += 1
        line = self._file.readline()
        self._next += 1
        if not line:
            raise PhalanxError(f"{self._path} ends before line {row + 1}: it was cut since its lines were counted")
        return line.rstrip(b"\r\n")

    def close(self) -> None:
        self._file.close()

    def __del__(self) -> None:
        self.close()


def marked(path: Path) -> tuple[array[int], int]:
    """Where every so-manieth line of a file begins, and how many lines there are."""
    marks, count, place = array("Q"), 0, 0
    with path.open("rb") as file:
        for line in file:
            if count % MARK_EVERY == 0:
                marks.append(place)
            place += len(line)
            count += 1
    return marks, count
