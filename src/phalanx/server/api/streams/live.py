"""The live stream: the journal for a client that watches rather than keeps it, in bounded pieces, whatever happens.

A few new records come whole. Many come as one event that names the jobs they are about; a client that has fallen too
far behind, because it did not read or was away, is told that there is a gap, and goes on with the present.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from time import monotonic
from typing import Any, NamedTuple

import msgspec
from sqlalchemy import Connection, func, select

from phalanx.server.accounts.roles import Account
from phalanx.server.api.context import Context
from phalanx.server.api.streams.new_figures import LOOK_S, NewFigures
from phalanx.server.api.streams.records import chunk_of, queues_of
from phalanx.server.api.streams.standing import Standing
from phalanx.server.store.journal import newest_seq
from phalanx.server.store.tables import journal

WHOLE_MAX = 50
"""So many new records come whole; more are told of in one event."""

BEHIND_MAX = 10_000
"""A client that is further behind is told of a gap."""

JOBS_MAX = 1_000
"""Jobs that one event names; `more` says that there are more."""

PAUSE_S = 0.25
"""The least time between two pieces. The first after a silence comes at once."""

RETRY_MS = 1_000
FIGURES = b"event: figures\ndata: {}\n\n"
"""Says that series have new points. It is no record, so it has no id."""


class Piece(NamedTuple):
    """The next events of a stream, and the record up to which they go."""

    seq: int
    content: bytes


async def live(standing: Standing, context: Context, seq: int) -> AsyncGenerator[bytes, None]:
    """Streams what follows a record, for as long as the caller may hear it."""
    yield b"retry: %d\n\n" % RETRY_MS
    sent_s = 0.0
    figures = NewFigures(context.options.file())
    while True:
        await asyncio.sleep(max(sent_s + PAUSE_S - monotonic(), 0))
        piece = await context.read(next_piece, seq, await standing.account())
        if piece is None:
            await context.engine.beyond(seq, LOOK_S)
            if context.engine.news.seq <= seq:
                yield FIGURES if figures.are_there() else b": still here\n\n"
            continue
        if piece.content:
            yield piece.content
        if figures.are_there():
            yield FIGURES
        sent_s, seq = monotonic(), piece.seq


def next_piece(connection: Connection, seq: int, account: Account) -> Piece | None:
    """What follows a record; None if nothing does."""
    newest = newest_seq(connection)
    if newest == seq:
        return None
    if not seq <= newest <= seq + BEHIND_MAX:
        # A store that was restored has fewer records than the client has heard of.
        return Piece(newest, _event(newest, "gap", {"seq": newest, "from_seq": seq}))
    if newest - seq <= WHOLE_MAX:
        last, lines = chunk_of(connection, seq, account)
        return Piece(newest if last is None else last, b"".join(lines))
    return Piece(newest, _digest(connection, seq, newest, account))


def _digest(connection: Connection, seq: int, newest: int, account: Account) -> bytes:
    """One event for many records: which jobs they are about, and how many there are of each type."""
    between = (journal.c.seq > seq) & (journal.c.seq <= newest)
    rows = connection.execute(
        select(journal.c.job, journal.c.type, func.count()).where(between).group_by(journal.c.job, journal.c.type)
    ).all()
    if not account.sees(""):
        queues = queues_of(connection, [job for job, _, _ in rows if job])
        rows = [row for row in rows if row[0] in queues and account.sees(queues[row[0]])]
    types: dict[str, int] = {}
    for _, kind, count in rows:
        types[kind] = types.get(kind, 0) + count
    jobs = sorted({job for job, _, _ in rows if job})
    told = {"seq": newest, "from_seq": seq, "types": types, "jobs": jobs[:JOBS_MAX], "more": len(jobs) > JOBS_MAX}
    return _event(newest, "changes", told) if rows else b""


def _event(seq: int, name: str, told: dict[str, Any]) -> bytes:
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (seq, name.encode(), msgspec.json.encode(told))
