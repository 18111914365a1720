"""Moments: States along a journal, kept in files, so that the State of any moment is soon there.

A State is folded from the one before it that is kept. Where none is near, those on the way are kept, and the next
question begins there: never more than one State is in memory, and never more of the journal than a piece.
"""

from __future__ import annotations

import os
from contextlib import suppress
from itertools import islice
from pathlib import Path

from sqlalchemy import Connection

from phalanx.engine.fold.apply import apply
from phalanx.engine.fold.snapshot import SnapshotError, dump, load
from phalanx.engine.state.journal import decode
from phalanx.engine.state.state import State
from phalanx.server.store.database import DamagedStoreError
from phalanx.server.store.journal import lines_after
from phalanx.server.store.snapshots import content_of, newest_first

EVERY_RECORDS = 10_000
"""Folding so many takes about half a second."""

KEPT_MAX = 128
"""Of a journal of more than so many times as many records, they lie further apart."""

FILES_MAX = 512

END = ".state"
STATES, PICTURES = "past", "pictures"
"""Folders of the data folder. All that is in them is made anew where it is missing."""


class Moments:
    """The States that are kept in a folder, each named by its last record."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def keep(self, state: State) -> None:
        """Keeps a State. Where that cannot be written, the next question takes longer, and nothing else."""
        path = self._folder / f"{state.seq}{END}"
        if sum(1 for _ in self._folder.glob(f"*{END}")) >= FILES_MAX:
            return
        part = path.with_suffix(f".{os.getpid()}")
        with suppress(OSError):
            self._folder.mkdir(mode=0o700, exist_ok=True)
            part.write_bytes(dump(state))
            part.replace(path)

    def is_due(self, seq: int, last_kept: int) -> bool:
        """Whether the State after a record should be kept."""
        return seq - last_kept >= max(EVERY_RECORDS, seq // KEPT_MAX)

    def before(self, seq: int) -> State | None:
        """The newest that is kept up to a record. One that cannot be read is dropped."""
        known = sorted((int(path.stem) for path in self._folder.glob(f"*{END}") if path.stem.isdecimal()), reverse=True)
        for each in (each for each in known if each <= seq):
            path = self._folder / f"{each}{END}"
            try:
                return load(path.read_bytes())
            except (SnapshotError, OSError):
                with suppress(OSError):
                    path.unlink()
        return None


def state_after(connection: Connection, moments: Moments, seq: int, url: str) -> State:
    """The State after a record."""
    state = moments.before(seq) or State()
    for snapshot in newest_first(connection):
        if state.seq < snapshot.seq <= seq:
            with suppress(SnapshotError):
                state = load(content_of(connection, snapshot))
                break
    kept = state.seq
    for line in islice(lines_after(connection, state.seq), max(seq - state.seq, 0)):
        try:
            apply(state, decode(line), line)
        except Exception as error:
            raise DamagedStoreError(
                url, f"the journal cannot be folded after record {state.seq}: {type(error).__name__}: {error}"
            ) from error
        if moments.is_due(state.seq, kept):
            moments.keep(state)
            kept = state.seq
    return state
