"""Reading a picture: a store of the past, behind which the journal of the present is cut off at its moment."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
from sqlalchemy import create_engine, event

from phalanx.server.store.database import Database, database_file, sqlite_url
from phalanx.server.store.tables import attempts

FILE, TOLD = "picture.db", "told.json"

GROWING = {
    "journal": "seq <= {seq}",
    "snapshots": "seq <= {seq}",
    "node_healths": "seq <= {seq}",
    "findings": "seq <= {seq}",
    "attempt_sizes": "seq <= {seq}",
    "job_phases": "at_ms <= {at_ms}",
    "start_forecasts": "at_ms <= {at_ms}",
    "audit": "at_ms <= {at_ms}",
    "node_attempts": "created_ms <= {at_ms}",
}
"""Tables to which the present only adds, and what of them was there."""

COLUMNS = ", ".join(f'"{column.name}"' for column in attempts.columns)
ATTEMPTS = f"""CREATE TEMP VIEW attempts AS SELECT {COLUMNS} FROM main.attempts
UNION ALL SELECT {COLUMNS} FROM past.attempts AS ended WHERE ended_ms <= {{at_ms}} AND NOT EXISTS
(SELECT 1 FROM main.attempts AS under_way WHERE under_way.job = ended.job AND under_way.number = ended.number)"""
"""Those under way are the picture's, those that had ended are the present's: to copy them takes longer with each."""


class Told(msgspec.Struct, frozen=True):
    """What the planner would have said of queues and reservations."""

    used: dict[str, Any]
    spent: dict[str, int]
    reservations: list[dict[str, Any]]


def open_picture(picture: Path, store_url: str, seq: int, at_ms: int) -> Database:
    """Opens a picture to read from. What only grows is read from the store of the present, up to the moment."""
    store = database_file(store_url)

    def prepare(connection: Any, _: object) -> None:
        connection.execute("ATTACH DATABASE ? AS past", (str(store),)).close()
        for table, then in GROWING.items():
            there = then.format(seq=seq, at_ms=at_ms)
            connection.execute(f"CREATE TEMP VIEW {table} AS SELECT * FROM past.{table} WHERE {there}").close()
        connection.execute(ATTEMPTS.format(at_ms=at_ms)).close()
        connection.execute("PRAGMA query_only=ON").close()

    engine = create_engine(
        sqlite_url(picture / FILE), pool_size=4, max_overflow=0, connect_args={"check_same_thread": False}
    )
    event.listen(engine, "connect", prepare)
    return Database(sqlite_url(picture / FILE), engine)


def told_in(picture: Path) -> Told:
    """What the planner would have said."""
    os.utime(picture)
    return msgspec.json.decode(picture.joinpath(TOLD).read_bytes(), type=Told)
