"""The line to a command beside a task: a session on the event loop. It needs no thread, and buffers nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from phalanx.backends.local.session import END_OF_INPUT, NoSession, Session


class Line:
    """A session that is awaited where it would wait itself. One task may read while another writes."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def read(self) -> bytes:
        """What the command prints next; nothing at its end."""
        while (printed := self._session.read_now()) is None:
            await readable(self._session.fileno())
        return printed

    async def write(self, data: bytes) -> None:
        """Types into the command, as fast as it reads. What it does not want any more is dropped."""
        left = memoryview(data)
        with suppress(OSError):
            while left := left[self._session.write_now(left) :]:
                await _writable(self._session.fileno())

    async def end_input(self) -> None:
        """Tells the command that nothing more will be typed."""
        if self._session.is_terminal:
            await self.write(END_OF_INPUT)
        else:
            with suppress(OSError):
                self._session.shut_input()

    def resize(self, rows: int, columns: int) -> None:
        """Sets the size of the command's terminal."""
        with suppress(OSError):
            self._session.resize(rows, columns)

    async def exit_code(self, timeout_s: float) -> int:
        """The command's exit code, once it has ended; negative for a signal."""
        try:
            async with asyncio.timeout(timeout_s):
                while (code := self._session.exit_now()) is None:
                    await readable(self._session.exit_fileno())
                return code
        except TimeoutError:
            raise NoSession(f"the command printed its last, but did not end within {timeout_s:g} s") from None

    def close(self) -> None:
        """Hangs up, which ends the command if it still runs."""
        self._session.close()


async def readable(handle: int) -> None:
    """Waits until there is something to read."""
    loop = asyncio.get_running_loop()
    await _ready(handle, loop.add_reader, loop.remove_reader)


async def _writable(handle: int) -> None:
    loop = asyncio.get_running_loop()
    await _ready(handle, loop.add_writer, loop.remove_writer)


async def _ready(handle: int, add: Callable[..., object], remove: Callable[[int], object]) -> None:
    ready = asyncio.get_running_loop().create_future()
    add(handle, lambda: None if ready.done() else ready.set_result(None))
    try:
        await ready
    finally:
        remove(handle)
