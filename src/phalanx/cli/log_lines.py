"""Lines of the logs of a job: of several tasks as one, with the time of each."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import click

from phalanx.cli.client import Client, Unreachable, job_path
from phalanx.cli.outcome import FINAL, Patience, look
from phalanx.cli.output import wants_colour

LOOK_S = 0.2
AGAIN_MS = 2_000
"""A line that broke is taken up so long before the last line that came: those of other tasks may be a little older."""

COLOURS = (36, 33, 32, 35, 34, 31)
UNDATED = "-".ljust(len("2026-01-31T08:00:00.000Z"))

Line = dict[str, Any]


class Wanted(NamedTuple):
    """Which lines of a job: of one task and stream (None: all), of what attempt (None: the newest, or all that are
    followed), since when, and how many of the last.
    """

    job: str
    rank: int | None
    stream: str | None
    attempt: int | None
    since_ms: int | None
    tail: int | None

    def query(self, **more: str | int | bool | None) -> dict[str, str | int | bool | None]:
        told = {"rank": self.rank, "stream": self.stream, "since_ms": self.since_ms, "tail": self.tail}
        return {**told, "attempt": self.attempt, **more}


class Printer:
    """Prints lines, each to where it was printed to or all to stdout, with task and time before it where wanted."""

    def __init__(self, with_task: bool, with_time: bool, apart: bool) -> None:
        self._apart = apart
        self._with_task = with_task
        self._with_time = with_time
        self._coloured = wants_colour()
        self._width = 1
        self._open = ""
        self.count = 0

    def print(self, line: Line) -> None:
        """Prints a line, or a part of one that goes on."""
        shown, other = sys.stdout.buffer, sys.stderr.buffer
        if self._apart and line["stream"] == "err":
            shown, other = other, shown
        key = f"{line['rank']}.{line['stream']}"
        if self._open and self._open != key:
            shown.write(b"\n")
        head = "" if self._open == key else self._head(line)
        other.flush()
        shown.write(f"{head}{line['text']}".encode() + (b"\n" if line["whole"] else b""))
        self._open = "" if line["whole"] else key
        self.count += 1

    def flush(self) -> None:
        """Has all be seen that was printed."""
        sys.stdout.buffer.flush()
        sys.stderr.buffer.flush()

    def _head(self, line: Line) -> str:
        head = f"{stamp(line['at_ms'])} " if self._with_time else ""
        if not self._with_task:
            return head
        self._width = max(self._width, len(str(line["rank"])))
        task = f"{line['rank']:>{self._width}}:"
        if self._coloured:
            task = f"\x1b[{COLOURS[line['rank'] % len(COLOURS)]}m{task}\x1b[0m"
        return f"{head}{task} "


def stamp(at_ms: int | None) -> str:
    """A moment in UTC to the millisecond; `-` where it is not known."""
    if at_ms is None:
        return UNDATED
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(at_ms / 1000))}.{at_ms % 1000:03}Z"


def print_lines(client: Client, wanted: Wanted, printer: Printer) -> None:
    """Prints the lines there are."""
    for line in _read(client, wanted.job, wanted.query(), printer):
        printer.print(line)


def follow_lines(client: Client, wanted: Wanted, printer: Printer) -> None:
    """Prints lines as they come: of the attempt that is wanted, or from attempt to attempt until the job is over."""
    found: dict[str, Any] | None = client.get(job_path(wanted.job))
    patience = Patience()
    attempt = wanted.attempt or (found["attempts"] if found and wanted.tail is not None and found["attempts"] else 1)
    following = Following(client, wanted, printer)
    while found is not None and (found["attempts"] >= attempt or found["state"] not in FINAL):
        if found["attempts"] < attempt:
            patience.look_at(found)
            time.sleep(LOOK_S)
        elif following.to_the_end_of(attempt):
            if wanted.attempt is not None:
                return
            attempt += 1
        found = look(client, wanted.job)


class Following:
    """Attempts that are followed one after the other. A line that broke is taken up where it was."""

    def __init__(self, client: Client, wanted: Wanted, printer: Printer) -> None:
        self._client = client
        self._wanted = wanted
        self._printer = printer
        self._tail = wanted.tail
        self._attempt = 0
        self._ends: dict[tuple[int, str], int] = {}
        self._newest_ms: int | None = None

    def to_the_end_of(self, attempt: int) -> bool:
        """Prints what comes of an attempt; False if the server went away before its end."""
        if attempt != self._attempt:
            self._attempt, self._ends, self._newest_ms = attempt, {}, None
        query = self._wanted.query(attempt=attempt, tail=self._tail, follow=True)
        if self._newest_ms is not None:
            query |= {"since_ms": max(self._wanted.since_ms or 0, self._newest_ms - AGAIN_MS), "tail": None}
        try:
            for line in _read(self._client, self._wanted.job, query, self._printer):
                self._take(line)
        except Unreachable as error:
            click.echo(f"phalanx: {error}; waiting for it", err=True)
            return False
        self._tail = None
        return True

    def _take(self, line: Line) -> None:
        key = (line["rank"], line["stream"])
        if line["end"] > self._ends.get(key, 0):
            self._ends[key] = line["end"]
            self._newest_ms = line["at_ms"] or self._newest_ms
            self._printer.print(line)


def _read(client: Client, job: str, query: dict[str, str | int | bool | None], printer: Printer) -> Iterator[Line]:
    """Lines as they come. All of a piece have been printed when the next is waited for."""
    unread = b""
    for piece in client.stream(job_path(job, "/log-lines"), **query):
        *lines, unread = (unread + piece).split(b"\n")
        for line in lines:
            yield json.loads(line)
        printer.flush()
