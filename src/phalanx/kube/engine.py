"""The engine as the scheduler uses it: a State, its journal, and events that are refused one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import BinaryIO

from phalanx.cluster.cluster import Cluster
from phalanx.engine.state.journal import Count, Record
from phalanx.engine.state.state import State
from phalanx.engine.turn import adopt, propose, record
from phalanx.protocol.event import ClusterDefined, Event, JobHeld
from phalanx.protocol.plan import Plan

Veto = Callable[[Plan], dict[str, str]]
"""Says which jobs may not start as a plan has it, and why."""

LACKS = ("resize", "fraction", "mps", "mig")
"""Kubernetes gives whole devices to pods that keep their size."""


def allow_all(plan: Plan) -> dict[str, str]:
    """Has every job start as it is planned."""
    return {}


class FileJournal(Count):
    """A journal that is written to a file, line by line, and not kept in memory."""

    def __init__(self, file: BinaryIO | None) -> None:
        super().__init__()
        self._file = file

    def append(self, record: Record, line: bytes) -> None:
        """Writes a record."""
        super().append(record, line)
        if self._file is not None:
            self._file.write(line + b"\n")

    def flush(self) -> None:
        """Has everything on its way to the disk: called before actions are carried out."""
        if self._file is not None:
            self._file.flush()


class Engine:
    """Takes events in and decides."""

    def __init__(self, cluster: Cluster, policy: str, now: int, journal: BinaryIO | None = None) -> None:
        self.state = State()
        self._journal = FileJournal(journal)
        record(self.state, self._journal, ClusterDefined(cluster, policy, lacks=LACKS), now)

    def take(self, events: Iterable[Event], now: int) -> list[tuple[Event, str]]:
        """Folds events in, and gives back those that the State refuses, with why."""
        refused = []
        for event in events:
            try:
                record(self.state, self._journal, event, now)
            except ValueError as error:
                refused.append((event, str(error)))
        return refused

    def decide(self, now: int, veto: Veto = allow_all) -> tuple[Plan, dict[str, str]]:
        """The next decision, written down, and the jobs that are held for its sake with why: those that a veto keeps
        from starting as was proposed.
        """
        held: dict[str, str] = {}
        plan = propose(self.state, self._journal, now)
        while refused := veto(plan):
            held.update(refused)
            self.take(map(JobHeld, refused), now)
            plan = propose(self.state, self._journal, now)
        adopt(self.state, self._journal, plan, now)
        self._journal.flush()
        return plan, held

    def wakes_at_ms(self) -> int | None:
        """When something happens by itself."""
        return self.state.next_wakeup()
