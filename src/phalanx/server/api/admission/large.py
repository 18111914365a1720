"""Large bodies: read in a thread, one at a time, so that a worker goes on serving meanwhile."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from fastapi import Request, Response
from fastapi.routing import APIRoute

Found = TypeVar("Found")
Given = ParamSpec("Given")

INLINE_BYTES_MAX = 32 << 10
"""Bodies up to this are read at once: that takes less than handing them over."""

_one = asyncio.Lock()


async def read_large(size: int, read: Callable[Given, Found], *given: Given.args, **named: Given.kwargs) -> Found:
    """Reads something of so many bytes. Of large ones one is read at a time: each more would slow all requests down."""
    if size <= INLINE_BYTES_MAX:
        return read(*given, **named)
    async with _one:
        return await asyncio.to_thread(read, *given, **named)


class LargeRequest(Request):
    """A request whose JSON is read as large bodies are."""

    async def json(self) -> Any:
        """The body as JSON."""
        body = await self.body()
        return await read_large(len(body), json.loads, body)


class LargeRoute(APIRoute):
    """A route that takes large bodies as models."""

    def get_route_handler(self) -> Callable[[Request], Any]:
        """What answers a request."""
        answer = super().get_route_handler()

        async def answer_large(request: Request) -> Response:
            found: Response = await answer(LargeRequest(request.scope, request.receive))
            return found

        return answer_large
