"""The journal in the store: records wait in memory until the transaction that makes them durable."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from sqlalchemy import Connection, case, func, select

from phalanx.engine.state.journal import Journal, Record
from phalanx.protocol.event import Event
from phalanx.protocol.plan import Plan
from phalanx.server.store.bulk import Bulk
from phalanx.server.store.tables import journal

RECORDS = Bulk(journal)

ENTRIES_BYTES_MAX = 2 << 20
"""So much of the journal is looked at in one piece, or one record if that is longer."""

CHUNK = 5_000
"""Records read at a time: a long journal is never in memory as a whole."""


class Entry(NamedTuple):
    """A record as it is stored. `job` is the job it is about, where it is about one."""

    seq: int
    now_ms: int
    type: str
    job: str
    line: bytes


class StoredJournal(Journal):
    """The journal of the live State: knows its length, and what is not durable yet."""

    def __init__(self, length: int = 0) -> None:
        super().__init__()
        self.length = length
        self._pending: list[dict[str, Any]] = []
        self._fresh: list[Record] = []

    def next(self, now: int, body: Event | Plan) -> Record:
        """The record that would come next."""
        return Record(self.length, now, body)

    def append(self, record: Record, line: bytes) -> None:
        """Takes a record in; it is durable after `flush` and the end of that transaction."""
        self.length += 1
        self._fresh.append(record)
        self._pending.append(
            {
                "seq": record.seq,
                "now_ms": record.now,
                "type": type_of(record.body),
                "job": job_of(record.body),
                "line": line,
            }
        )

    @property
    def dirty(self) -> bool:
        """Whether there is something that is not durable yet."""
        return bool(self._pending)

    def flush(self, connection: Connection) -> list[Record]:
        """Writes what is not durable yet, and says what that was."""
        fresh, self._fresh = self._fresh, []
        if self._pending:
            RECORDS.run(connection, self._pending)
            self._pending = []
        return fresh


def type_of(body: Event | Plan) -> str:
    """What a record is, in one word: as it is tagged in its line."""
    return "Decision" if isinstance(body, Plan) else type(body).__name__


def job_of(body: Event | Plan) -> str:
    """The job that a record is about; empty where it is about many or none."""
    if isinstance(body, Plan):
        return ""
    action = getattr(body, "action", None)
    if action is not None:
        return str(action.job)
    job = getattr(body, "job", "")
    return job if isinstance(job, str) else str(job.id)


def newest_seq(connection: Connection) -> int:
    """The number of the newest record; -1 if there is none."""
    newest = connection.execute(select(func.max(journal.c.seq))).scalar()
    return -1 if newest is None else int(newest)


def entries(connection: Connection, after_seq: int, limit: int = CHUNK) -> list[Entry]:
    """The records that follow one, at most so many, and of long ones no more than a few."""
    following = journal.c.seq > after_seq
    sizes = select(journal.c.seq, func.length(journal.c.line)).where(following).order_by(journal.c.seq).limit(limit)
    last, read = after_seq, 0
    for seq, size in connection.execute(sizes):
        read += size
        if read > ENTRIES_BYTES_MAX and last > after_seq:
            break
        last = seq
    found = connection.execute(select(journal).where(following & (journal.c.seq <= last)).order_by(journal.c.seq))
    return [Entry(*row) for row in found]


class Wanted(NamedTuple):
    """Which records are wanted: about a job, if it is named, of some types, if there are any, and at most so many."""

    job: str
    types: tuple[str, ...]
    limit: int


LOOKED_AT_MAX = 5_000
"""Records that are looked at for one page of some types; where fewer than wanted are among them, the page is short."""


def newest_before(connection: Connection, before: int | None, wanted: Wanted) -> tuple[list[Entry], int | None]:
    """The newest records before one that are wanted, the newest first, and before which the next page goes on."""
    end = newest_seq(connection) + 1 if before is None else before
    first = 0 if wanted.job or not wanted.types else max(end - LOOKED_AT_MAX, 0)
    query = select(journal).where((journal.c.seq < end) & (journal.c.seq >= first))
    if wanted.job:
        query = query.where(journal.c.job == wanted.job)
    if wanted.types:
        query = query.where(journal.c.type.in_(wanted.types))
    found, read = [], 0
    for row in connection.execute(query.order_by(journal.c.seq.desc()).limit(wanted.limit)):
        found.append(Entry(*row))
        read += len(row.line)
        if read > ENTRIES_BYTES_MAX:
            return found, found[-1].seq
    if len(found) == wanted.limit:
        return found, found[-1].seq
    return found, first or None


DECISIONS_MAX = 1_000


def decisions_cut_short(connection: Connection) -> tuple[int, int]:
    """How many decisions there are at the journal's end, and in how many not all pending jobs were looked at."""
    first = newest_seq(connection) - LOOKED_AT_MAX
    decisions = select(journal.c.seq, journal.c.line).where((journal.c.type == "Decision") & (journal.c.seq > first))
    newest = decisions.order_by(journal.c.seq.desc()).limit(DECISIONS_MAX).subquery()
    # What is as usual is left out of a line.
    short = func.sum(case((newest.c.line.like(b'%"exhaustive":false%'), 1), else_=0))
    counted, cut_short = connection.execute(select(func.count(), short).select_from(newest)).one()
    return int(counted), int(cut_short or 0)


def said_by(connection: Connection, job: str, kind: str, until_seq: int, limit: int) -> list[Entry]:
    """The newest records of a kind about a job up to one, at most so many, in their order."""
    about = (journal.c.job == job) & (journal.c.type == kind) & (journal.c.seq <= until_seq)
    found = connection.execute(select(journal).where(about).order_by(journal.c.seq.desc()).limit(limit))
    return [Entry(*row) for row in reversed(found.all())]


def lines_after(connection: Connection, seq: int) -> Iterator[bytes]:
    """The lines of all records that follow one. A chunk may be short without being the last: long records fill it."""
    while chunk := entries(connection, seq):
        yield from (entry.line for entry in chunk)
        seq = chunk[-1].seq


def first_seq(connection: Connection) -> int:
    """The number of the first record; 0 if there is none. A bundle's journal may begin late."""
    return int(connection.execute(select(func.min(journal.c.seq)).where(journal.c.seq >= 0)).scalar() or 0)


def first_ms(connection: Connection) -> int:
    """The moment of the first record; 0 if there is none. What a bundle knows of jobs from before has no number."""
    first = select(journal.c.now_ms).where(journal.c.seq >= 0).order_by(journal.c.seq).limit(1)
    return int(connection.execute(first).scalar() or 0)


def first_after(connection: Connection, now_ms: int) -> int:
    """The number of the first record at or after a moment. Records are in order of time, so it is found by halves."""
    low, high = 0, newest_seq(connection) + 1
    while low < high:
        middle = (low + high) // 2
        at_ms = connection.execute(select(journal.c.now_ms).where(journal.c.seq == middle)).scalar()
        if at_ms is None or at_ms < now_ms:
            low = middle + 1
        else:
            high = middle
    return low
