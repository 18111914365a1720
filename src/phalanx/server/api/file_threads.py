"""The threads of a worker that read files of jobs, and what one user may have of them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Found = TypeVar("Found")

FILE_THREADS = 8
"""How many threads of a worker read log files. A disk that hangs stops logs only, never reads of the store."""

PER_USER = 2
"""How many of them read for one user: a log may be of any length, and is the work of the user that asks for it."""

FOR_FIRST_READS = 4
"""How many are kept for users that have none: a few users that read much leave a thread to every other."""


class FileThreads:
    """Has files read beside everything else. A user that asks for much waits for their own turn."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(FILE_THREADS, thread_name_prefix="files")
        self._taken: Counter[str] = Counter()
        self._waiting: list[tuple[str, asyncio.Future[None]]] = []

    async def run(self, user: str, look: Callable[..., Found], *arguments: object) -> Found:
        """What a look of a user finds."""
        await self._turn(user)
        loop = asyncio.get_running_loop()
        looking = self._threads.submit(look, *arguments)
        # A thread that reads for a caller that has gone is taken until it has noticed.
        looking.add_done_callback(lambda _: loop.call_soon_threadsafe(self._leave, user))
        return await asyncio.wrap_future(looking)

    async def _turn(self, user: str) -> None:
        """Waits for a thread and takes it."""
        if self._may_take(user):
            self._taken[user] += 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((user, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._waiting.remove((user, turn))
            else:
                self._leave(user)
            raise

    def _may_take(self, user: str) -> bool:
        free = FILE_THREADS - self._taken.total()
        taken = self._taken[user]
        return free > 0 if not taken else taken < PER_USER and free > FOR_FIRST_READS

    def _leave(self, user: str) -> None:
        """Gives a thread back, and each that is free to the user that has waited longest of those that may take it."""
        self._taken[user] -= 1
        if not self._taken[user]:
            del self._taken[user]
        for waiter, turn in list(self._waiting):
            if not turn.done() and self._may_take(waiter):
                self._waiting.remove((waiter, turn))
                self._taken[waiter] += 1
                turn.set_result(None)
