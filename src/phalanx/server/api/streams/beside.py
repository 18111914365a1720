"""Commands beside running tasks, and the terminals of tasks themselves, over web sockets."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Query, WebSocket, WebSocketDisconnect

from phalanx.server.api.context import Context
from phalanx.server.api.errors import refused
from phalanx.server.api.streams.conversation import converse
from phalanx.server.api.streams.entry import begun, enter
from phalanx.server.refusal import Refusal

if TYPE_CHECKING:
    from phalanx.backends.local.session import Session

router = APIRouter()

WORDS_MAX = 1_000

Rank = Annotated[int, Query(ge=0, le=1_000_000)]
Size = Annotated[str, Query(pattern=r"^([0-9]{1,4}x[0-9]{1,4})?$")]


@router.websocket("/jobs/{job}/exec")
async def run_beside(
    websocket: WebSocket,
    job: str,
    rank: Rank = 0,
    arg: Annotated[list[str] | None, Query(max_length=WORDS_MAX)] = None,
    tty: Size = "",
) -> None:
    """Run a command beside a task of a job, in its surroundings, if you may change the job. It is audited first."""
    from phalanx.backends.local.session import open_session

    command = arg or ["sh"]
    data = websocket.app.state.context.options.file()

    def session(name: str, attempt: int) -> Session:
        return open_session(data, name, attempt, rank, tuple(command), _size(tty), waits=False)

    await _talk(websocket, job, rank, "exec", command, session)


@router.websocket("/jobs/{job}/attach")
async def attach_to(websocket: WebSocket, job: str, rank: Rank = 0, tty: Size = "") -> None:
    """Attach to the terminal of a task of an interactive job, if you may change the job. It is audited first."""
    from phalanx.backends.local.session import attach

    data = websocket.app.state.context.options.file()

    def session(name: str, attempt: int) -> Session:
        return attach(data, name, attempt, rank, _size(tty) or (0, 0))

    await _talk(websocket, job, rank, "attach", [], session)


async def _talk(
    websocket: WebSocket, job: str, rank: int, verb: str, command: list[str], session: Callable[[str, int], Session]
) -> None:
    from phalanx.server.api.streams.line import Line

    context: Context = websocket.app.state.context
    # The caller may go at any moment, also while the answer to the handshake is sent.
    with ExitStack() as held, suppress(WebSocketDisconnect, RuntimeError, TimeoutError):
        try:
            entry = await enter(websocket, context, job, rank)
            held.enter_context(context.connections.execs.held(entry.account.user))
            attempt = await entry.audited(rank, verb, command)
            line = Line(await begun(lambda: session(entry.item["id"], attempt)))
            held.enter_context(closing(line))
        except Refusal as refusal:
            await websocket.send_denial_response(refused(refusal))
            return
        await websocket.accept()
        await converse(websocket, line, entry.standing)


def _size(tty: str) -> tuple[int, int] | None:
    rows, _, columns = tty.partition("x")
    return (int(rows), int(columns)) if tty else None
