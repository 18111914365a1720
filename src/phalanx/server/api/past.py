"""Looking back: routes that tell of a past moment read the picture of it in place of the store."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import msgspec
from fastapi import Depends, Query
from starlette.concurrency import run_in_threadpool

from phalanx.server.api.auth import WorkerContext
from phalanx.server.api.context import SHOWN, Context, Moment
from phalanx.server.api.planner import ask_about
from phalanx.server.past.reading import open_picture, told_in
from phalanx.server.planner.questions import DrawPicture, asked_by
from phalanx.server.refusal import Refusal
from phalanx.server.store.database import database_file
from phalanx.server.store.journal import first_after, first_ms

TIME_MAX = 1 << 62
OPEN_MAX = 4
"""Pictures that a worker has open."""

AHEAD_MS = 5_000
"""So much later than the server's clock a caller may believe it is."""

At = Annotated[
    int | None, Query(ge=0, le=TIME_MAX, description="As it was then, in milliseconds since 1970. Now, if not given.")
]


async def looks_back(context: WorkerContext, at: At = None) -> None:
    """Has the rest of a request see a past moment."""
    if at is not None:
        SHOWN.set(await _moment(context, at))


PAST = [Depends(looks_back)]


async def span(context: Context) -> tuple[int, int]:
    """The moments of the first record, and of the last that can be looked at: now, where jobs are scheduled."""
    shown = context.options.shown
    if shown is not None:
        return shown.first_ms, shown.last_ms
    return await context.read_now(first_ms), context.now_ms()


async def _moment(context: Context, at_ms: int) -> Moment | None:
    begin_ms, end_ms = await span(context)
    if at_ms < begin_ms:
        raise _outside(at_ms, "before the first record, which is of", begin_ms, (begin_ms, end_ms))
    if context.options.shown and at_ms > end_ms:
        raise _outside(at_ms, "after the last record, which is of", end_ms, (begin_ms, end_ms))
    if at_ms > end_ms + AHEAD_MS:
        raise _outside(at_ms, "still to come: it is", end_ms, (begin_ms, end_ms))
    if database_file(context.options.store_url) is None:
        raise Refusal(
            "invalid",
            "the past is not shown of a store in PostgreSQL: open a debug bundle with `phalanx view`",
        )
    seq = await context.read_now(first_after, at_ms + 1) - 1
    async with context.looking_back:
        known = context.pictures.pop((seq, at_ms), None) or await _opened(context, seq, at_ms)
        context.pictures[seq, at_ms] = known
        while len(context.pictures) > OPEN_MAX:
            oldest = next(iter(context.pictures))
            await run_in_threadpool(context.pictures.pop(oldest).database.close)
    return known


async def _opened(context: Context, seq: int, at_ms: int) -> Moment:
    drawn = msgspec.json.decode(await ask_about(context, asked_by("", DrawPicture(), seq, at_ms)))
    folder = Path(drawn["folder"])
    told = await run_in_threadpool(told_in, folder)
    database = open_picture(folder, context.options.store_url, seq, at_ms)
    return Moment(at_ms, seq, database, folder, told)


def _outside(at_ms: int, how: str, bound_ms: int, between: tuple[int, int]) -> Refusal:
    words = f"{_words(at_ms)} is {how} {_words(bound_ms)}"
    return Refusal("invalid", words, {"first_ms": between[0], "last_ms": between[1]})


def _words(ms: int) -> str:
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, ValueError, OSError):
        return f"{ms} ms"
