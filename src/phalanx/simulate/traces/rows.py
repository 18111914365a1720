"""Rows of a CSV file: the header, then each row with the line it begins on."""

from __future__ import annotations

import csv
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, TextIO, TypeVar

from phalanx.document.error import brief
from phalanx.simulate.traces.error import TraceError

_Value = TypeVar("_Value")

Refuse = Callable[[TraceError], None]
ENCODING = "utf-8-sig"
"""Spreadsheets begin a file with a byte order mark."""


def strict(error: TraceError) -> None:
    """Where no bad row may be left out."""
    raise error


ROWS_MAX = 5_000_000
"""All jobs are in memory, at about 430 bytes each: two gigabytes."""


def too_many(source: str, what: str = "lines", place: int | str = "") -> TraceError:
    """What is said of a trace with more than `ROWS_MAX` of them."""
    reason = f"there are more than {ROWS_MAX:,} {what}, and all jobs are kept in memory: take a part, such as a month"
    return TraceError(source, reason, place)


class Layout(NamedTuple):
    """How a table is written. Where the file has no header, `header` is what it would be."""

    delimiter: str = ","
    quotes: bool = True
    header: tuple[str, ...] = ()


COMMAS = Layout()


class Rows:
    """A CSV file that has been opened. Columns are found by name; what `refuse` is given is left out if it returns."""

    def __init__(self, file: TextIO, source: str, layout: Layout) -> None:
        self.source = source
        self._delimiter = layout.delimiter
        self._quotes = layout.quotes
        self._file = file
        self._taken: list[str] = []
        self._given_back: deque[str] = deque()
        self._read_on(lines_before=0)
        self.header = layout.header or self._read_header()

    def _read_on(self, lines_before: int) -> None:
        """Reads what follows after so many lines."""
        self._lines_before = lines_before
        lines, delimiter = self._lines(), self._delimiter
        if self._quotes:
            self._reader = csv.reader(lines, strict=True, delimiter=delimiter)
        else:
            self._reader = csv.reader(lines, strict=True, delimiter=delimiter, quoting=csv.QUOTE_NONE)

    def _lines(self) -> Iterator[str]:
        """Lines that were given back, then those of the file. What was taken for the present row is kept."""
        taken, given_back = self._taken, self._given_back
        while given_back:
            taken.append(given_back.popleft())
            yield taken[-1]
        for line in self._file:
            taken.append(line)
            yield line

    @property
    def _line(self) -> int:
        """The line that was read last."""
        return self._lines_before + self._reader.line_num

    def _read_header(self) -> tuple[str, ...]:
        header = next(filter(None, self._reader), None)
        if header is None:
            raise TraceError(self.source, "expected a header and rows, found an empty file")
        names = tuple(name.strip() for name in header)
        for i, name in enumerate(names):
            if name in names[:i]:
                raise TraceError(self.source, f"column {brief(name)!r} is there twice", self._line)
        return names

    def column(self, name: str) -> int:
        """Where a column is; one that is missing is an error."""
        if name not in self.header:
            reason = f"expected a column {name!r}, found {brief(', '.join(self.header))}"
            raise TraceError(self.source, reason, self._line)
        return self.header.index(name)

    def reader(self, name: str, read: Callable[[str], _Value], expected: str) -> Callable[[int, list[str]], _Value]:
        """What reads a column from a line and its row; a value that does not fit is an error that names all of it."""
        at = self.column(name)

        def value(line: int, row: list[str]) -> _Value:
            try:
                return read(row[at])
            except ValueError:
                got = brief(row[at]) or "nothing"
                raise TraceError(self.source, f"expected {expected}, got {got}", line, name) from None

        return value

    def rows(self, refuse: Refuse = strict) -> Iterator[tuple[int, list[str]]]:
        """Rows that have as many fields as the header, each with the line it begins on. Empty lines are passed over.

        A quote that is never closed would take in all that follows: of several bad lines only the first is lost.
        """
        width, taken = len(self.header), self._taken
        while True:
            line = self._line + 1
            taken.clear()
            try:
                row = next(self._reader)
            except StopIteration:
                return
            except csv.Error as error:
                open_quote = " (a quote that begins in this line does not end in it)" if len(taken) > 1 else ""
                reason = f"expected a row of CSV: {error}{open_quote}"
            else:
                if line > ROWS_MAX + 1:
                    raise too_many(self.source, place=line)
                if len(row) == width:
                    yield line, row
                    continue
                if not row:
                    continue
                reason = f"expected {width} fields as in the header, got {len(row)}: {brief(self._delimiter.join(row))}"
            refuse(TraceError(self.source, reason, line))
            if len(taken) > 1:
                self._given_back.extendleft(reversed(taken[1:]))
                self._read_on(lines_before=line)


@contextmanager
def open_rows(path: str, layout: Layout = COMMAS) -> Iterator[Rows]:
    """Opens a CSV file. Bytes that are not text are an error that names their line."""
    with Path(path).open(encoding=ENCODING, newline="") as file:
        try:
            yield Rows(file, path, layout)
        except csv.Error as error:
            raise TraceError(path, f"expected a header of CSV: {error}", 1) from None
        except UnicodeDecodeError:
            raise TraceError(path, "expected text in UTF-8", line_of_bad_bytes(path)) from None


def line_of_bad_bytes(path: str) -> int:
    """The first line that is not UTF-8."""
    with Path(path).open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            try:
                line.decode()
            except UnicodeDecodeError:
                return number
    return 1
