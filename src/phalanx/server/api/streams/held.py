"""Responses that go on: each is cut when its caller loses the right to it, and may hold a slot until it ends."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Mapping
from contextlib import ExitStack, suppress

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from phalanx.server.api.streams.slots import Slots
from phalanx.server.api.streams.standing import Standing
from phalanx.server.refusal import Refusal
from phalanx.server.store.database import StoreError

log = logging.getLogger("phalanx.api")


class HeldResponse(StreamingResponse):
    """A response of which it is unknown how long it takes.

    It is cut, not ended: a client must not take what it has got for all there is.
    """

    def __init__(
        self,
        body: AsyncGenerator[bytes, None],
        media_type: str,
        headers: Mapping[str, str],
        standing: Standing,
        user: str,
        slots: Slots | None,
    ) -> None:
        super().__init__(body, headers=headers, media_type=media_type)
        self._body = body
        self._standing = standing
        self._user = user
        self._slots = slots

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends it. The client may leave, and the right may go, while the client reads nothing."""
        with ExitStack() as held:
            if self._slots is not None:
                held.enter_context(self._slots.held(self._user))
                held.enter_context(self._standing.context.figures.streams.track_inprogress())
            sending = asyncio.create_task(super().__call__(scope, receive, send))
            watching = asyncio.create_task(self._standing.lost())
            try:
                await asyncio.wait((sending, watching), return_when=asyncio.FIRST_COMPLETED)
                if not sending.done():
                    raise await watching
                await sending
            except (Refusal, StoreError) as error:
                log.info("stream cut", extra={"user": self._user, "path": scope["path"], "why": str(error)})
            finally:
                await _ended(sending)
                await _ended(watching)
                await self._body.aclose()


async def _ended(task: asyncio.Task[object]) -> None:
    """Cancels a task and waits for its end. What went wrong in it was told already, or is of no use any more."""
    task.cancel()
    with suppress(asyncio.CancelledError, Exception):
        await task
