"""The command handler: mutations carried out on a State, in the transaction that makes them durable."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from sqlalchemy import func, select

from builders import a_job
from phalanx.cluster.cluster import flat
from phalanx.engine.state.state import State
from phalanx.engine.turn import record
from phalanx.protocol.event import ClusterDefined
from phalanx.server.accounts import ledger
from phalanx.server.accounts.roles import ROOT, Role
from phalanx.server.loop.admission import Admission
from phalanx.server.loop.command_handler import KEY_MS, CommandHandler
from phalanx.server.loop.journal_writer import JournalWriter
from phalanx.server.loop.notices import Notices
from phalanx.server.loop.wire import Answer, Caller, ChangeJob, Mutation, PutRole, PutUser, Request, SubmitJobs
from phalanx.server.options import Options
from phalanx.server.refusal import Refusal
from phalanx.server.store.database import open_database, sqlite_url
from phalanx.server.store.tables import audit, idempotency, jobs
from phalanx.workload.job import Job


class Inbox:
    """A command handler with a store behind it; every call is one transaction."""

    def __init__(self, folder: Path) -> None:
        self.database = open_database(sqlite_url(folder / "store.db"))
        self.state = State()
        self.book = JournalWriter(self.state)
        self.now = 1_000
        record(self.state, self.book.journal, ClusterDefined(flat(2, 8), "fifo"), self.now)
        self.full = False
        with self.database.writing() as connection:
            ledger.change(connection, PutUser("ada", new=True), self.now)
            ledger.change(connection, PutRole("ada", ROOT, Role.MEMBER.value), self.now)
        self.command_handler = self.new_office()

    def new_office(self) -> CommandHandler:
        """One that has just been opened on this state."""
        admission = Admission(Options(data="/nowhere", backend="rehearsal"))
        return CommandHandler(self.state, self.book, Notices(self.state), admission, self._need_room)

    def _need_room(self) -> None:
        if self.full:
            raise Refusal("storage_full", "no room")

    def ask(self, *bodies: Mutation, user: str = "ada") -> list[Answer]:
        with self.database.writing() as connection:
            answers = [
                self.command_handler.answer(connection, Request(number, Caller(user), body), self.now)
                for number, body in enumerate(bodies)
            ]
            self.book.write(connection)
            self.command_handler.write(connection)
        return answers

    def count(self, table: Any) -> int:
        with self.database.reading() as connection:
            return connection.execute(select(func.count()).select_from(table)).scalar() or 0


def hers(gpus: int = 1) -> Job:
    return a_job("", gpus, user="ada")


@pytest.fixture
def inbox(tmp_path: Path) -> Inbox:
    return Inbox(tmp_path)


def body_of(answer: Answer) -> Any:
    return msgspec.json.decode(answer.body)


def test_ids_are_increasing_numbers_and_go_on_after_a_restart(inbox: Inbox) -> None:
    first, second = inbox.ask(SubmitJobs([hers()]), SubmitJobs([hers(), hers()]))
    assert body_of(first)["ids"] == ["1"]
    assert body_of(second)["ids"] == ["2", "3"]
    inbox.command_handler = inbox.new_office()
    assert body_of(inbox.ask(SubmitJobs([hers()]))[0])["ids"] == ["4"]


def test_two_requests_with_one_key_in_one_transaction_are_one(inbox: Inbox) -> None:
    first, second = inbox.ask(SubmitJobs([hers()], "key", "body"), SubmitJobs([hers()], "key", "body"))
    assert first.body == second.body
    assert second.repeated
    assert inbox.count(jobs) == 1


def test_a_key_is_one_users_own(inbox: Inbox) -> None:
    inbox.ask(SubmitJobs([hers()], "key", "body"), user="ada")
    other = inbox.ask(SubmitJobs([hers()], "key", "body"), user="bob")[0]
    assert not other.repeated
    assert inbox.count(jobs) == 2


def test_a_refused_request_may_be_made_again_with_its_key(inbox: Inbox) -> None:
    inbox.full = True
    refused = inbox.ask(SubmitJobs([hers()], "key", "body"))[0]
    assert refused.status == 507
    inbox.full = False
    assert inbox.ask(SubmitJobs([hers()], "key", "body"))[0].status == 201


def test_keys_are_forgotten_after_a_day(inbox: Inbox) -> None:
    inbox.ask(SubmitJobs([hers()], "key", "body"))
    inbox.now += KEY_MS + 1
    inbox.ask(SubmitJobs([hers()]))
    assert inbox.count(idempotency) == 0


def test_an_old_version_is_noticed_within_one_transaction(inbox: Inbox) -> None:
    inbox.ask(SubmitJobs([hers(gpus=99)]))
    with inbox.database.reading() as connection:
        version = inbox.book.version_of(connection, "1")
    first, second = inbox.ask(ChangeJob("1", "hold", version), ChangeJob("1", "release", version))
    assert (first.status, second.status) == (200, 412)


def test_what_is_refused_is_audited_too(inbox: Inbox) -> None:
    inbox.ask(ChangeJob("7", "cancel"), PutUser("eve", new=True), PutUser("eve", new=True))
    with inbox.database.reading() as connection:
        outcomes = connection.execute(select(audit.c.verb, audit.c.outcome).order_by(audit.c.number)).all()
    assert [tuple(row) for row in outcomes] == [
        ("cancel job", "not_found"),
        ("create user", "done"),
        ("create user", "conflict"),
    ]
