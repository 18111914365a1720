"""Commands beside running tasks, over a web socket: bytes both ways, and the exit code at the end."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from contextlib import ExitStack, closing, suppress
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from fastapi import APIRouter, Query, WebSocket, WebSocketDisconnect

from phalanx.server.accounts.roles import Account
from phalanx.server.api.admission.owner import need_acting_as
from phalanx.server.api.context import Context
from phalanx.server.api.errors import refused
from phalanx.server.api.jobs import changeable, hand_over
from phalanx.server.api.streams.standing import Standing
from phalanx.server.loop.wire import Caller, RunBeside
from phalanx.server.refusal import Refusal

if TYPE_CHECKING:
    from phalanx.server.api.streams.line import Line

router = APIRouter()

WORDS_MAX = 1_000
OVER_S = 5.0
CLOSE_S = 0.5
"""How long a caller that does not read is waited for before the command is hung up."""

OPEN_S = 5.0
OPEN_AGAIN_S = 0.05
TYPED_BYTES_MAX = 1 << 20
"""So much may be typed ahead of a command that does not read. Beyond it nothing more is taken from the caller."""

RIGHT_LOST = 1008
"""The code that the web socket is closed with when the caller loses the right: violated policy (RFC 6455)."""

REASON_BYTES_MAX = 120
"""How long the reason of a closed web socket may be (RFC 6455 allows 123 bytes)."""


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
    # The caller may go at any moment, also while the answer to the handshake is sent.
    with ExitStack() as held, suppress(WebSocketDisconnect, RuntimeError, TimeoutError):
        try:
            token, account = await _account(websocket, context)
            item = await changeable(job, account, context)
            if item["state"] != "running":
                raise Refusal(
                    "conflict", f"job {item['id']} is {item['state']}: a command can run beside a running job only"
                )
            await need_acting_as(item["user"], account, context)
            held.enter_context(context.connections.execs.held(account.user))
            beside = RunBeside(item["id"], rank, arg or ["sh"])
            origin = websocket.client.host if websocket.client else ""
            answer = await hand_over(context, Caller(account.user, account.token, origin), beside)
            line = await _open(context, beside, msgspec.json.decode(answer.body)["attempt"], tty)
            held.enter_context(closing(line))
        except Refusal as refusal:
            await websocket.send_denial_response(refused(refusal))
            return
        await websocket.accept()
        standing = Standing(context, token, lambda now: now.may_change(item["queue"], item["user"]))
        await _converse(websocket, line, standing)


async def _account(websocket: WebSocket, context: Context) -> tuple[str, Account]:
    scheme, _, token = websocket.headers.get("authorization", "").partition(" ")
    account = await context.account(token) if scheme.lower() == "bearer" and token else None
    if account is None:
        raise Refusal("unauthenticated", "expected a valid token in the header 'Authorization: Bearer TOKEN'")
    return token, account


async def _open(context: Context, beside: RunBeside, attempt: int, tty: str) -> Line:
    """Begins the command. A supervisor that is busy is asked again for a while, and never waited for."""
    from phalanx.backends.local.session import NoSession, open_session
    from phalanx.server.api.streams.line import Line

    if context.options.backend != "local":
        raise Refusal("conflict", f"the backend {context.options.backend} runs no commands beside tasks")
    rows, _, columns = tty.partition("x")
    terminal = (int(rows), int(columns)) if tty else None
    command, data = tuple(beside.command), context.options.file()
    with suppress(TimeoutError):
        async with asyncio.timeout(OPEN_S):
            while True:
                try:
                    return Line(open_session(data, beside.job, attempt, beside.rank, command, terminal, waits=False))
                except NoSession as error:
                    raise Refusal("conflict", str(error)) from None
                except BlockingIOError:
                    await asyncio.sleep(OPEN_AGAIN_S)
                except OSError as error:
                    raise _unavailable(f"no command can be begun now: {error.strerror}") from None
    raise _unavailable(f"the supervisor of attempt {beside.job}/{attempt} has not answered for {OPEN_S:g} s")


def _unavailable(why: str) -> Refusal:
    return Refusal("unavailable", f"{why}: try again in a moment", {"retry_after_s": 1})


async def _converse(websocket: WebSocket, line: Line, standing: Standing) -> None:
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
