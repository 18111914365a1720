"""Connections to ports that running tasks listen on, each over a web socket of its own."""

from __future__ import annotations

import asyncio
import json
import socket
from contextlib import ExitStack, closing, suppress
from typing import Annotated

from fastapi import APIRouter, Query, WebSocket, WebSocketDisconnect

from phalanx.server.api.context import Context
from phalanx.server.api.errors import refused
from phalanx.server.api.streams.conversation import CLOSE_S, REASON_BYTES_MAX, RIGHT_LOST
from phalanx.server.api.streams.entry import OPEN_S, Entry, begun, enter
from phalanx.server.api.streams.standing import Standing
from phalanx.server.refusal import Refusal

router = APIRouter()

PIECE_BYTES = 1 << 16
EOF = json.dumps({"eof": True})


@router.websocket("/jobs/{job}/forward")
async def forward_to(
    websocket: WebSocket,
    job: str,
    port: Annotated[int, Query(ge=1, le=65535)],
    rank: Annotated[int, Query(ge=0, le=1_000_000)] = 0,
    check: bool = False,
) -> None:
    """Connect to a port that a task of a job listens on, if you may change the job. It is audited first."""
    context: Context = websocket.app.state.context
    # The caller may go at any moment, also while the answer to the handshake is sent.
    with ExitStack() as held, suppress(WebSocketDisconnect, RuntimeError, TimeoutError):
        try:
            entry = await enter(websocket, context, job, rank)
            if check:
                await websocket.accept()
                await websocket.close()
                return
            held.enter_context(context.connections.forwards.held(entry.account.user))
            end = held.enter_context(await _connected(entry, rank, port))
        except Refusal as refusal:
            await websocket.send_denial_response(refused(refusal))
            return
        await websocket.accept()
        await _pass_on(websocket, end, entry.standing)


async def _connected(entry: Entry, rank: int, port: int) -> socket.socket:
    from phalanx.backends.local.forward import ask_for_port
    from phalanx.backends.local.session import NoSession
    from phalanx.server.api.streams.line import readable

    attempt = await entry.audited(rank, "forward", ["port", str(port)])
    job, data = entry.item["id"], entry.context.options.file()
    with closing(await begun(lambda: ask_for_port(data, job, attempt, rank, port))) as asked:
        try:
            async with asyncio.timeout(OPEN_S):
                while (end := asked.connected_now()) is None:
                    await readable(asked.fileno())
        except NoSession as error:
            raise Refusal("conflict", str(error)) from None
        except TimeoutError:
            why = f"the supervisor of attempt {job}/{attempt} has not answered for {OPEN_S:g} s: try again in a moment"
            raise Refusal("unavailable", why, {"retry_after_s": 1}) from None
    end.setblocking(False)
    return end


async def _pass_on(websocket: WebSocket, end: socket.socket, standing: Standing) -> None:
    """Passes bytes both ways until both sides have ended, the caller has gone, or has lost the right to it."""
    answering = asyncio.create_task(_answer(websocket, end))
    asking = asyncio.create_task(_ask(websocket, end))
    losing = asyncio.create_task(standing.lost())
    try:
        await asyncio.wait((answering, asking, losing), return_when=asyncio.FIRST_COMPLETED)
        if losing.done():
            reason = (await losing).message.encode()[:REASON_BYTES_MAX].decode(errors="ignore")
            await asyncio.wait_for(websocket.close(RIGHT_LOST, reason), CLOSE_S)
        elif answering.done():
            await websocket.close()
    finally:
        tasks = (answering, asking, losing)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _answer(websocket: WebSocket, end: socket.socket) -> None:
    """Sends what the task sends, as fast as the caller reads. When it has ended, so has the connection."""
    loop = asyncio.get_running_loop()
    with suppress(ConnectionError):
        while data := await loop.sock_recv(end, PIECE_BYTES):
            await websocket.send_bytes(data)
    await websocket.send_text(EOF)


async def _ask(websocket: WebSocket, end: socket.socket) -> None:
    """Passes on what the caller sends, until the caller has gone. Its end of it may come first."""
    loop = asyncio.get_running_loop()
    while (message := await websocket.receive())["type"] != "websocket.disconnect":
        with suppress(OSError):
            if message.get("bytes"):
                await loop.sock_sendall(end, message["bytes"])
            elif message.get("text") == EOF:
                end.shutdown(socket.SHUT_WR)
