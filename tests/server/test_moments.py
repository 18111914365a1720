"""Moments: the State after any record is that of a plain fold, and soon there, whatever is kept."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from running import eventually

from builders import everything, random_run
from phalanx.engine.fold import snapshot
from phalanx.engine.fold.apply import apply
from phalanx.engine.state.journal import Record, encode
from phalanx.engine.state.state import State
from phalanx.server.options import Options
from phalanx.server.past import moments as files
from phalanx.server.past.moments import END, STATES, Moments, keep_missing, state_after
from phalanx.server.planner.past_keeper import PastKeeper
from phalanx.server.store import snapshots
from phalanx.server.store.database import Database, open_database, sqlite_url
from phalanx.server.store.journal import StoredJournal

STRETCH = 10


@pytest.fixture(autouse=True)
def _short_stretches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "STRETCH_RECORDS", STRETCH)


@pytest.fixture(scope="module")
def records() -> list[Record]:
    return random_run(7, 60, "priority").journal.records


@pytest.fixture
def database(tmp_path: Path, records: list[Record]) -> Iterator[Database]:
    """A store with the journal of a run."""
    database = open_database(sqlite_url(tmp_path / "phalanx.db"))
    journal = StoredJournal()
    for record in records:
        journal.append(record, encode(record))
    with database.writing() as connection:
        journal.flush(connection)
    yield database
    database.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where States are kept."""
    return tmp_path / STATES


def folded(records: list[Record], seq: int) -> State:
    """The reference: the journal folded from its first record to one."""
    state = State()
    for record in records[: seq + 1]:
        apply(state, record, encode(record))
    return state


def found(database: Database, folder: Path, seq: int) -> State:
    """The State after a record, by what is kept in a folder."""
    with database.reading() as connection:
        return state_after(connection, Moments(folder), seq, database.url)


def kept(folder: Path) -> list[int]:
    """The records whose States are kept."""
    return sorted(int(path.stem) for path in folder.glob(f"*{END}"))


def test_the_state_after_any_record_is_that_of_a_plain_fold(
    database: Database, records: list[Record], tmp_path: Path, folder: Path
) -> None:
    keep_missing(database, Moments(folder), len(records) - 1)
    for seq in range(0, len(records), 7):
        expected = everything(folded(records, seq))
        assert everything(found(database, folder, seq)) == expected
        assert everything(found(database, tmp_path / f"none before {seq}", seq)) == expected


def test_of_each_stretch_of_a_journal_one_state_is_kept(
    database: Database, records: list[Record], folder: Path
) -> None:
    keep_missing(database, Moments(folder), len(records) - 1)
    assert kept(folder) == list(range(STRETCH, len(records), STRETCH))


def test_what_is_missing_in_between_is_made_again(database: Database, records: list[Record], folder: Path) -> None:
    keep_missing(database, Moments(folder), len(records) - 1)
    all_kept = kept(folder)
    for seq in all_kept[1:3] + all_kept[-1:]:
        (folder / f"{seq}{END}").unlink()
    keep_missing(database, Moments(folder), len(records) - 1)
    assert kept(folder) == all_kept


def test_a_long_journal_gets_longer_stretches_and_no_more_files(
    database: Database, records: list[Record], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "KEPT_MAX", 4)
    moments = Moments(folder)
    keep_missing(database, moments, len(records) - 1)
    seqs = kept(folder)
    assert moments.stretch > STRETCH
    assert len(seqs) <= 4 + 1
    assert max(later - earlier for earlier, later in zip([0, *seqs], [*seqs, len(records)], strict=True)) < (
        2 * moments.stretch
    )


def test_states_that_take_much_of_the_disk_get_longer_stretches(
    database: Database, records: list[Record], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "BYTES_MAX", 40_000)
    keep_missing(database, Moments(folder), len(records) - 1)
    largest = max(path.stat().st_size for path in folder.glob(f"*{END}"))
    assert sum(path.stat().st_size for path in folder.glob(f"*{END}")) <= 40_000 + largest
    assert len(kept(folder)) > 1


def test_a_snapshot_of_the_store_is_begun_at_where_it_is_nearest(
    database: Database, records: list[Record], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = folded(records, 55)
    snapshots.write(database, state, snapshot.dump(state))
    begun: list[int] = []
    fold_to = files.fold_to

    def noting(connection: object, state: State, seq: int, url: str) -> None:
        begun.append(state.seq)
        fold_to(connection, state, seq, url)  # type: ignore[arg-type]

    monkeypatch.setattr(files, "fold_to", noting)
    assert everything(found(database, folder, 58)) == everything(folded(records, 58))
    assert begun == [55]


def test_what_is_torn_or_of_another_release_is_dropped(
    database: Database, records: list[Record], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep_missing(database, Moments(folder), len(records) - 1)
    newest = folder / f"{kept(folder)[-1]}{END}"
    newest.write_bytes(newest.read_bytes()[:-20])
    last = len(records) - 1
    assert everything(found(database, folder, last)) == everything(folded(records, last))
    assert snapshot.load(newest.read_bytes()).seq == int(newest.stem), "it was made anew"
    (folder / "70.4711").write_bytes(b"half of one")
    monkeypatch.setattr(snapshot, "form", lambda: "another")
    Moments(folder).tidy()
    assert list(folder.iterdir()) == []


def test_a_folder_that_cannot_be_written_costs_time_and_nothing_else(
    database: Database, records: list[Record], folder: Path
) -> None:
    folder.touch()
    keep_missing(database, Moments(folder), len(records) - 1)
    assert everything(found(database, folder, 42)) == everything(folded(records, 42))


def test_copies_of_the_planner_keep_states_as_the_journal_grows(
    database: Database, records: list[Record], tmp_path: Path, folder: Path
) -> None:
    keeper = PastKeeper(database, Options(data=str(tmp_path)))
    state = State()

    def is_kept(number: int) -> bool:
        keeper.look_after(state)
        return len(kept(folder)) == number

    for record in records[:45]:
        apply(state, record, encode(record))
        if (state.seq + 1) % STRETCH == 5 and state.seq > STRETCH:
            eventually(lambda: is_kept(state.seq // STRETCH))
    assert kept(folder) == [14, 24, 34, 44]
    assert everything(found(database, folder, 40)) == everything(folded(records, 40))


def test_copies_of_the_planner_make_up_for_a_journal_that_is_older(
    database: Database, records: list[Record], tmp_path: Path, folder: Path
) -> None:
    keeper = PastKeeper(database, Options(data=str(tmp_path)))
    state = folded(records, len(records) - 1)

    def is_kept() -> bool:
        keeper.look_after(state)
        return kept(folder) == list(range(STRETCH, len(records), STRETCH))

    eventually(is_kept)
