"""The worker's line to the loop: hands mutations over, and hears how far the journal is durable."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from itertools import count
from pathlib import Path

import msgspec

from phalanx.server.log import last_error
from phalanx.server.loop.wire import LENGTH, Answer, Caller, Mutation, News, Request, framed, message_of
from phalanx.server.refusal import Refusal
from phalanx.server.unix import short_address

AGAIN_S = 0.1
BUFFER_BYTES = 64 << 20

ONLY_SHOWN = "a journal is shown here, by `phalanx view`: nothing can be changed; ask the server that it is of"


class Engine:
    """A connection to the loop that is made again whenever it breaks."""

    def __init__(self, path: Path, log: Path) -> None:
        self._path = path
        self._log = log
        self._numbers = count(1)
        self._waiting: dict[int, asyncio.Future[Answer]] = {}
        self._writer: asyncio.StreamWriter | None = None
        self._changed = asyncio.Event()
        self.news = News(-1)

    @property
    def connected(self) -> bool:
        """Whether the loop is there, with its State recovered."""
        return self._writer is not None and self.news.seq >= 0

    @property
    def trouble(self) -> str:
        """Why the loop is not there."""
        failed_of = last_error(self._log)
        return f"the engine could not go on ({failed_of})" if failed_of else "the engine is starting"

    async def keep_connected(self) -> None:
        """Connects, listens, and connects again, until cancelled."""
        while True:
            with suppress(OSError, asyncio.IncompleteReadError, msgspec.DecodeError):
                with short_address(self._path) as address:
                    reader, self._writer = await asyncio.open_unix_connection(address, limit=BUFFER_BYTES)
                try:
                    await self._listen(reader)
                finally:
                    self._hang_up()
            await asyncio.sleep(AGAIN_S)

    async def ask(self, caller: Caller, body: Mutation) -> Answer:
        """Hands a mutation over and waits until it is durable. A refusal of the loop is an answer too."""
        writer = self._writer
        if writer is None or writer.is_closing():
            raise Refusal("unavailable", f"{self.trouble}: try again in a moment", {"retry_after_s": 1})
        number = next(self._numbers)
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        try:
            writer.write(framed(Request(number, caller, body)))
            await writer.drain()
            return await future
        except (OSError, RuntimeError):
            # A transport that is closing may refuse to write with a RuntimeError.
            raise _broken() from None
        finally:
            self._waiting.pop(number, None)

    async def beyond(self, seq: int, timeout_s: float) -> None:
        """Waits until the journal is durable beyond a record, at most so long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while self.news.seq <= seq:
                    self._changed.clear()
                    await self._changed.wait()

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        while True:
            (size,) = LENGTH.unpack(await reader.readexactly(LENGTH.size))
            message = message_of(await reader.readexactly(size))
            if isinstance(message, News):
                self.news = message
                self._changed.set()
            else:
                future = self._waiting.get(message.number)
                if future is not None and not future.done():
                    future.set_result(message)

    def _hang_up(self) -> None:
        if self._writer is not None:
            self._writer.close()
        self._writer = None
        self.news = News(-1)
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(_broken())


class NoEngine(Engine):
    """What stands for the loop where a journal is shown: nothing more happens, and nothing can be changed."""

    def __init__(self, seq: int) -> None:
        super().__init__(Path(), Path())
        self.news = News(seq)

    @property
    def connected(self) -> bool:
        """The State is all there."""
        return True

    async def keep_connected(self) -> None:
        """There is nothing to connect to."""

    async def ask(self, caller: Caller, body: Mutation) -> Answer:
        """Refuses every mutation."""
        raise Refusal("forbidden", ONLY_SHOWN)


def _broken() -> Refusal:
    return Refusal(
        "unavailable",
        "the engine went away before it answered: ask again with the same Idempotency-Key, and nothing is done twice",
        {"retry_after_s": 1},
    )
