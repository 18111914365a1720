"""The guard before the routes: web sockets count as requests, and a caller that has gone is not worked for."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from starlette.types import Message, Receive, Scope, Send

from phalanx.server.accounts.cache_epoch import CacheEpoch
from phalanx.server.api.admission.departure import answer_while_connected
from phalanx.server.api.admission.guard import Guard
from phalanx.server.api.context import Context
from phalanx.server.api.engine import Engine
from phalanx.server.api.figures import HttpFigures
from phalanx.server.heartbeat import Heartbeat
from phalanx.server.options import Options
from phalanx.server.store.database import Database, open_database, sqlite_url

RATE = 3
PATIENCE_S = 20.0


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


def test_the_work_on_an_answer_ends_when_its_caller_has_gone() -> None:
    began, over = asyncio.Event(), []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        began.set()
        try:
            await asyncio.sleep(10 * PATIENCE_S)
        finally:
            over.append("cancelled")

    async def scene() -> None:
        messages: asyncio.Queue[Message] = asyncio.Queue()
        answering = asyncio.create_task(answer_while_connected(app, {}, messages.get, _nowhere))
        messages.put_nowait({"type": "http.request", "body": b"", "more_body": False})
        await began.wait()
        messages.put_nowait({"type": "http.disconnect"})
        await asyncio.wait_for(answering, PATIENCE_S)

    asyncio.run(scene())
    assert over == ["cancelled"]


def test_an_answer_that_has_begun_is_told_that_its_caller_has_gone_and_ends_by_itself() -> None:
    heard: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        heard.append((await receive())["type"])
        await asyncio.sleep(0)
        heard.append("ended")

    async def scene() -> None:
        messages: asyncio.Queue[Message] = asyncio.Queue()
        messages.put_nowait({"type": "http.disconnect"})
        await answer_while_connected(app, {}, messages.get, _nowhere)

    asyncio.run(scene())
    assert heard == ["http.disconnect", "ended"]


async def _nowhere(message: Message) -> None:
    """Sends to a caller that is not there."""
