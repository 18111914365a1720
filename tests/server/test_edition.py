"""What a worker knows of accounts holds only until somebody was told that they changed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from phalanx.server.accounts import ledger
from phalanx.server.accounts.cache_epoch import CacheEpoch
from phalanx.server.accounts.tokens import NewToken, new_token
from phalanx.server.api.context import Context
from phalanx.server.api.engine import Engine
from phalanx.server.api.figures import HttpFigures
from phalanx.server.heartbeat import Heartbeat
from phalanx.server.loop.wire import AddToken, PutUser, RevokeToken
from phalanx.server.options import Options
from phalanx.server.store.database import Database, open_database, open_reader, sqlite_url


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    made = open_database(sqlite_url(tmp_path / "store.db"))
    yield made
    made.close()


@pytest.fixture
def token(database: Database) -> NewToken:
    made = new_token()
    with database.writing() as connection:
        ledger.change(connection, PutUser("ada", new=True), 0)
        ledger.change(connection, AddToken(made.id, "ada", "t", made.digest, "read"), 0)
    return made


class Worker(Context):
    """A worker whose reads can be followed by something."""

    def __init__(self, folder: Path) -> None:
        url = sqlite_url(folder / "store.db")
        engine = cast("Engine", None)
        super().__init__(
            Options(data=str(folder)), open_reader(url), engine, HttpFigures(), CacheEpoch(folder), Heartbeat(folder)
        )
        self.after_read: Callable[[], None] = lambda: None

    async def read_now(self, query: Callable[..., Any], *arguments: object) -> Any:
        found = await super().read_now(query, *arguments)
        self.after_read()
        return found


def revoke(database: Database, token: NewToken, folder: Path) -> None:
    with database.writing() as connection:
        ledger.change(connection, RevokeToken(token.id), 1)
    CacheEpoch(folder).advance()


def lets_in(worker: Worker, token: NewToken) -> bool:
    return asyncio.run(worker.account(token.token)) is not None


def test_a_process_sees_at_once_that_another_advanced_the_edition(tmp_path: Path) -> None:
    here, there = CacheEpoch(tmp_path), CacheEpoch(tmp_path)
    assert here.number == there.number == 0
    there.advance()
    assert here.number == 1
    assert CacheEpoch(tmp_path).number == 1, "who comes later sees it too"


def test_a_token_that_was_known_lets_nobody_in_once_it_is_revoked(
    database: Database, token: NewToken, tmp_path: Path
) -> None:
    worker = Worker(tmp_path)
    assert lets_in(worker, token)
    revoke(database, token, tmp_path)
    assert not lets_in(worker, token)


def test_what_was_read_before_the_revocation_is_not_kept_beyond_it(
    database: Database, token: NewToken, tmp_path: Path
) -> None:
    worker = Worker(tmp_path)
    worker.after_read = lambda: revoke(database, token, tmp_path)
    assert lets_in(worker, token), "it was asked for before the revocation"
    worker.after_read = lambda: None
    assert not lets_in(worker, token)
