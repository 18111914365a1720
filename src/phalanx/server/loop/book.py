"""The book: the journal and the view that follows from it, written together."""

from __future__ import annotations

from sqlalchemy import Connection, select

from phalanx.engine.state import State
from phalanx.server.store.journal import StoredJournal
from phalanx.server.store.tables import jobs
from phalanx.server.view import View


class Book:
    """What the loop writes down of a State."""

    def __init__(self, state: State) -> None:
        self.journal = StoredJournal(state.seq + 1)
        self._view = View(state)

    def write(self, connection: Connection) -> None:
        """Writes what is new, in a transaction of the caller."""
        fresh = self.journal.flush(connection)
        if fresh:
            for record in fresh:
                self._view.note(record.body, record.seq)
            self._view.write(connection)

    def version_of(self, connection: Connection, job: str) -> int | None:
        """The record that changed a job last, with all that was done in this transaction."""
        self.write(connection)
        found: int | None = connection.execute(select(jobs.c.version).where(jobs.c.id == job)).scalar()
        return found
