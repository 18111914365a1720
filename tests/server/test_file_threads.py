"""The threads that read files of jobs: what a user may have of them, and what a caller that leaves gives back."""

from __future__ import annotations

import asyncio
from threading import Event

import pytest

from phalanx.server.api.file_threads import FILE_THREADS, PER_USER, FileThreads

PATIENCE_S = 20.0


async def started(threads: FileThreads, user: str, until: Event) -> asyncio.Task[bool]:
    """A look of a user that goes on until an event."""
    look = asyncio.create_task(threads.run(user, until.wait, PATIENCE_S))
    await asyncio.sleep(0)
    return look


@pytest.mark.parametrize("many", [1, 2, 5])
def test_users_who_read_much_leave_a_thread_to_every_other_user(many: int) -> None:
    async def scene() -> str:
        threads, over = FileThreads(), Event()
        greedy = [await started(threads, f"greedy-{n}", over) for n in range(many) for _ in range(FILE_THREADS)]
        try:
            return await asyncio.wait_for(threads.run("alice", lambda: "found"), PATIENCE_S / 2)
        finally:
            over.set()
            await asyncio.gather(*greedy)

    assert asyncio.run(scene()) == "found"


def test_every_look_has_its_turn_in_the_end() -> None:
    async def scene() -> list[int]:
        threads = FileThreads()
        return await asyncio.gather(*(threads.run("greedy", lambda n=n: n) for n in range(50)))

    assert asyncio.run(scene()) == list(range(50))


def test_a_caller_that_leaves_while_it_waits_takes_no_turn() -> None:
    async def scene() -> str:
        threads, over = FileThreads(), Event()
        reading = [await started(threads, "bob", over) for _ in range(PER_USER)]
        waiting = [await started(threads, "bob", over) for _ in range(10)]
        for look in waiting:
            look.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        over.set()
        await asyncio.gather(*reading)
        return await asyncio.wait_for(threads.run("bob", lambda: "found"), PATIENCE_S / 2)

    assert asyncio.run(scene()) == "found"
