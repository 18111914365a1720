"""The journal: Events and Decisions, each with its number, its time and the version of its form. It is the truth."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b
from typing import Any

import msgspec

from phalanx.protocol.event import Event
from phalanx.protocol.plan import Plan

VERSION = 1
"""The form in which records are written. Older forms are brought up to it as they are read."""

UPCASTS: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {}
"""For each older version, what turns a record of it into one of the next."""

PRESENT = b'"version":%d}' % VERSION
"""How a line ends that this version wrote: such a line need not be looked into first."""

GENESIS = b"phalanx journal"

EMPTY = blake2b(digest_size=16)
"""Copied for every link, which is quicker than to set a hash up anew."""


class Record(msgspec.Struct, frozen=True):
    """One line of the journal."""

    seq: int
    now: int
    body: Event | Plan
    version: int = VERSION


_encoder = msgspec.json.Encoder(order="deterministic")
_decoder = msgspec.json.Decoder(Record)


def encode(record: Record) -> bytes:
    """A record as one line of JSON."""
    return _encoder.encode(record)


def decode(line: bytes) -> Record:
    """A record from its line, whatever version wrote it. A line that is no record raises ValueError."""
    try:
        if line.endswith(PRESENT):
            return _decoder.decode(line)
        raw = msgspec.json.decode(line)
        version = raw["version"]
        if version == VERSION:
            return _decoder.decode(line)
        if version > VERSION:
            raise ValueError(f"a record of version {version}; this phalanx knows up to version {VERSION}")
        while version < VERSION:
            raw = UPCASTS[version](raw)
            version = raw["version"]
        return msgspec.convert(raw, Record)
    except KeyError as error:
        raise ValueError(f"not a journal record of version {VERSION} or older: it has no {error}") from error
    except (msgspec.DecodeError, msgspec.ValidationError, TypeError) as error:
        raise ValueError(f"not a journal record of version {VERSION} or older: {error}") from error


class Digest:
    """A chain of hashes over records as they were written: equal digests mean equal histories.

    Each link is the hash of the one before and the next line, so that a snapshot can carry it on from sixteen bytes.
    """

    __slots__ = ("link",)

    def __init__(self, link: bytes = GENESIS) -> None:
        self.link = link

    def add(self, line: bytes) -> None:
        """Takes one more record in."""
        link = EMPTY.copy()
        link.update(self.link)
        link.update(line)
        self.link = link.digest()

    def __str__(self) -> str:
        return self.link.hex()


class Journal:
    """Records in memory, in order, and where they were read from lines, those lines."""

    def __init__(self, records: Iterable[Record] = ()) -> None:
        self.records: list[Record] = list(records)
        self._lines: list[bytes] = []

    def next(self, now: int, body: Event | Plan) -> Record:
        """The record that would come next."""
        return Record(len(self.records), now, body)

    def append(self, record: Record, line: bytes) -> None:
        """Takes a record in."""
        if len(self._lines) == len(self.records):
            self._lines.append(line)
        self.records.append(record)

    def lines(self) -> Iterator[bytes]:
        """The journal as lines of JSON, as they were written."""
        for i, record in enumerate(self.records):
            yield self._lines[i] if i < len(self._lines) else encode(record)

    @classmethod
    def read(cls, lines: Iterable[bytes]) -> Journal:
        """A journal from its lines; a torn or foreign line is named by its number."""
        journal = cls()
        for number, line in enumerate(lines, start=1):
            try:
                record = decode(line)
            except ValueError as error:
                raise ValueError(f"journal line {number}: {error}") from error
            if record.seq != len(journal.records):
                raise ValueError(f"journal line {number}: expected record {len(journal.records)}, found {record.seq}")
            journal.append(record, line.rstrip(b"\r\n"))
        return journal


class Count(Journal):
    """A journal of which only the length is kept: for runs whose history is never read."""

    def __init__(self, length: int = 0) -> None:
        super().__init__()
        self.length = length

    def next(self, now: int, body: Event | Plan) -> Record:
        """The record that would come next."""
        return Record(self.length, now, body)

    def append(self, record: Record, line: bytes) -> None:
        """Counts a record."""
        self.length += 1
