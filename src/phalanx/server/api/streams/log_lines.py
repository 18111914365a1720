"""Logs of jobs line by line: of all tasks in the order in which they were written, with the time of each."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Literal, TypeVar

import msgspec
from fastapi import APIRouter, Query, Request

from phalanx.backends.local.logs.lines import LogLine
from phalanx.backends.local.logs.merged import MergedLogs, Selection
from phalanx.server.api.auth import SignedIn, WorkerContext
from phalanx.server.api.context import Context
from phalanx.server.api.described import READ, content
from phalanx.server.api.routes.jobs import Ref, find
from phalanx.server.api.streams.held import HeldResponse
from phalanx.server.api.streams.logs import LOOK_S, has_ended, number_of
from phalanx.server.api.streams.standing import Standing
from phalanx.server.refusal import Refusal

router = APIRouter(tags=["jobs"])

Found = TypeVar("Found")

TAIL_MAX = 1_000_000
PIECE_BYTES = 1 << 16


@router.get("/jobs/{job}/log-lines", responses=content("application/x-ndjson", READ))
async def read_log_lines(
    job: Ref,
    request: Request,
    account: SignedIn,
    context: WorkerContext,
    rank: Annotated[int | None, Query(ge=0, le=1_000_000, description="Of one task; of all, if not given.")] = None,
    stream: Annotated[Literal["out", "err"] | None, Query(description="Of one of them; of both, if not given.")] = None,
    attempt: Annotated[int | None, Query(ge=1, le=1_000_000, description="The newest, if not given.")] = None,
    since_ms: Annotated[int | None, Query(ge=0, le=1 << 62, description="Only what was written since then.")] = None,
    tail: Annotated[int | None, Query(ge=0, le=TAIL_MAX, description="Only so many lines, the last.")] = None,
    follow: Annotated[bool, Query(description="Wait for more until the attempt has ended.")] = False,
) -> HeldResponse:
    """Read what the tasks of a job have printed as lines in the order in which they were written, an object each.

    `at_ms` is when the line was written: exact for a line that was written by itself, up to 50 ms late in a
    burst, and null for attempts that an older version began. `end` is the offset behind the line in the log of its
    task and stream. `text` is UTF-8, with U+FFFD for what is not. What ends with a carriage return is a line; of one
    that is longer than 64 KiB each part is, with `whole` false but for the last.
    """
    item = await find(job, account, context)
    number = number_of(item, attempt)
    selection = Selection(rank, stream, since_ms, tail)
    folder = context.options.file("jobs", item["id"], str(number))
    logs = MergedLogs(folder, selection)
    reader = Reader(context, account.user, logs)
    if since_ms is not None and await reader.find(logs.undated) is not None:
        raise Refusal(
            "conflict",
            f"attempt {item['id']}/{number} was begun by a version that kept no times of its lines: leave out since_ms",
        )
    await reader.find(logs.begin, not follow)
    body = _lines(reader, item["id"], number, follow)
    standing = Standing(context, request.state.token, lambda account: account.sees(item["queue"]))
    slots = context.connections.followers if follow else None
    headers = {"X-Phalanx-Attempt": str(number)}
    return HeldResponse(body, "application/x-ndjson", headers, standing, account.user, slots)


@dataclass(frozen=True, slots=True)
class Reader:
    """A user that reads logs. A read goes on in its thread only as long as the user waits for it."""

    context: Context
    user: str
    logs: MergedLogs

    async def find(self, look: Callable[..., Found], *arguments: object) -> Found:
        """What a look at the logs finds."""
        try:
            return await self.context.of_file(self.user, look, *arguments)
        except asyncio.CancelledError:
            self.logs.stop()
            raise


async def _lines(reader: Reader, job: str, attempt: int, follow: bool) -> AsyncGenerator[bytes, None]:
    engine, ended, known = reader.context.engine, not follow, None
    while True:
        if follow and engine.news.seq != known:
            known = engine.news.seq
            ended = await has_ended(reader.context, job, attempt)
        lines = await reader.find(reader.logs.lines, ended)
        while piece := await reader.find(_piece, lines):
            yield piece
        if ended:
            return
        await asyncio.sleep(LOOK_S)


def _piece(lines: Iterator[LogLine]) -> bytes:
    """Some of the lines as they are sent; nothing once there is none."""
    piece = bytearray()
    for line in lines:
        piece += _encoded(line)
        if len(piece) >= PIECE_BYTES:
            break
    return bytes(piece)


def _encoded(line: LogLine) -> bytes:
    told = {
        "at_ms": line.at_ms,
        "rank": line.rank,
        "stream": line.stream,
        "end": line.end,
        "text": line.text.decode(errors="replace"),
        "whole": line.whole,
    }
    return msgspec.json.encode(told) + b"\n"
