"""The book: the journal and the view that follows from it, written together."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import Connection, select

from phalanx.engine.state.state import State
from phalanx.protocol.event import ClusterDefined, Finding, PolicyChanged, Progress
from phalanx.server.scaling.loads import Loads
from phalanx.server.store.journal import StoredJournal
from phalanx.server.store.tables import jobs
from phalanx.server.view.cluster import placement_of, write_cluster
from phalanx.server.view.view import View

DEFAULT_PLACEMENT = "topology"


class JournalWriter:
    """What the loop writes down of a State."""

    def __init__(self, state: State) -> None:
        self.journal = StoredJournal(state.seq + 1)
        self._state = state
        self._view = View(state)
        self.loads = Loads(state)
        self._found: list[Finding] = []
        self._written: tuple[object, ...] = ()
        self.placement = DEFAULT_PLACEMENT

    def write(self, connection: Connection) -> None:
        """Writes what is new, in a transaction of the caller."""
        fresh = self.journal.flush(connection)
        if not fresh:
            return
        for record in fresh:
            if isinstance(record.body, ClusterDefined | PolicyChanged):
                self.placement = record.body.placement or self.placement
            if isinstance(record.body, Progress):
                self.loads.report(record.body, record.now)
            if isinstance(record.body, Finding):
                self._found.append(record.body)
            self._view.note(record.body, record.seq)
        self._write_cluster(connection)
        self._view.write(connection)

    def begin(self, connection: Connection, submitted: Mapping[str, int]) -> None:
        """Writes all that a State tells into a store that has nothing yet, with the records that its jobs came by."""
        self._write_cluster(connection)
        self._view.write_all(connection, submitted)

    def _write_cluster(self, connection: Connection) -> None:
        """A cluster changes by a record, and again when the last has left a node that was to go."""
        state = self._state
        present = (state.cluster, state.policy.spec, self.placement, state.term)
        if not self._written:
            self.placement = placement_of(connection) or self.placement
        if not self._written or any(a is not b and a != b for a, b in zip(present, self._written, strict=True)):
            write_cluster(connection, state, self.placement)
            self._written = (state.cluster, state.policy.spec, self.placement, state.term)

    def take_found(self) -> list[Finding]:
        """What launchers have found since the last call."""
        found, self._found = self._found, []
        return found

    def take_unmet(self) -> list[str]:
        """Jobs that came to wait for an outcome that cannot come any more, since this was last asked."""
        return self._view.take_unmet()

    def version_of(self, connection: Connection, job: str) -> int | None:
        """The record that changed a job last, with all that was done in this transaction."""
        self.write(connection)
        found: int | None = connection.execute(select(jobs.c.version).where(jobs.c.id == job)).scalar()
        return found
