"""Filling a store: a journal that is read elsewhere becomes a store that the page can be shown from.

Every record is folded once, and written with its view as the loop would have done it. There is never more of it in
memory than the State.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from sqlalchemy import Connection

from phalanx.engine.fold.apply import apply
from phalanx.engine.fold.snapshot import dump
from phalanx.engine.state.journal import Record, decode, encode
from phalanx.engine.state.state import State
from phalanx.errors import PhalanxError
from phalanx.protocol.event import JobSubmitted
from phalanx.server.figures.loads import Loads
from phalanx.server.figures.sample import sample, sample_jobs
from phalanx.server.figures.series import FILE, STEP_MS, SeriesWriter
from phalanx.server.hidden_env import line_without_values
from phalanx.server.loop.journal_writer import JournalWriter
from phalanx.server.options import Shown
from phalanx.server.past.moments import STATES, Moments
from phalanx.server.store import snapshots
from phalanx.server.store.bulk import Bulk
from phalanx.server.store.database import Database
from phalanx.server.store.tables import journal

RECORDS_AT_ONCE = 2_000
"""Records of one transaction: each costs a wait for the disk."""

TOLD_RECORDS = 10_000
"""Records after which it is told how far the reading is."""

HALF_HOUR_MS = 1_800_000
KEPT_MS = 31 * 24 * 3_600_000
NODES_KEPT_MS = 24 * 3_600_000
"""How far back figures are kept, and those of nodes."""

STEPS_MS = ((4 * 3_600_000, STEP_MS), (48 * 3_600_000, 120_000))
"""How often figures are taken of a journal that is so long at most; of a longer one every half hour."""

EARLIER = Bulk(journal)


class FillError(PhalanxError):
    """A journal that cannot be folded."""


class Source(NamedTuple):
    """A journal to be shown: its name, the State before its first record, its records with their lines, and the moment
    of its last record as far as that is known beforehand.
    """

    name: str
    start: State
    records: Iterable[tuple[Record, bytes]]
    last_ms: int


class Figures:
    """Figures over the time of a journal, as the planner would have taken them."""

    def __init__(self, folder: Path, first_ms: int, last_ms: int) -> None:
        span_ms = last_ms - first_ms
        self._step_ms = next((step_ms for most_ms, step_ms in STEPS_MS if span_ms <= most_ms), HALF_HOUR_MS)
        self._loads = Loads()
        self._series = SeriesWriter(folder / FILE)
        self._due_ms = max(first_ms, last_ms - KEPT_MS)
        self._nodes_since_ms = last_ms - NODES_KEPT_MS

    def pass_to(self, state: State, now_ms: int) -> None:
        """Takes the figures that are due before a moment, up to which nothing has changed."""
        while self._due_ms < now_ms:
            running = {attempt.job.id for attempt in state.attempts_present()}
            self._loads.keep(running)
            with_nodes = self._due_ms >= self._nodes_since_ms
            found = (each for each in sample(state, self._loads) if with_nodes or not each[0].startswith("node:"))
            self._series.add(found, self._due_ms)
            self._series.add_jobs(sample_jobs(state, self._loads), self._due_ms)
            self._series.finish_jobs({f"job:{job}" for job in running})
            self._due_ms += self._step_ms

    def note(self, record: Record) -> None:
        """Takes note of what jobs say."""
        self._loads.note(record.body, record.now)

    def close(self) -> None:
        """Closes the file."""
        self._series.close()


def fill(database: Database, folder: Path, source: Source, tell: Callable[[str], None]) -> Shown:
    """Writes a journal into a store that has nothing yet; the moments of its first and last record."""
    state = source.start
    filling = _Filling(database, folder, source, state)
    for record, line in source.records:
        if record.seq and record.seq % TOLD_RECORDS == 0:
            tell(f"{record.seq:,} records are read{_share(source, filling.first_ms, record.now)}")
        filling.take(record, line)
    filling.end()
    if state.seq < 0:
        raise FillError(f"{source.name}: expected a journal, with a record in each line, found none")
    snapshots.write(database, state, dump(state))
    return Shown(source.name, filling.first_ms, state.now)


def _share(source: Source, first_ms: int, now_ms: int) -> str:
    """How far that is of the time of the journal, as far as its end is known."""
    span_ms = source.last_ms - first_ms
    return f", {min(100 * (now_ms - first_ms) // span_ms, 100)} % of its time" if span_ms > 0 else ""


class _Filling:
    """A store that is being filled."""

    def __init__(self, database: Database, folder: Path, source: Source, state: State) -> None:
        self._database = database
        self._folder = folder
        self._source = source
        self._state = state
        self._writer = JournalWriter(state)
        self._figures: Figures | None = None
        self._transaction = ExitStack()
        self._open: Connection | None = None
        self._records = 0
        self._moments = Moments(folder / STATES)
        self._kept = state.seq
        self.first_ms = state.now
        if state.seq >= 0:
            self._begin_at_state()

    def take(self, record: Record, line: bytes) -> None:
        """Folds a record in. What came before is written first, if that was at another moment."""
        hidden = line_without_values(line)
        if hidden is not line:
            record = decode(hidden)
        if self._figures is None:
            self.first_ms = record.now
            self._figures = Figures(self._folder, record.now, self._source.last_ms)
        if record.now != self._state.now:
            self._write()
            self._figures.pass_to(self._state, record.now)
        try:
            apply(self._state, record, hidden)
        except Exception as error:
            # Whatever a journal from elsewhere has in it, it must not look like an error of this program.
            raise FillError(
                f"{self._source.name}: record {record.seq} cannot be folded: {error or type(error).__name__}: "
                "it is damaged, of a later version, or no journal of phalanx"
            ) from error
        self._writer.journal.append(record, hidden)
        self._figures.note(record)
        self._records += 1
        if self._moments.is_due(self._state.seq, self._kept):
            self._kept = self._state.seq
            self._moments.keep(self._state)

    def end(self) -> None:
        """Writes the rest."""
        self._write()
        if self._figures is not None:
            self._figures.pass_to(self._state, self._state.now + 1)
            self._figures.close()
        self._commit()

    def _write(self) -> None:
        if not self._writer.journal.dirty:
            return
        if self._open is None:
            self._open = self._transaction.enter_context(self._database.writing())
        self._writer.write(self._open)
        if self._records >= RECORDS_AT_ONCE:
            self._commit()

    def _commit(self) -> None:
        self._transaction.close()
        self._open, self._records = None, 0

    def _begin_at_state(self) -> None:
        """Writes what a State tells at which a journal begins: also of jobs that were submitted before."""
        state = self._state
        jobs = {name: -2 - record.number for name, record in state.jobs.items()}
        rows = []
        for name, seq in jobs.items():
            known = state.jobs[name]
            line = line_without_values(encode(Record(seq, known.submitted_ms, JobSubmitted(known.job))))
            rows.append({"seq": seq, "now_ms": known.submitted_ms, "type": "JobSubmitted", "job": name, "line": line})
        with self._database.writing() as connection:
            EARLIER.run(connection, rows)
            self._moments.keep(state)
            self._writer.begin(connection, jobs)
