"""Logs of jobs: what their tasks print, as files of the attempt's folder."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request

from phalanx.backends.local.logs.files import read_piece, where
from phalanx.server.api.auth import SignedIn, WorkerContext
from phalanx.server.api.context import Context
from phalanx.server.api.described import READ, content
from phalanx.server.api.routes.jobs import Ref, find
from phalanx.server.api.streams.held import HeldResponse
from phalanx.server.api.streams.standing import Standing
from phalanx.server.refusal import Refusal
from phalanx.server.store import jobs as table

router = APIRouter(tags=["jobs"])

PIECE_BYTES = 1 << 18
LOOK_S = 0.2


@router.get("/jobs/{job}/logs", responses=content("text/plain", READ))
async def read_logs(
    job: Ref,
    request: Request,
    account: SignedIn,
    context: WorkerContext,
    rank: Annotated[int, Query(ge=0, le=1_000_000)] = 0,
    stream: Annotated[Literal["out", "err"], Query()] = "out",
    attempt: Annotated[int | None, Query(ge=1, le=1_000_000, description="The newest, if not given.")] = None,
    offset: Annotated[int, Query(ge=0, le=1 << 62, description="Begin at this byte.")] = 0,
    tail: Annotated[int | None, Query(ge=0, le=1 << 30, description="Begin so many bytes before the end.")] = None,
    follow: Annotated[bool, Query(description="Wait for more until the attempt has ended.")] = False,
) -> HeldResponse:
    """Read what a task of a job has printed. `X-Phalanx-Offset` is where the answer begins."""
    item = await find(job, account, context)
    number = number_of(item, attempt)
    path = context.options.file("jobs", item["id"], str(number), f"{rank}.{stream}")
    if not follow and not await context.of_file(account.user, is_there, path):
        raise Refusal(
            "not_found", f"attempt {item['id']}/{number} has no task of rank {rank} that has printed anything"
        )
    if tail is not None:
        offset = max(await context.of_file(account.user, _size, path) - tail, 0)
    user = account.user
    body = _follow(context, user, path, offset, item["id"], number) if follow else read_log(context, user, path, offset)
    headers = {"X-Phalanx-Offset": str(offset), "X-Phalanx-Attempt": str(number)}
    standing = Standing(context, request.state.token, lambda account: account.sees(item["queue"]))
    slots = context.connections.followers if follow else None
    return HeldResponse(body, "text/plain; charset=utf-8", headers, standing, account.user, slots)


def number_of(item: dict[str, Any], attempt: int | None) -> int:
    """The number of the attempt that is asked for, the newest if none is."""
    number: int = attempt or item["attempts"]
    if not number:
        raise Refusal("not_found", f"job {item['id']} has not been started yet, so it has printed nothing")
    if number > item["attempts"]:
        counted = "1 attempt" if item["attempts"] == 1 else f"{item['attempts']} attempts"
        raise Refusal("not_found", f"job {item['id']} has had {counted}, not {number}")
    return number


async def read_log(context: Context, user: str, path: Path, offset: int) -> AsyncGenerator[bytes, None]:
    """What is there now; what is printed meanwhile is for the next request."""
    end = await context.of_file(user, _size, path)
    while offset < end:
        piece = await context.of_file(user, _piece, path, offset, min(PIECE_BYTES, end - offset))
        if not piece:
            return
        yield piece
        offset += len(piece)


async def _follow(
    context: Context, user: str, path: Path, offset: int, job: str, attempt: int
) -> AsyncGenerator[bytes, None]:
    ended, known = False, None
    while True:
        # An attempt ends by a record of the journal, so that there is nothing to look up before the next.
        if context.engine.news.seq != known:
            known = context.engine.news.seq
            ended = await has_ended(context, job, attempt)
        piece = await context.of_file(user, _piece, path, offset, PIECE_BYTES)
        if piece:
            yield piece
            offset += len(piece)
        elif ended:
            return
        else:
            await asyncio.sleep(LOOK_S)


async def has_ended(context: Context, job: str, attempt: int) -> bool:
    """Whether an attempt is over, so that nothing more is printed."""
    attempts = await context.read(table.attempts_of, job)
    return all(each["phase"] == "ended" for each in attempts if each["number"] == attempt)


def _piece(path: Path, offset: int, size: int) -> bytes:
    return read_piece(where(path), offset, size)


def _size(path: Path) -> int:
    found = where(path)
    return found.stat().st_size if found.is_file() else 0


def is_there(path: Path) -> bool:
    """Whether a task has a log, in the folder of its attempt or of its node."""
    return where(path).is_file()
