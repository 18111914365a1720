"""Moments: States along a journal, kept in files, so that the State of any moment is soon there.

The journal is cut into stretches of equal length, and of each one State is kept, so a question folds less than two of
them. A journal that has grown beyond `KEPT_MAX` stretches, or whose States take more than `BYTES_MAX`, gets stretches
twice as long: then every other file goes.
"""

from __future__ import annotations

import os
from contextlib import suppress
from itertools import islice
from pathlib import Path

from sqlalchemy import Connection

from phalanx.engine.fold.apply import apply
from phalanx.engine.fold.snapshot import HEADER_BYTES_MAX, SnapshotError, dump, is_of_this_release, load
from phalanx.engine.state.journal import decode
from phalanx.engine.state.state import State
from phalanx.server.store.database import DamagedStoreError, Database
from phalanx.server.store.journal import first_seq, lines_after
from phalanx.server.store.snapshots import content_of, newest_first

STRETCH_RECORDS = 4_000
"""Folding so many takes about half a second, and reading a State of 20,000 jobs a quarter."""

KEPT_MAX = 256
BYTES_MAX = 1 << 30
"""What all files may take."""

END = ".state"
STATES, PICTURES = "past", "pictures"
"""Folders of the data folder. All that is in them is made anew where it is missing."""


class Moments:
    """The States that are kept in a folder, each named by its last record."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._seqs: list[int] = []
        self.stretch = STRETCH_RECORDS
        self.look()

    def look(self) -> None:
        """Sees what is kept: other processes keep States, too."""
        sizes: dict[int, int] = {}
        for path in self._folder.glob(f"*{END}"):
            with suppress(OSError, ValueError):
                sizes[int(path.stem)] = path.stat().st_size
        self._seqs = sorted(sizes)
        self.stretch = _stretch(self._seqs[-1], max(sizes.values())) if sizes else STRETCH_RECORDS

    def keep(self, state: State) -> None:
        """Keeps a State. Where that cannot be written, the next question takes longer, and nothing else."""
        path = self._folder / f"{state.seq}{END}"
        part = path.with_suffix(f".{os.getpid()}")
        with suppress(OSError):
            self._folder.mkdir(mode=0o700, exist_ok=True)
            part.write_bytes(dump(state))
            part.replace(path)
        self.look()
        self._drop_beyond()

    def is_due(self, seq: int, last_kept: int) -> bool:
        """Whether the State after a record should be kept, on the way from the one that was kept last."""
        return seq - last_kept >= self.stretch

    def missing(self, first: int, newest: int) -> int | None:
        """The first record whose State is to be kept, of a journal from `first` to `newest`: one that begins a stretch
        of which none is kept.
        """
        kept = {seq // self.stretch for seq in self._seqs}
        wanted = range(max(first, 0) // self.stretch + 1, newest // self.stretch + 1)
        return next((number * self.stretch for number in wanted if number not in kept), None)

    def up_to(self, seq: int) -> list[int]:
        """The records up to one whose States are kept, the newest first."""
        return [each for each in reversed(self._seqs) if each <= seq]

    def load(self, seq: int) -> State | None:
        """A State that is kept. One that cannot be read is dropped."""
        path = self._folder / f"{seq}{END}"
        try:
            return load(path.read_bytes())
        except (SnapshotError, OSError):
            with suppress(OSError):
                path.unlink()
            return None

    def tidy(self) -> None:
        """Removes what another release kept, and what killed processes left half written. No other may be writing."""
        for path in self._folder.glob("*"):
            with suppress(OSError), path.open("rb") as file:
                if path.suffix != END or not is_of_this_release(file.read(HEADER_BYTES_MAX)):
                    path.unlink()
        self.look()

    def _drop_beyond(self) -> None:
        """Leaves the first State of each stretch: a journal that begins in the midst begins with it."""
        kept: set[int] = set()
        for seq in self._seqs:
            if seq // self.stretch in kept:
                with suppress(OSError):
                    (self._folder / f"{seq}{END}").unlink()
            kept.add(seq // self.stretch)
        self._seqs = [seq for seq in self._seqs if (self._folder / f"{seq}{END}").exists()]


def keep_missing(database: Database, moments: Moments, newest: int) -> None:
    """Keeps the States that are missing along a journal, from its first record on, by folding it."""
    state: State | None = None
    with database.reading() as connection:
        first = first_seq(connection)
    while (seq := moments.missing(first, newest)) is not None:
        with database.reading() as connection:
            nearest = max(moments.up_to(seq), default=-1)
            if state is None or state.seq < nearest:
                state = _nearest(connection, moments, seq)
            fold_to(connection, state, seq, database.url)
        moments.keep(state)
        if moments.missing(first, newest) == seq:
            # It cannot be written.
            return


def state_after(connection: Connection, moments: Moments, seq: int, url: str) -> State:
    """The State after a record."""
    state = _nearest(connection, moments, seq)
    kept = state.seq
    while state.seq < seq:
        fold_to(connection, state, min(kept + moments.stretch, seq), url)
        if moments.is_due(state.seq, kept):
            moments.keep(state)
            kept = state.seq
    return state


def fold_to(connection: Connection, state: State, seq: int, url: str) -> None:
    """Folds in what follows a State, up to a record."""
    for line in islice(lines_after(connection, state.seq), max(seq - state.seq, 0)):
        try:
            apply(state, decode(line), line)
        except Exception as error:
            raise DamagedStoreError(
                url, f"the journal cannot be folded after record {state.seq}: {type(error).__name__}: {error}"
            ) from error


def _nearest(connection: Connection, moments: Moments, seq: int) -> State:
    """The newest State up to a record that is kept, as a file or as a snapshot of the store."""
    snapshots = {each.seq: each for each in newest_first(connection) if each.seq <= seq}
    for each in sorted({*snapshots, *moments.up_to(seq)}, reverse=True):
        state = moments.load(each)
        if state is None and each in snapshots:
            with suppress(SnapshotError):
                state = load(content_of(connection, snapshots[each]))
        if state is not None:
            return state
    return State()


def _stretch(newest: int, bytes_of_one: int) -> int:
    stretch = STRETCH_RECORDS
    while newest // stretch > min(KEPT_MAX, max(BYTES_MAX // bytes_of_one, 1)):
        stretch *= 2
    return stretch
