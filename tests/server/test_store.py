"""The store: what is written is there, what cannot be written is told, and a restart finds everything."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Connection, delete, insert, select, text

from builders import a_job, everything, random_arrivals, random_cluster, random_run
from phalanx.cluster.cluster import flat
from phalanx.engine.fold.apply import apply
from phalanx.engine.fold.snapshot import dump
from phalanx.engine.state.state import State
from phalanx.engine.turn import record, turn
from phalanx.protocol.event import ClusterDefined, JobSubmitted
from phalanx.server.accounts.ledger import account_of_digest, change
from phalanx.server.loop.journal_writer import JournalWriter
from phalanx.server.loop.wire import AddToken, PutUser
from phalanx.server.store import jobs as job_table
from phalanx.server.store import journal as journal_store
from phalanx.server.store import snapshots
from phalanx.server.store.database import Database, FullStoreError, StoreError, open_database, open_reader, sqlite_url
from phalanx.server.store.migrations import MIGRATIONS, NewerStoreError, version_of
from phalanx.server.store.recovery import recover
from phalanx.server.store.tables import attempts, jobs, journal, settings, snapshot_parts, tokens, users
from phalanx.server.view.cluster import write_cluster
from phalanx.simulate.run import Run


@pytest.fixture
def url(tmp_path: Path) -> str:
    return sqlite_url(tmp_path / "store.db")


class Kept:
    """A State whose records are in a store."""

    def __init__(self, url: str, policy: str = "priority") -> None:
        self.database = open_database(url)
        self.state = State()
        self.book = JournalWriter(self.state)
        record(self.state, self.book.journal, ClusterDefined(random_cluster(), policy), 0)
        with self.database.writing() as connection:
            write_cluster(connection, self.state, "topology")
            self.book.write(connection)

    def write(self) -> None:
        with self.database.writing() as connection:
            self.book.write(connection)

    def live(self, count: int, seed: int = 3) -> None:
        for now, event in random_arrivals(seed, count):
            turn(self.state, self.book.journal, [event], now)
            self.write()


def recovered(database: Database) -> State:
    with database.reading() as connection:
        return recover(connection, database.url)


def replayed(database: Database, run: Run) -> Iterator[State]:
    """Writes the records of a run one by one; the State after each."""
    state = State()
    book = JournalWriter(state)
    for entry, line in zip(run.journal.records, run.journal.lines(), strict=True):
        apply(state, entry, line)
        book.journal.append(entry, line)
        with database.writing() as connection:
            if entry.seq == 0:
                write_cluster(connection, state, "topology")
            book.write(connection)
        yield state


def test_a_new_store_has_the_newest_version_and_is_empty(url: str) -> None:
    database = open_database(url)
    with database.reading() as connection:
        assert version_of(connection) == len(MIGRATIONS)
    assert recovered(database).seq == -1


def test_a_store_that_is_opened_again_is_left_as_it_is(url: str) -> None:
    open_database(url).close()
    database = open_database(url)
    with database.writing() as connection:
        connection.execute(insert(settings).values(key="k", value=b"v"))
    database.close()
    with open_database(url).reading() as connection:
        assert connection.execute(select(settings.c.value)).scalar() == b"v"


def test_a_store_of_an_older_release_is_brought_up_to_date_and_keeps_what_it_has(url: str) -> None:
    database = open_database(url)
    with database.writing() as connection:
        connection.execute(text("ALTER TABLE users DROP COLUMN unix_user"))
        connection.execute(text("INSERT INTO users (name, disabled, created_ms) VALUES ('ada', false, 7)"))
        connection.execute(text("UPDATE store_version SET version = 1"))
    database.close()
    with open_database(url).reading() as connection:
        assert version_of(connection) == len(MIGRATIONS)
        assert connection.execute(select(users.c.name, users.c.unix_user)).all() == [("ada", "")]


def test_tokens_of_an_older_release_have_no_parent_and_stay_valid(url: str) -> None:
    database = open_database(url)
    with database.writing() as connection:
        change(connection, PutUser("ada", new=True), 7)
        change(connection, AddToken("0123456789ab", "ada", "old", "digest", "read"), 7)
        connection.execute(text("DROP INDEX tokens_by_parent"))
        connection.execute(text("ALTER TABLE tokens DROP COLUMN parent"))
        connection.execute(text("UPDATE store_version SET version = 3"))
    database.close()
    database = open_database(url)
    with database.writing() as connection:
        change(connection, AddToken("ba9876543210", "ada", "new", "another", "read", parent="0123456789ab"), 8)
        assert connection.execute(select(tokens.c.parent).order_by(tokens.c.id)).scalars().all() == [
            None,
            "0123456789ab",
        ]
        assert account_of_digest(connection, "digest", 9) is not None
        assert account_of_digest(connection, "another", 9) is not None
    database.close()


def test_attempts_of_an_older_release_stay_and_what_was_lost_with_them_is_not_known(url: str) -> None:
    database = open_database(url)
    with database.writing() as connection:
        for column in ("step", "durable_step", "lost_ms", "lost_gpu_ms"):
            connection.execute(text(f"ALTER TABLE attempts DROP COLUMN {column}"))
        connection.execute(
            text(
                "INSERT INTO attempts (job, number, phase, created_ms, reason, nodes, slots)"
                " VALUES ('1', 1, 'ended', 7, 'preempted', '[]', '[]')"
            )
        )
        connection.execute(text("UPDATE store_version SET version = 6"))
    database.close()
    database = open_database(url)
    with database.reading() as connection:
        assert version_of(connection) == len(MIGRATIONS)
        assert [(each["number"], each["lost_ms"]) for each in job_table.attempts_of(connection, "1")] == [(1, None)]
    database.close()


def test_jobs_of_an_older_release_have_the_gpu_time_of_their_last_size(url: str) -> None:
    database = open_database(url)
    for _ in replayed(database, random_run(5, 60)):
        pass
    with database.writing() as connection:
        connection.execute(text("DROP TABLE attempt_sizes"))
        connection.execute(text("ALTER TABLE jobs DROP COLUMN executed_before_gpu_ms"))
        connection.execute(text("UPDATE store_version SET version = 11"))
    database.close()
    database = open_database(url)
    with database.reading() as connection:
        found = connection.execute(text("SELECT gpus, executed_before_ms, executed_before_gpu_ms FROM jobs")).all()
    assert any(row.executed_before_gpu_ms for row in found)
    assert all(row.executed_before_gpu_ms == row.gpus * row.executed_before_ms for row in found)
    database.close()


def test_a_store_of_a_newer_release_is_refused(url: str) -> None:
    database = open_database(url)
    with database.writing() as connection:
        connection.execute(text("UPDATE store_version SET version = 99"))
    database.close()
    with pytest.raises(NewerStoreError, match="version 99"):
        open_database(url)


def test_a_store_is_durable_at_every_commit(url: str) -> None:
    database = open_database(url)
    with database.writing() as connection:
        assert connection.execute(text("PRAGMA journal_mode")).scalar() == "wal"
        assert connection.execute(text("PRAGMA synchronous")).scalar() == 2, "FULL"


def test_who_only_reads_cannot_write(url: str) -> None:
    open_database(url).close()
    reader = open_reader(url)
    with pytest.raises(StoreError, match="readonly"), reader.writing() as connection:
        connection.execute(insert(settings).values(key="k", value=b"v"))


def test_the_state_is_recovered_from_the_journal_alone(url: str) -> None:
    kept = Kept(url)
    kept.live(60)
    assert everything(recovered(kept.database)) == everything(kept.state)


def test_a_journal_that_is_read_in_many_pieces_is_read_to_its_end(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_store, "ENTRIES_BYTES_MAX", 1_000)
    kept = Kept(url)
    kept.live(60)
    assert everything(recovered(kept.database)) == everything(kept.state)


def test_the_state_is_recovered_from_a_snapshot_and_the_journal_behind_it(url: str) -> None:
    kept = Kept(url)
    kept.live(40)
    snapshots.write(kept.database, kept.state, dump(kept.state))
    turn(kept.state, kept.book.journal, [JobSubmitted(a_job("late"))], kept.state.now + 5)
    kept.write()
    with kept.database.writing() as connection:
        # Without these records only the snapshot can tell what happened.
        connection.execute(delete(journal).where(journal.c.seq < 10))
    assert everything(recovered(kept.database)) == everything(kept.state)


def test_a_torn_snapshot_costs_nothing_but_time(url: str) -> None:
    kept = Kept(url)
    kept.live(40)
    snapshots.write(kept.database, kept.state, dump(kept.state))
    with kept.database.writing() as connection:
        connection.execute(snapshot_parts.update().values(content=b"torn"))
    assert everything(recovered(kept.database)) == everything(kept.state)


def test_only_the_newest_snapshots_are_kept(url: str) -> None:
    kept = Kept(url)
    for number in range(4):
        turn(kept.state, kept.book.journal, [JobSubmitted(a_job(f"s{number}"))], number)
        kept.write()
        snapshots.write(kept.database, kept.state, dump(kept.state))
    with kept.database.reading() as connection:
        seqs = [each.seq for each in snapshots.newest_first(connection)]
        parts = connection.execute(select(snapshot_parts.c.seq).distinct()).scalars().all()
    assert len(seqs) == snapshots.KEPT
    assert seqs[0] == kept.state.seq
    assert sorted(parts) == sorted(seqs)


def test_a_large_snapshot_comes_in_parts(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots, "PART_BYTES", 100)
    kept = Kept(url)
    kept.live(20)
    snapshots.write(kept.database, kept.state, dump(kept.state))
    with kept.database.reading() as connection:
        newest = snapshots.newest_first(connection)[0]
        assert newest.parts > 5
        assert snapshots.content_of(connection, newest) == dump(kept.state)


def test_a_full_disk_is_told_as_such_and_leaves_what_was_durable(url: str) -> None:
    kept = Kept(url)
    kept.live(10)
    durable = kept.state.seq
    with kept.database.reading() as connection:
        pages = connection.execute(text("PRAGMA page_count")).scalar()
        connection.execute(text(f"PRAGMA max_page_count={pages}"))
    for number in range(200):
        record(kept.state, kept.book.journal, JobSubmitted(a_job(f"new{number}")), kept.state.now)
    with pytest.raises(FullStoreError, match="make room"):
        kept.write()
    assert recovered(open_reader(url)).seq == durable


def test_a_damaged_store_is_told_as_such(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    path.write_bytes(b"this is no database at all" * 400)
    with pytest.raises(StoreError, match="damaged"):
        open_database(sqlite_url(path))


def test_a_journal_with_a_hole_is_not_folded(url: str) -> None:
    kept = Kept(url)
    kept.live(10)
    with kept.database.writing() as connection:
        connection.execute(delete(journal).where(journal.c.seq == 5))
    with pytest.raises(StoreError, match="after record 4"):
        recovered(kept.database)


def test_an_address_that_is_no_database_is_refused() -> None:
    with pytest.raises(StoreError, match="SQLite or PostgreSQL"):
        open_database("nonsense://x")


def test_the_view_tells_what_the_state_knows(url: str) -> None:
    kept = Kept(url)
    kept.live(120, seed=11)
    with kept.database.reading() as connection:
        rows = {row.id: row for row in connection.execute(select(jobs))}
    assert list(rows) == list(kept.state.jobs)
    for job, known in kept.state.jobs.items():
        assert rows[job].state == known.state.value, job
        assert rows[job].attempts == known.attempts, job
        assert rows[job].preemptions == known.preemptions, job
        assert rows[job].started_ms == known.first_start_ms, job
        assert rows[job].ended_ms == known.ended_ms, job


def test_the_view_tells_how_long_a_job_has_run_over_all_its_attempts(url: str) -> None:
    database = open_database(url)
    was_preempted = was_run_again = False
    for state in replayed(database, random_run(5, 60)):
        with database.reading() as connection:
            assert _running_times(connection) == _running_times_of(state)
        ran_before = [known for known in state.jobs.values() if known.executed_before_ms and known.final is None]
        was_preempted |= any(known.attempt is None for known in ran_before)
        was_run_again |= any(known.running_since_ms is not None for known in ran_before)
    assert was_preempted
    assert was_run_again


def test_a_store_of_a_release_without_running_times_has_them_from_its_attempts(url: str) -> None:
    database = open_database(url)
    for state in replayed(database, random_run(5, 60)):
        if sum(known.executed_before_ms > 0 and known.final is None for known in state.jobs.values()) > 2:
            break
    with database.writing() as connection:
        connection.execute(text("ALTER TABLE jobs DROP COLUMN running_since_ms"))
        connection.execute(text("ALTER TABLE jobs DROP COLUMN executed_before_ms"))
        connection.execute(text("UPDATE store_version SET version = 2"))
    database.close()
    with open_database(url).reading() as connection:
        assert _running_times(connection) == _running_times_of(state)
    assert any(known.running_since_ms is not None for known in state.jobs.values())
    assert any(known.executed_before_ms and known.final is None for known in state.jobs.values())


def _running_times(connection: Connection) -> dict[str, tuple[int | None, int]]:
    return {row.id: (row.running_since_ms, row.executed_before_ms) for row in connection.execute(select(jobs))}


def _running_times_of(state: State) -> dict[str, tuple[int | None, int]]:
    return {job: (known.running_since_ms, known.executed_before_ms) for job, known in state.jobs.items()}


@pytest.mark.parametrize("policy", ["fifo", "priority", "srtf"])
def test_the_view_tells_the_reason_that_the_state_does(url: str, policy: str) -> None:
    from phalanx.protocol.event import PolicyChanged

    kept = Kept(url, policy)
    for round_, (now, event) in enumerate(random_arrivals(23, 120)):
        turn(kept.state, kept.book.journal, [event], now)
        if round_ == 60:
            turn(kept.state, kept.book.journal, [PolicyChanged("priority" if policy == "fifo" else "fifo")], now)
        kept.write()
        if round_ % 20 == 19:
            with kept.database.reading() as connection:
                told = {job: found["reason"] for job in kept.state.jobs if (found := job_table.one(connection, job))}
            assert told == {
                job: reason and reason.value for job in kept.state.jobs for reason in [kept.state.reason(job)]
            }


def test_a_finished_run_replayed_into_the_view_ends_all_attempts(url: str) -> None:
    database = open_database(url)
    *_, state = replayed(database, random_run(5, 40))
    with database.reading() as connection:
        found = connection.execute(select(attempts)).all()
        states = {row.id: row.state for row in connection.execute(select(jobs.c.id, jobs.c.state))}
    assert len(found) == sum(each.attempts for each in state.jobs.values())
    assert {row.phase for row in found if state.jobs[row.job].final is not None} == {"ended"}
    assert all(row.outcome for row in found if row.phase == "ended")
    assert states == {job: each.state.value for job, each in state.jobs.items()}


def test_a_flat_cluster_has_its_nodes_in_the_view(url: str) -> None:
    database = open_database(url)
    state = State()
    book = JournalWriter(state)
    record(state, book.journal, ClusterDefined(flat(3, 8), "fifo"), 0)
    turn(state, book.journal, [JobSubmitted(a_job("a", gpus=8))], 1)
    with database.writing() as connection:
        write_cluster(connection, state, "topology")
        book.write(connection)
    from phalanx.server.store import nodes

    with database.reading() as connection:
        assert nodes.gpus_used(connection) == 8
        assert [node["name"] for node in nodes.page(connection, None, 2)] == ["n0", "n1"]
