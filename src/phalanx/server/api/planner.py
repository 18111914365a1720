"""The line from API workers to the planner: a question of a user, and the answer."""

from __future__ import annotations

import asyncio
import time

import msgspec

from phalanx.server.api.context import SHOWN, Context
from phalanx.server.planner.questions import Asked, ExpectStart, Question, asked_by, encoded, reply_of
from phalanx.server.refusal import Refusal
from phalanx.server.unix import short_address

PATIENCE_S = 90.0
START_S = 15.0
AGAIN_S = 0.1

SUBMITTER_PATIENCE_S = 5.0
"""How long a submitter waits to be told when a job will start: it is submitted already."""


async def ask(context: Context, user: str, question: Question, patience_s: float = PATIENCE_S) -> bytes:
    """Has the planner answer a user within a time, about the moment that is shown. What it refuses is raised."""
    moment = SHOWN.get()
    about = (moment.seq, moment.at_ms) if moment is not None else (-1, 0)
    return await ask_about(context, asked_by(user, question, *about), patience_s)


async def ask_about(context: Context, asked: Asked, patience_s: float = PATIENCE_S) -> bytes:
    """Hands a question over."""
    try:
        async with asyncio.timeout(patience_s):
            reader, writer = await _planner(context)
            try:
                writer.write(encoded(asked))
                writer.write_eof()
                reply = reply_of(await reader.read(-1))
            finally:
                writer.close()
    except (OSError, TimeoutError, msgspec.DecodeError):
        raise Refusal("unavailable", "the planner is starting or busy: ask again", {"retry_after_s": 1}) from None
    if reply.status >= 400:
        refusal = msgspec.json.decode(reply.body)
        raise Refusal(refusal["code"], refusal["message"], refusal["detail"])
    return reply.body


async def _planner(context: Context) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A line to the planner. One that is just starting is waited for."""
    deadline_s = time.monotonic() + START_S
    while True:
        try:
            with short_address(context.options.file("run", "planner.sock")) as address:
                return await asyncio.open_unix_connection(address)
        except OSError:
            if time.monotonic() > deadline_s:
                raise
        await asyncio.sleep(AGAIN_S)


async def expected_start_ms(context: Context, user: str, job: str) -> int | None:
    """When a job that was just submitted will start; None if that is not found out soon."""
    try:
        told = await ask(context, user, ExpectStart(job), SUBMITTER_PATIENCE_S)
    except Refusal:
        return None
    found: int | None = msgspec.json.decode(told)["expected_start_ms"]
    return found
