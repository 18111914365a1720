"""Recovery: the State after the newest durable record, from the newest snapshot and the journal behind it."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sqlalchemy import Connection

from phalanx.engine.fold.apply import apply
from phalanx.engine.fold.snapshot import SnapshotError, load
from phalanx.engine.state.journal import Record, decode
from phalanx.engine.state.state import State
from phalanx.server.store.database import DamagedStoreError
from phalanx.server.store.journal import lines_after
from phalanx.server.store.snapshots import content_of, newest_first


def recover(connection: Connection, url: str) -> State:
    """The State of a store; a fresh State if nothing was ever journaled."""
    with _undisturbed():
        state = _from_snapshot(connection) or State()
        catch_up(connection, state, url)
    return state


def catch_up(connection: Connection, state: State, url: str, note: Callable[[Record], None] | None = None) -> None:
    """Folds in the records that follow a State; `note` is told of each."""
    for line in lines_after(connection, state.seq):
        try:
            found = decode(line)
            apply(state, found, line)
        except Exception as error:
            # Every record was folded once before it was written: what cannot be folded again is not what was written.
            raise DamagedStoreError(
                url, f"the journal cannot be folded after record {state.seq}: {type(error).__name__}: {error}"
            ) from error
        if note is not None:
            note(found)


def _from_snapshot(connection: Connection) -> State | None:
    """The newest that can be read. One of another release, or a torn one, costs time and nothing else."""
    for snapshot in newest_first(connection):
        try:
            state = load(content_of(connection, snapshot))
        except SnapshotError:
            continue
        if str(state.digest) == snapshot.digest and state.seq == snapshot.seq:
            return state
    return None


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Nothing of a State that is being built is garbage: looking for some takes longer than building it."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
        gc.freeze()
