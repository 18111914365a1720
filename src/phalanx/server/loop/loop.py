"""The loop: events are made durable and folded in, a decision is made, made durable and carried out, and so on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sqlalchemy import Connection

from phalanx.backends.live import LiveBackend, adoptable
from phalanx.engine.state.state import State
from phalanx.engine.turn import record, turn
from phalanx.faults.health.watch import NodeWatch
from phalanx.protocol.event import Event
from phalanx.protocol.plan import Plan
from phalanx.server.accounts.cache_epoch import CacheEpoch
from phalanx.server.accounts.revocations import Line, Revocations
from phalanx.server.clock import Clock
from phalanx.server.heartbeat import Heartbeat
from phalanx.server.loop.admission import Admission
from phalanx.server.loop.command_handler import CommandHandler
from phalanx.server.loop.inbox import Asked, Inbox
from phalanx.server.loop.journal_writer import JournalWriter
from phalanx.server.loop.loop_metrics import LoopMetrics
from phalanx.server.loop.mark import Mark, Reached
from phalanx.server.loop.notices import Kept, Notices
from phalanx.server.loop.restoration import CHANGES
from phalanx.server.loop.snapshotter import Snapshotter
from phalanx.server.loop.solver_client import SolverClient
from phalanx.server.loop.unmet import cancellations
from phalanx.server.loop.wire import Answer, News, json_of
from phalanx.server.refusal import Refusal
from phalanx.server.scaling.scaler import Scaler
from phalanx.server.secrets.folder import SecretFolder
from phalanx.server.store import settings
from phalanx.server.store.database import Database, FullStoreError, StoreError
from phalanx.server.store.lineage import Lineage

REST_S = 1.0
"""The longest the loop rests: then it looks after its children and its figures."""


@dataclass(slots=True)
class Surroundings:
    """What a loop works with. `reached` is how far the store has come; `settle` is called when the backend has taken
    over what runs.
    """

    database: Database
    backend: LiveBackend
    inbox: Inbox
    clock: Clock
    cache_epoch: CacheEpoch
    heartbeat: Heartbeat
    snapshotter: Snapshotter
    loop_metrics: LoopMetrics
    admission: Admission
    need_room: Callable[[], None]
    tell: Callable[[str], None]
    secrets: SecretFolder
    mark: Mark
    revocations: Revocations
    lineage: Lineage
    reached: Reached
    settle: Callable[[], None]
    notices: Kept | None = None
    watch: NodeWatch | None = None


class Loop:
    """Owns the State. Everything happens in one thread, one turn after another."""

    def __init__(self, state: State, around: Surroundings) -> None:
        self._state = state
        self._around = around
        self._book = JournalWriter(state)
        self._scaler = Scaler(state, self._book.loads)
        self._notices = Notices(state, around.notices)
        self._counsel = SolverClient(around.tell, around.loop_metrics.advice_kept)
        reached = around.reached
        self._account_changes = reached.account_changes
        self._office = CommandHandler(
            state,
            self._book,
            self._notices,
            around.admission,
            around.need_room,
            around.secrets,
            reached.next_id,
            around.lineage,
        )
        self._stopping = False
        # Whatever was durable before a crash may not have been decided on.
        self._undecided = True

    def run(self) -> None:
        """Takes turns until `stop`. An error of the store ends it: what was not durable has not happened."""
        around = self._around
        around.backend.wake = around.inbox.poke
        around.backend.adopt(adoptable(self._state, around.lineage.at), around.clock.now_ms())
        around.settle()
        around.heartbeat.beat()
        self._announce()
        self._turn([])
        while not self._stopping:
            self._turn(around.inbox.wait(self._rest_s()))
        around.mark.flush()

    def stop(self) -> None:
        """Has `run` return after the present turn."""
        self._stopping = True
        self._around.inbox.poke()

    def _rest_s(self) -> float:
        moments = (self._state.next_wakeup(), self._around.backend.next_event_ms())
        due = min((moment for moment in moments if moment is not None), default=None)
        if due is None:
            return REST_S
        return min(max(due - self._around.clock.now_ms(), 0) / 1000, REST_S)

    def _is_due(self, now: int) -> bool:
        due_ms = self._state.next_wakeup()
        return due_ms is not None and due_ms <= now

    def _turn(self, asked: list[Asked]) -> None:
        around = self._around
        around.heartbeat.beat()
        now = around.clock.now_ms()
        with around.loop_metrics.turn():
            events = around.backend.events(now)
            self._take_in(asked, events, now)
            changed = self._give_up_unmet(now) or self._follow_loads(now)
            changed = self._look_after_nodes(now) or changed
            # A decision on nothing new would only write down how late it is, once a second, for ever.
            if asked or events or changed or self._undecided or self._is_due(now):
                self._act(now)
        self._announce()
        around.snapshotter.look_after(self._state)
        around.loop_metrics.measure(self._state)

    def _give_up_unmet(self, now: int) -> bool:
        """Cancels jobs whose dependencies can never be met, then those that wait for these in turn; whether there were
        any.
        """
        some = False
        while cancelled := cancellations(self._state, self._book.take_unmet()):
            some = True
            self._take_in([], list(cancelled), now)
        return some

    def _follow_loads(self, now: int) -> bool:
        """Has services have the sizes that their loads ask for; whether any has another."""
        changes = self._scaler.changes(now)
        self._take_in([], list(changes), now)
        if self._scaler.has_news(now):
            with self._around.database.writing() as connection:
                self._scaler.write(connection, now)
        return bool(changes)

    def _look_after_nodes(self, now: int) -> bool:
        """Has nodes on which too much fails take no new work, and lets them prove themselves; whether any changed."""
        watch, found = self._around.watch, self._book.take_found()
        if watch is not None:
            for finding in found:
                watch.note(finding, now)
        changes = watch.events(now, self._office.take_id) if watch is not None else []
        self._take_in([], list(changes), now)
        return bool(changes)

    def _act(self, now: int) -> None:
        """Decides, and has the plan carried out."""
        self._undecided = False
        for action in self._decide(now).actions:
            self._around.backend.carry_out(action, now)

    def _announce(self) -> None:
        self._around.inbox.announce(News(self._state.seq))

    def _take_in(self, asked: list[Asked], events: list[Event], now: int) -> None:
        """Makes what was asked for and what has happened durable, in one transaction, and only then answers."""
        if not asked and not events:
            return
        answers: list[Answer] = []
        try:
            with (
                self._around.database.writing() as connection,
                self._around.loop_metrics.commit(len(asked), len(events)),
            ):
                for event in events:
                    self._fold(event, now)
                answers.extend(self._office.answer(connection, each.request, now) for each in asked)
                shut_out = self._count_account_changes(connection)
                self._book.write(connection)
                self._office.write(connection)
                self._notices.write(connection)
        except StoreError as error:
            self._apologise(asked, error)
            raise
        self._put_mark()
        if shut_out is not None:
            self._keep_out(shut_out)
            self._around.cache_epoch.advance()
        for each, answer in zip(asked, answers, strict=True):
            self._around.inbox.answer(each.visitor, answer)

    def _count_account_changes(self, connection: Connection) -> list[Line] | None:
        """Writes how often accounts have changed; which tokens and users were shut out, or None if nothing changed."""
        changes, shut_out = self._office.take_account_changes()
        if not changes:
            return None
        self._account_changes += changes
        settings.put(connection, CHANGES, str(self._account_changes).encode())
        return shut_out

    def _keep_out(self, shut_out: list[Line]) -> None:
        """Keeps beside the store which tokens and users were shut out: no backup must let them in again."""
        try:
            self._around.revocations.note(shut_out)
        except OSError as error:
            self._around.tell(f"{error}: what was revoked is in the store, but a backup of before would not know it")

    def _put_mark(self) -> None:
        state = self._state
        self._around.mark.put(Reached(state.seq + 1, state.term, self._office.next_id, self._account_changes))

    def _fold(self, event: Event, now: int) -> None:
        if self._around.watch is not None:
            self._around.watch.note(event, now)
        try:
            record(self._state, self._book.journal, event, now)
        except ValueError as error:
            # A backend that contradicts the State is a defect, but no reason to stop serving.
            self._around.tell(f"the backend reported what cannot be: {error}")

    def _decide(self, now: int) -> Plan:
        self._around.heartbeat.beat(deciding=True)
        with self._around.loop_metrics.decision():
            plan = turn(self._state, self._book.journal, self._counsel.due(self._state, now), now)
        self._around.heartbeat.beat()
        self._notices.note(plan, self._state.now)
        if self._book.journal.dirty:
            with self._around.database.writing() as connection:
                self._book.write(connection)
                self._notices.write(connection)
            self._put_mark()
        return plan

    def _apologise(self, asked: list[Asked], error: StoreError) -> None:
        code = "storage_full" if isinstance(error, FullStoreError) else "unavailable"
        refusal = Refusal(code, f"nothing was changed, the store could not be written: {error}")
        for each in asked:
            answer = Answer(each.request.number, refusal.status, json_of(refusal.body))
            self._around.inbox.answer(each.visitor, answer)
