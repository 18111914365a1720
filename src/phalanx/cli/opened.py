"""What `phalanx view` opens: a journal in whatever it was saved, with its name and the moment of its last record."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from phalanx.cli.files import FileError
from phalanx.cli.saved import JOURNAL, START, Kind, kind_of, last_line, records_from, run_from, snapshot_from, start_of
from phalanx.engine.state.journal import Count, Journal, Record, decode
from phalanx.engine.state.state import State
from phalanx.server.past.filling import Source

STORE = "phalanx.db"
"""What a server's data folder has its journal in."""

_NOW = re.compile(rb'"now":(\d+)')


def opened(path: str) -> Source:
    """The journal of a file or folder."""
    name = os.path.basename(os.path.abspath(path))
    if os.path.isdir(path):
        return _of_folder(Path(path), name)
    match kind_of(path):
        case Kind.RUN:
            return _of_run(path, name)
        case Kind.SNAPSHOT:
            state = snapshot_from(path)
            return Source(name, state, (), state.now)
        case _:
            return Source(name, start_of(path), records_from(path), _moment_of(last_line(path)))


def _of_folder(folder: Path, name: str) -> Source:
    """A bundle that was unpacked, or the data of a server that may still run."""
    if (folder / STORE).is_file():
        return _of_store(folder / STORE, name)
    if not (folder / JOURNAL).is_file():
        raise FileError(f"{folder}: expected {JOURNAL} of an unpacked bundle or {STORE} of a server in it")
    start = snapshot_from(str(folder / START)) if (folder / START).is_file() else State()
    path = str(folder / JOURNAL)
    return Source(name, start, records_from(path), _moment_of(last_line(path)))


def _of_store(path: Path, name: str) -> Source:
    from phalanx.server.store.database import open_reader, sqlite_url
    from phalanx.server.store.journal import entries, lines_after, newest_seq

    database = open_reader(sqlite_url(path.absolute()))

    def records() -> Iterator[tuple[Record, bytes]]:
        with database.reading() as connection:
            for line in lines_after(connection, -1):
                try:
                    yield decode(line), line
                except ValueError as error:
                    raise FileError(f"{path}: {error}") from error

    with database.reading() as connection:
        newest = newest_seq(connection)
        last = entries(connection, newest - 1)
    return Source(name, State(), records(), last[0].now_ms if last else 0)


def _of_run(path: str, name: str) -> Source:
    simulation = run_from(path)
    journal: Journal = simulation.run.journal
    if isinstance(journal, Count):
        raise FileError(f"{path}: it was saved by a run without --journal, so its records are not in it")
    records = ((decode(line), line) for line in journal.lines())
    return Source(name, State(), records, simulation.run.state.now)


def _moment_of(line: bytes) -> int:
    found = _NOW.search(line[:64])
    return int(found[1]) if found else 0
