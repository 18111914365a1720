"""Access to a running job: to run a command beside a task, attach to it or reach its ports. It is audited first."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec
from fastapi import WebSocket

from phalanx.server.accounts.roles import Account
from phalanx.server.api.admission.owner import need_acting_as
from phalanx.server.api.auth import account_of_token
from phalanx.server.api.context import Context
from phalanx.server.api.routes.jobs import changeable, hand_over
from phalanx.server.api.streams.standing import Standing
from phalanx.server.loop.wire import Caller, RunBeside
from phalanx.server.refusal import Refusal
from phalanx.server.store.jobs import ranks_of

OPEN_S = 5.0
OPEN_AGAIN_S = 0.05

Begun = TypeVar("Begun")


@dataclass(frozen=True, slots=True)
class Entry:
    """A caller that may change a running job."""

    context: Context
    token: str
    account: Account
    item: dict[str, Any]
    origin: str

    @property
    def standing(self) -> Standing:
        """Whether the right lasts."""
        queue, user = self.item["queue"], self.item["user"]
        return Standing(self.context, self.token, lambda now: now.may_change(queue, user))

    async def audited(self, rank: int, verb: str, command: list[str]) -> int:
        """Has the audit log say what is done; the number of the attempt that runs."""
        asked = RunBeside(self.item["id"], rank, command, verb)
        answer = await hand_over(self.context, Caller(self.account.user, self.account.token, self.origin), asked)
        attempt: int = msgspec.json.decode(answer.body)["attempt"]
        return attempt


async def enter(websocket: WebSocket, context: Context, job: str, rank: int) -> Entry:
    """Admits a caller to a task of a job that it may change, if it may act for the user that the job belongs to."""
    token, account = await _account(websocket, context)
    item = await changeable(job, account, context)
    if item["state"] != "running":
        state = "pending" if item["state"] == "waiting" else item["state"]
        raise Refusal("conflict", f"job {item['id']} is not running ({state}): this needs a running job")
    await need_acting_as(item["user"], account, context)
    if context.options.backend != "local":
        raise Refusal("conflict", f"the backend {context.options.backend} allows no commands in its tasks")
    await _need_task(item, rank, context)
    return Entry(context, token, account, item, websocket.client.host if websocket.client else "")


async def _need_task(item: dict[str, Any], rank: int, context: Context) -> None:
    ranks = await context.read(ranks_of, item["id"], item["attempts"])
    if ranks and rank not in ranks:
        there = f"tasks {ranks[0]} to {ranks[-1]}" if len(ranks) > 1 else f"task {ranks[0]}"
        raise Refusal("not_found", f"job {item['id']} has no task {rank}: it has {there}")


async def _account(websocket: WebSocket, context: Context) -> tuple[str, Account]:
    scheme, _, token = websocket.headers.get("authorization", "").partition(" ")
    account = await account_of_token(context, token) if scheme.lower() == "bearer" and token else None
    if account is None:
        raise Refusal("unauthenticated", "expected a valid token in the header 'Authorization: Bearer TOKEN'")
    return token, account


async def begun(begin: Callable[[], Begun]) -> Begun:
    """What a supervisor begins. One that is busy is asked again for a while, and never waited for."""
    from phalanx.backends.local.session import NoSession

    with suppress(TimeoutError):
        async with asyncio.timeout(OPEN_S):
            while True:
                try:
                    return begin()
                except NoSession as error:
                    raise Refusal("conflict", str(error)) from None
                except BlockingIOError:
                    await asyncio.sleep(OPEN_AGAIN_S)
                except OSError as error:
                    raise _unavailable(f"no command can be begun now: {error.strerror}") from None
    raise _unavailable(f"the supervisor of the attempt has not answered for {OPEN_S:g} s")


def _unavailable(why: str) -> Refusal:
    return Refusal("unavailable", f"{why}: try again in a moment", {"retry_after_s": 1})
