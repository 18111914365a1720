"""Commands beside running tasks, over a web socket: bytes both ways, and the exit code at the end."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import Annotated, Any

from fastapi import APIRouter, Query, WebSocket, WebSocketDisconnect

from phalanx.server.accounts.roles import Account
from phalanx.server.api.context import Context
from phalanx.server.api.errors import refused
from phalanx.server.api.jobs import changeable, hand_over
from phalanx.server.loop.wire import Caller, RunBeside
from phalanx.server.refusal import Refusal

router = APIRouter()

WORDS_MAX = 1_000
OVER_S = 5.0


@router.websocket("/jobs/{job}/exec")
async def run_beside(
    websocket: WebSocket,
    job: str,
    rank: Annotated[int, Query(ge=0, le=1_000_000)] = 0,
    arg: Annotated[list[str] | None, Query(max_length=WORDS_MAX)] = None,
    tty: Annotated[str, Query(pattern=r"^([0-9]{1,4}x[0-9]{1,4})?$")] = "",
) -> None:
    """Run a command beside a task of a job, in its surroundings, as who may change the job. It is audited first."""
    context: Context = websocket.app.state.context
    try:
        account = await _account(websocket, context)
        item = await changeable(job, account, context)
        if item["state"] != "running":
            raise Refusal(
                "conflict", f"job {item['id']} is {item['state']}: a command can run beside a running job only"
            )
        origin = websocket.client.host if websocket.client else ""
        beside = RunBeside(item["id"], rank, arg or ["sh"])
        await hand_over(context, Caller(account.user, account.token, origin), beside)
        session = await asyncio.to_thread(_open, context, beside, item["attempts"], tty)
    except Refusal as refusal:
        await websocket.send_denial_response(refused(refusal))
        return
    await websocket.accept()
    await _converse(websocket, session)


async def _account(websocket: WebSocket, context: Context) -> Account:
    scheme, _, token = websocket.headers.get("authorization", "").partition(" ")
    account = await context.account(token) if scheme.lower() == "bearer" and token else None
    if account is None:
        raise Refusal("unauthenticated", "expected a valid token in the header 'Authorization: Bearer TOKEN'")
    return account


def _open(context: Context, beside: RunBeside, attempt: int, tty: str) -> Any:
    from phalanx.backends.local.session import NoSession, open_session

    if context.options.backend != "local":
        raise Refusal("conflict", f"the backend {context.options.backend} runs no commands beside tasks")
    rows, _, columns = tty.partition("x")
    terminal = (int(rows), int(columns)) if tty else None
    try:
        return open_session(context.options.file(), beside.job, attempt, beside.rank, tuple(beside.command), terminal)
    except NoSession as error:
        raise Refusal("conflict", str(error)) from None


async def _converse(websocket: WebSocket, session: Any) -> None:
    """Passes what is typed to the command and what it prints back, until it has ended or the caller has gone."""
    typing = asyncio.create_task(_type(websocket, session))
    try:
        while printed := await asyncio.to_thread(session.read):
            await websocket.send_bytes(printed)
        await websocket.send_text(json.dumps(await asyncio.to_thread(_ending, session)))
        await websocket.close()
    except (WebSocketDisconnect, RuntimeError):
        pass
    finally:
        typing.cancel()
        with suppress(asyncio.CancelledError):
            await typing
        session.close()


async def _type(websocket: WebSocket, session: Any) -> None:
    with suppress(WebSocketDisconnect, RuntimeError, OSError):
        while True:
            message = await websocket.receive()
            if message["type"] == "websocket.disconnect":
                session.end_input()
                return
            if message.get("bytes"):
                await asyncio.to_thread(session.write, message["bytes"])
            elif message.get("text") and json.loads(message["text"]).get("eof"):
                session.end_input()


def _ending(session: Any) -> dict[str, Any]:
    from phalanx.backends.local.session import NoSession

    try:
        return {"exit": session.wait(OVER_S)}
    except (NoSession, TimeoutError) as error:
        return {"error": str(error)}
