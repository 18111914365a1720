"""The journal: Events and Decisions, each with its number, its time and the version of its form. It is the truth."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b
from typing import Any

import msgspec

from phalanx.engine.event import Event
from phalanx.engine.plan import Plan

VERSION = 1
"""The form in which records are written. Older forms are brought up to it as they are read."""

UPCASTS: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {}
"""For each older version, what turns a record of it into one of the next."""

GENESIS = b"phalanx journal"


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
    except (msgspec.DecodeError, msgspec.ValidationError, KeyError, TypeError) as error:
        raise ValueError(f"not a journal record of version {VERSION} or older: {error}") from error


class Digest:
    """A running hash of records: equal digests mean equal histories."""

    __slots__ = ("_hash",)

    def __init__(self) -> None:
        self._hash = blake2b(GENESIS, digest_size=16)

    def add(self, record: Record) -> None:
        """Takes one more record in."""
        self._hash.update(encode(record))

    def __str__(self) -> str:
        return self._hash.hexdigest()


class Journal:
    """Records in memory, in order."""

    def __init__(self, records: Iterable[Record] = ()) -> None:
        self.records: list[Record] = list(records)

    def next(self, now: int, body: Event | Plan) -> Record:
        """The record that would come next."""
        return Record(len(self.records), now, body)

    def lines(self) -> Iterator[bytes]:
        """The journal as lines of JSON."""
        for record in self.records:
            yield encode(record)

    @classmethod
    def read(cls, lines: Iterable[bytes]) -> Journal:
        """A journal from its lines; a torn or foreign line is named by its number."""
        records: list[Record] = []
        for number, line in enumerate(lines, start=1):
            try:
                record = decode(line)
            except ValueError as error:
                raise ValueError(f"journal line {number}: {error}") from error
            if record.seq != len(records):
                raise ValueError(f"journal line {number}: expected record {len(records)}, found {record.seq}")
            records.append(record)
        return cls(records)
