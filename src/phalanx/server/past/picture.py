"""A picture: what the view told of a State of the past, as a store that is read like the present one.

Jobs, nodes and attempts under way are written from the State. Attempts that had ended, and what only grows, such as the
journal, are read in the store of the present, up to the moment.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import msgspec
from sqlalchemy import create_engine, event

from phalanx.engine.state.state import State
from phalanx.server.figures.keeper import outlook
from phalanx.server.figures.loads import Loads
from phalanx.server.figures.outlook import write_outlook
from phalanx.server.past.reading import FILE, TOLD, Told
from phalanx.server.planner.future import pass_time
from phalanx.server.store.database import sqlite_url
from phalanx.server.store.tables import metadata
from phalanx.server.view.cluster import write_cluster
from phalanx.server.view.lists import reservations_in, spent_in, used_in
from phalanx.server.view.view import View

KEPT = 12
"""Pictures that are kept. A worker has at most `OPEN_MAX` of them open, which were used last."""

COMPLETED = (
    "UPDATE jobs SET submit_seq = (SELECT each.submit_seq FROM past.jobs AS each WHERE each.number = jobs.number)",
    (
        "UPDATE jobs SET submit_seq = (SELECT max(each.seq) FROM past.journal AS each WHERE each.job = jobs.id"
        " AND each.type IN ('JobSubmitted', 'JobChanged') AND each.seq <= :seq) WHERE submit_seq > :seq"
    ),
    (
        "UPDATE jobs SET exit_code = (SELECT each.exit_code FROM past.attempts AS each WHERE each.job = jobs.id"
        " AND each.ended_ms <= :at_ms ORDER BY each.number DESC LIMIT 1) WHERE attempts > 0"
    ),
    (
        "UPDATE nodes SET reason = coalesce((SELECT each.reason FROM past.node_healths AS each"
        " WHERE each.node = nodes.name AND each.seq <= :seq ORDER BY each.seq DESC LIMIT 1), '')"
    ),
    "INSERT OR IGNORE INTO settings SELECT key, value FROM past.settings WHERE key != 'secret'",
)
"""What the State does not know of a past moment. `past` is the store of the present."""


def draw(state: State, at_ms: int, store: Path, folder: Path) -> Path:
    """Writes the picture of a State, which it uses up, into a folder of its own among others; the oldest of them go."""
    seq = state.seq
    done = folder / name_of(seq, at_ms)
    part = folder / f"{done.name}.{os.getpid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    try:
        part.mkdir(mode=0o700)
        _write(state, store, part)
        pass_time(state, at_ms)
        told = Told(used_in(state), spent_in(state), reservations_in(state))
        part.joinpath(TOLD).write_bytes(msgspec.json.encode(told))
        write_outlook(part, outlook(state, Loads(), at_ms))
        _complete(part / FILE, store, seq, at_ms)
        part.rename(done)
    except OSError:
        # Another question has drawn it meanwhile, or the disk is full, which is found out by who looks.
        shutil.rmtree(part, ignore_errors=True)
    _drop_oldest(folder)
    return done


def _write(state: State, store: Path, part: Path) -> None:
    """Writes what the State tells."""
    engine = create_engine(sqlite_url(part / FILE))
    event.listen(engine, "connect", lambda connection, _: _wait_for_no_disk(connection))
    metadata.create_all(engine)
    with engine.begin() as connection:
        write_cluster(connection, state, _placement_of(store))
        View(state).write_all(connection, dict.fromkeys(state.jobs, -1))
    engine.dispose()


def name_of(seq: int, at_ms: int) -> str:
    """The folder of a picture: what queues have spent grows also between two records."""
    return f"{seq}-{at_ms}"


def _placement_of(store: Path) -> str:
    with closing(sqlite3.connect(store)) as present:
        found = present.execute("SELECT value FROM settings WHERE key = 'cluster'").fetchone()
    return str(msgspec.json.decode(found[0]).get("placement", "")) if found else ""


def _complete(picture: Path, store: Path, seq: int, at_ms: int) -> None:
    with closing(sqlite3.connect(picture)) as file:
        _wait_for_no_disk(file)
        file.execute("ATTACH DATABASE ? AS past", (str(store),))
        with file:
            for statement in COMPLETED:
                file.execute(statement, {"seq": seq, "at_ms": at_ms})
    with picture.open("rb") as written:
        os.fsync(written.fileno())


def _wait_for_no_disk(connection: sqlite3.Connection) -> None:
    """A picture counts once it is whole and has its name, so it is waited for the disk once, at its end."""
    connection.execute("PRAGMA journal_mode=OFF")
    connection.execute("PRAGMA synchronous=OFF")


def _drop_oldest(folder: Path) -> None:
    newest_first = sorted(folder.iterdir(), key=lambda each: each.stat().st_mtime, reverse=True)
    for each in newest_first[KEPT:]:
        shutil.rmtree(each, ignore_errors=True)
