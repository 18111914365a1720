"""The threads of a worker that read files of jobs, and what one user may have of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Found = TypeVar("Found")

FILE_THREADS = 4
"""How many threads of a worker read log files. A disk that hangs stops logs only, never reads of the store."""

PER_USER = 2
"""How many of them read for one user: a log may be of any length, and is the work of who asks for it."""


class FileThreads:
    """Has files read beside everything else. A user who asks for much waits for their own turn."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(FILE_THREADS, thread_name_prefix="files")
        self._shares: dict[str, _Share] = {}

    async def run(self, user: str, look: Callable[..., Found], *arguments: object) -> Found:
        """What a look of a user finds."""
        share = self._shares.setdefault(user, _Share())
        share.users += 1
        try:
            await share.turns.acquire()
        except BaseException:
            self._leave(user, share)
            raise
        loop = asyncio.get_running_loop()

        def leave() -> None:
            share.turns.release()
            self._leave(user, share)

        looking = self._threads.submit(look, *arguments)
        # A thread that reads for a caller that has gone is still taken.
        looking.add_done_callback(lambda _: loop.call_soon_threadsafe(leave))
        return await asyncio.wrap_future(looking)

    def _leave(self, user: str, share: _Share) -> None:
        share.users -= 1
        if not share.users:
            del self._shares[user]


class _Share:
    """What one user has of the threads, and for how many looks it is kept."""

    def __init__(self) -> None:
        self.turns = asyncio.Semaphore(PER_USER)
        self.users = 0
