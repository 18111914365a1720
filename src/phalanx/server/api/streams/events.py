"""The stream of events: the journal as it grows, for accounts that may see what it tells of."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from typing import Annotated

from fastapi import APIRouter, Header, Query, Request

from phalanx.server.api.auth import SignedIn, WorkerContext
from phalanx.server.api.context import Context
from phalanx.server.api.described import LIST, content
from phalanx.server.api.streams.held import HeldResponse
from phalanx.server.api.streams.live import live
from phalanx.server.api.streams.records import QUIET_S, chunk_of
from phalanx.server.api.streams.standing import Standing
from phalanx.server.refusal import Refusal

router = APIRouter(tags=["events"])

SEQ_MAX = 1 << 62
_SEQ = re.compile(r"[0-9]{1,19}")


@router.get("/events", responses=content("text/event-stream", LIST))
async def stream_events(
    request: Request,
    account: SignedIn,
    context: WorkerContext,
    since: Annotated[int | None, Query(ge=-1, le=SEQ_MAX, description="Begin after this record.")] = None,
    last_event_id: Annotated[str, Header(description="Goes on where a stream broke off.")] = "",
    follow: Annotated[bool, Query(description="Wait for more when all has been sent.")] = True,
    live_only: Annotated[
        bool, Query(alias="live", description="For pages: bounded pieces, also under load. It always follows.")
    ] = False,
) -> HeldResponse:
    """Stream journal records as server-sent events; without `since`, those that are made from now on.

    Of jobs that the caller may not change, each value of a variable is `…`.

    With `live` at most four pieces a second come. More than 50 new records are told of in one event `changes` with the
    `jobs` they are about and their number by `types`; `more` says that not all jobs are named. A client that is more
    than 10,000 records behind gets an event `gap` instead: it must read anew what it shows. An event `figures`, which
    has no id, says that series have new points.
    """
    if not account.seen_queues:
        raise Refusal("forbidden", "you have no role anywhere: ask an admin for one")
    start = _seq_of(last_event_id) if last_event_id else since if since is not None else context.engine.news.seq
    standing = Standing(context, request.state.token, lambda account: bool(account.seen_queues))
    headers = {"X-Accel-Buffering": "no"}
    body = live(standing, context, start) if live_only else _stream(standing, context, start, follow)
    return HeldResponse(body, "text/event-stream", headers, standing, account.user, context.connections.streams)


def _seq_of(last_event_id: str) -> int:
    """The record that a stream broke off after."""
    if not _SEQ.fullmatch(last_event_id) or int(last_event_id) > SEQ_MAX:
        raise Refusal("bad_request", f"expected in Last-Event-ID the number of a record, from 0 to {SEQ_MAX}")
    return int(last_event_id)


async def _stream(standing: Standing, context: Context, seq: int, follow: bool) -> AsyncGenerator[bytes, None]:
    yield b": phalanx journal\n\n"
    while True:
        chunk, lines = await context.read(chunk_of, seq, await standing.account())
        if chunk is not None:
            yield b"".join(lines)
            seq = chunk
            continue
        if not follow:
            return
        await context.engine.beyond(seq, QUIET_S)
        if context.engine.news.seq <= seq:
            yield b": still here\n\n"
