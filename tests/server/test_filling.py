"""Filling a store from a journal: how far it is, and that each State along it is soon there."""

from __future__ import annotations

from pathlib import Path

import pytest

from builders import everything, random_run
from phalanx.engine.state.journal import encode
from phalanx.engine.state.state import State
from phalanx.server.past import filling
from phalanx.server.past import moments as files
from phalanx.server.past.filling import Source, fill
from phalanx.server.past.moments import STATES, Moments, state_after
from phalanx.server.store.database import open_database, sqlite_url


def test_a_long_journal_tells_how_far_it_is_read_and_keeps_states_on_the_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filling, "TOLD_RECORDS", 100)
    monkeypatch.setattr(files, "STRETCH_RECORDS", 50)
    run = random_run(7, 60)
    records = run.journal.records
    told: list[str] = []
    database = open_database(sqlite_url(tmp_path / "phalanx.db"))
    source = Source("j", State(), [(each, encode(each)) for each in records], records[-1].now)
    shown = fill(database, tmp_path, source, told.append)
    assert (shown.first_ms, shown.last_ms) == (records[0].now, records[-1].now)
    assert [line.partition(",")[0] for line in told] == [f"{n} records are read" for n in range(100, len(records), 100)]
    shares = [int(line.split()[-5]) for line in told]
    assert shares == sorted(shares)
    assert 0 < shares[0] < shares[-1] <= 100
    moments = Moments(tmp_path / STATES)
    assert len(moments.up_to(len(records))) == len(records) // 50
    with database.reading() as connection:
        assert everything(state_after(connection, moments, len(records) - 1, database.url)) == everything(run.state)
    database.close()
