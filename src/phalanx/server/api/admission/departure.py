"""Callers that leave before they are answered."""

from __future__ import annotations

import asyncio

from starlette.types import ASGIApp, Message, Receive, Scope, Send


async def answer_while_connected(app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    """Answers a request without a body. If its caller goes before that, the work on the answer is cancelled.

    An answer that has begun ends by itself: one that goes on listens for the end of the connection.
    """
    messages: asyncio.Queue[Message] = asyncio.Queue()
    answering = asyncio.current_task()
    assert answering is not None
    has_begun = has_gone = False

    async def pass_on() -> None:
        nonlocal has_gone
        while not has_gone:
            message = await receive()
            messages.put_nowait(message)
            has_gone = message["type"] == "http.disconnect"
        if not has_begun:
            answering.cancel()

    async def begin(message: Message) -> None:
        nonlocal has_begun
        has_begun = True
        await send(message)

    passing = asyncio.create_task(pass_on())
    try:
        await app(scope, messages.get, begin)
    except asyncio.CancelledError:
        if has_begun or not has_gone or answering.uncancel():
            raise
    finally:
        passing.cancel()
