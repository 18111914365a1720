"""Attempts that a restored store does not know: what became of them, and what they printed."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Response
from fastapi import Path as InPath
from starlette.responses import StreamingResponse

from phalanx.backends.live import FoundAttempt
from phalanx.server.accounts.roles import Account
from phalanx.server.api.auth import SignedIn, WorkerContext
from phalanx.server.api.context import Context
from phalanx.server.api.described import READ, answers, content
from phalanx.server.api.models.found import FoundListModel
from phalanx.server.api.pages import as_list
from phalanx.server.api.streams.logs import is_there, read_log
from phalanx.server.refusal import Refusal

router = APIRouter(tags=["jobs"])

FoundId = Annotated[str, InPath(max_length=100, description="The id of the list.")]


@router.get("/found", responses=answers(FoundListModel))
async def list_found(account: SignedIn, context: WorkerContext) -> Response:
    """List attempts that were found after the store was restored from a backup, and that it does not know."""
    return as_list([asdict(found) for found in await _seen(account, context)])


@router.get("/found/{found}/logs", responses=content("text/plain", READ))
async def read_found_logs(
    found: FoundId,
    account: SignedIn,
    context: WorkerContext,
    rank: Annotated[int, Query(ge=0, le=1_000_000)] = 0,
    stream: Annotated[Literal["out", "err"], Query()] = "out",
) -> StreamingResponse:
    """Read what a task of an attempt that was found had printed."""
    paths = {each.id: each.path for each in await _seen(account, context)}
    if found not in paths:
        raise Refusal("not_found", f"no attempt {found!r} was found")
    path = Path(paths[found], f"{rank}.{stream}")
    if not is_there(path):
        raise Refusal("not_found", f"{found} has no task of rank {rank} that has printed anything")
    return StreamingResponse(read_log(context, account.user, path, 0), media_type="text/plain; charset=utf-8")


async def _seen(account: Account, context: Context) -> list[FoundAttempt]:
    """Those of queues that the account may look at; an attempt of no known queue is for accounts that see all."""
    from phalanx.backends.local.unknown_attempts import list_found as found_in

    found = await asyncio.to_thread(found_in, context.options.file())
    return [each for each in found if account.sees(each.queue)]
