"""The snapshotter: the State is written down while the loop goes on."""

from __future__ import annotations

from pathlib import Path

import pytest
from running import eventually

from builders import a_job, everything
from phalanx.cluster.cluster import flat
from phalanx.engine.state.state import State
from phalanx.engine.turn import record, turn
from phalanx.protocol.event import ClusterDefined, JobSubmitted
from phalanx.server.loop import snapshotter as room
from phalanx.server.loop.journal_writer import JournalWriter
from phalanx.server.loop.snapshotter import Snapshotter
from phalanx.server.store.database import open_database, sqlite_url
from phalanx.server.store.recovery import recover
from phalanx.server.store.snapshots import newest_first


def test_a_snapshot_is_taken_after_many_records_and_the_loop_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "EVERY_RECORDS", 10)
    url = sqlite_url(tmp_path / "store.db")
    database = open_database(url)
    state, told = State(), []
    book = JournalWriter(state)
    record(state, book.journal, ClusterDefined(flat(2, 8), "fifo"), 0)
    snapshotter = Snapshotter(url, -1, lambda: None, told.append)
    for number in range(30):
        turn(state, book.journal, [JobSubmitted(a_job(str(number)))], number)
        with database.writing() as connection:
            book.write(connection)
        snapshotter.look_after(state)

    def taken() -> bool:
        snapshotter.look_after(state)
        with database.reading() as connection:
            return bool(newest_first(connection))

    eventually(taken)
    assert told == []
    with database.reading() as connection:
        assert newest_first(connection)[0].seq < state.seq, "records were made while it was taken"
        assert everything(recover(connection, url)) == everything(state)


def test_a_snapshot_that_fails_is_told_and_tried_again_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "EVERY_RECORDS", 1)
    told: list[str] = []
    snapshotter = Snapshotter(f"sqlite:///{tmp_path}/nowhere/store.db", -1, lambda: None, told.append)
    state = State()
    snapshotter.begin(state)
    state.seq = 5

    def failed() -> bool:
        snapshotter.look_after(state)
        return any("failed" in line for line in told)

    eventually(failed)
