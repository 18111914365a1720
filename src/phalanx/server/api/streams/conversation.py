"""What is typed and what is printed over a web socket: bytes both ways, and the exit code at the end."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from fastapi import WebSocket

from phalanx.server.api.streams.standing import Standing

if TYPE_CHECKING:
    from phalanx.server.api.streams.line import Line

OVER_S = 5.0
CLOSE_S = 0.5
"""How long a caller that does not read is waited for before the command is hung up."""

TYPED_BYTES_MAX = 1 << 20
"""So much may be typed ahead of a command that does not read. Beyond it nothing more is taken from the caller."""

RIGHT_LOST = 1008
"""The code that the web socket is closed with when the caller loses the right: violated policy (RFC 6455)."""

REASON_BYTES_MAX = 120
"""How long the reason of a closed web socket may be (RFC 6455 allows 123 bytes)."""


async def converse(websocket: WebSocket, line: Line, standing: Standing) -> None:
    """Passes bytes both ways until the command has ended, the caller has gone, or has lost the right to it."""
    typed = Typed(line)
    printing = asyncio.create_task(_print(websocket, line))
    losing = asyncio.create_task(standing.lost())
    leaving = asyncio.create_task(typed.receive(websocket))
    passing = asyncio.create_task(typed.pass_on())
    try:
        await asyncio.wait((printing, losing, leaving), return_when=asyncio.FIRST_COMPLETED)
        if printing.done():
            await printing
        elif losing.done():
            reason = (await losing).message.encode()[:REASON_BYTES_MAX].decode(errors="ignore")
            await asyncio.wait_for(websocket.close(RIGHT_LOST, reason), CLOSE_S)
    finally:
        tasks = (printing, losing, leaving, passing)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _print(websocket: WebSocket, line: Line) -> None:
    """Sends what the command prints, as fast as the caller reads, and how it ended."""
    while printed := await line.read():
        await websocket.send_bytes(printed)
    await websocket.send_text(json.dumps(await _ending(line)))
    await websocket.close()


async def _ending(line: Line) -> dict[str, Any]:
    from phalanx.backends.local.session import NoSession

    try:
        return {"exit": await line.exit_code(OVER_S)}
    except NoSession as error:
        return {"error": str(error)}


class Typed:
    """What the caller has typed and the command has not read yet. The caller is heard on meanwhile, up to a bound."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self._messages: deque[dict[str, Any]] = deque()
        self._bytes = 0
        self._changed = asyncio.Condition()

    async def receive(self, websocket: WebSocket) -> None:
        """Takes what is typed, until the caller has gone."""
        while (message := await websocket.receive())["type"] != "websocket.disconnect":
            async with self._changed:
                await self._changed.wait_for(lambda: self._bytes < TYPED_BYTES_MAX)
                self._messages.append(dict(message))
                self._bytes += _size(message)
                self._changed.notify_all()

    async def pass_on(self) -> None:
        """Gives it to the command."""
        while True:
            async with self._changed:
                await self._changed.wait_for(lambda: self._messages)
                message = self._messages.popleft()
            await self._pass(message)
            async with self._changed:
                self._bytes -= _size(message)
                self._changed.notify_all()

    async def _pass(self, message: dict[str, Any]) -> None:
        if message.get("bytes"):
            await self._line.write(message["bytes"])
            return
        match _told(message.get("text") or ""):
            case {"eof": True}:
                await self._line.end_input()
            case {"resize": [int(rows), int(columns)]} if 0 <= rows < 10_000 and 0 <= columns < 10_000:
                self._line.resize(rows, columns)


def _size(message: Any) -> int:
    """What a message takes of the memory, with what goes with an empty one."""
    return 100 + len(message.get("bytes") or message.get("text") or "")


def _told(text: str) -> object:
    with suppress(ValueError, RecursionError):
        return json.loads(text)
    return None
