"""The guard before the routes: web sockets count as requests."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from starlette.types import Message, Receive, Scope, Send

from phalanx.server.accounts.cache_epoch import CacheEpoch
from phalanx.server.api.admission.guard import Guard
from phalanx.server.api.context import Context
from phalanx.server.api.engine import Engine
from phalanx.server.api.figures import HttpFigures
from phalanx.server.heartbeat import Heartbeat
from phalanx.server.options import Options
from phalanx.server.store.database import Database, open_database, sqlite_url

RATE = 3


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    database = open_database(sqlite_url(tmp_path / "store.db"))
    yield database
    database.close()


def test_web_sockets_count_as_requests_of_their_address(tmp_path: Path, database: Database) -> None:
    opened: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        opened.append(scope["path"])

    async def scene() -> list[Message]:
        options = Options(data=str(tmp_path), rate_limit=RATE)
        engine = cast("Engine", None)
        context = Context(options, database, engine, HttpFigures(), CacheEpoch(tmp_path), Heartbeat(tmp_path))
        guard, sent = Guard(app, context), []

        async def send(message: Message) -> None:
            sent.append(message)

        scope: dict[str, Any] = {"type": "websocket", "path": "/", "headers": [], "client": ("203.0.113.9", 1)}
        scope["extensions"] = {"websocket.http.response": {}}
        for _ in range(10 * RATE):
            await guard(dict(scope), asyncio.Queue().get, send)
        return sent

    refused = asyncio.run(scene())
    assert 2 * RATE <= len(opened) < 10 * RATE
    begun = [message for message in refused if message["type"] == "websocket.http.response.start"]
    assert {message["status"] for message in begun} == {429}
    assert len(begun) == 10 * RATE - len(opened)
    assert (b"retry-after", b"1") in begun[0]["headers"]
