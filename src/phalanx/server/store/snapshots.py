"""Snapshots in the store, in parts: each part is one short transaction, so that none waits for a large one."""

from __future__ import annotations

from typing import NamedTuple

from sqlalchemy import Connection, delete, insert, select

from phalanx.engine.state.state import State
from phalanx.server.store.database import Database
from phalanx.server.store.tables import snapshot_parts, snapshots

PART_BYTES = 1 << 20
KEPT = 2
"""Snapshots kept: the newest, and one before it in case the newest cannot be read."""


class Snapshot(NamedTuple):
    """A snapshot that is complete: the State right after record `seq`."""

    seq: int
    now_ms: int
    digest: str
    parts: int


def write(database: Database, state: State, content: bytes) -> None:
    """Stores a snapshot. It counts once its last part is durable; older ones are dropped then."""
    pieces = [content[at : at + PART_BYTES] for at in range(0, len(content), PART_BYTES)]
    with database.writing() as connection:
        connection.execute(delete(snapshot_parts).where(snapshot_parts.c.seq == state.seq))
        connection.execute(delete(snapshots).where(snapshots.c.seq == state.seq))
    for number, piece in enumerate(pieces):
        with database.writing() as connection:
            connection.execute(insert(snapshot_parts).values(seq=state.seq, part=number, content=piece))
    with database.writing() as connection:
        connection.execute(
            insert(snapshots).values(seq=state.seq, now_ms=state.now, digest=str(state.digest), parts=len(pieces))
        )
        _drop_old(connection)


def _drop_old(connection: Connection) -> None:
    kept = [each.seq for each in newest_first(connection)[:KEPT]]
    connection.execute(delete(snapshots).where(snapshots.c.seq.not_in(kept)))
    connection.execute(delete(snapshot_parts).where(snapshot_parts.c.seq.not_in(kept)))


def newest_first(connection: Connection) -> list[Snapshot]:
    """The snapshots that are complete."""
    return [Snapshot(*row) for row in connection.execute(select(snapshots).order_by(snapshots.c.seq.desc()))]


def content_of(connection: Connection, snapshot: Snapshot) -> bytes:
    """The bytes of a snapshot."""
    parts = select(snapshot_parts.c.content).where(snapshot_parts.c.seq == snapshot.seq).order_by(snapshot_parts.c.part)
    return b"".join(connection.execute(parts).scalars())
