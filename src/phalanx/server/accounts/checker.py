"""The password checker of a worker: hashes one password at a time, and keeps few waiting.

A hash costs tens of milliseconds and 64 MB on purpose. On the threads that read the store, log-ins that need no account
would keep every user's reads waiting.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Lock, get_native_id
from typing import TypeVar

from phalanx.server.accounts import passwords
from phalanx.server.accounts.throttle import FailureThrottle
from phalanx.server.refusal import Refusal

Found = TypeVar("Found")

WAITING_MAX = 8
"""How many passwords may wait for the one that is hashed."""

NICE = 4
"""How far back the thread stands for the processor: requests of users that are in already go first. Farther back, a
log-in takes half a minute on a machine whose jobs keep all its cores busy."""


class PasswordChecker:
    """One thread that hashes and compares passwords, behind a throttle of failures."""

    def __init__(self, throttle: FailureThrottle | None = None) -> None:
        self._throttle = throttle or FailureThrottle()
        self._thread = ThreadPoolExecutor(1, "passwords", initializer=_stand_back)
        self._lock = Lock()
        self._taken = 0

    async def hashed(self, password: str) -> str:
        """What is kept of a password."""
        return await self._run(lambda: passwords.hashed(password))

    async def matches(self, user: str, address: str, kept: str | None, password: str) -> bool:
        """Whether a password is a user's. Failures are counted; after too many no password is looked at for a while."""
        self._need_patience(user, address)

        def check() -> bool:
            # Those before this one in the queue may have failed meanwhile.
            self._need_patience(user, address)
            right = passwords.matches(kept, password)
            if not right:
                self._throttle.add(user, address)
            return right

        return await self._run(check)

    async def _run(self, work: Callable[[], Found]) -> Found:
        with self._lock:
            if self._taken > WAITING_MAX:
                raise Refusal(
                    "rate_limited",
                    f"{self._taken} passwords are being checked already: try again in a moment",
                    {"retry_after_s": 1},
                )
            self._taken += 1
        future = self._thread.submit(work)
        future.add_done_callback(self._leave)
        return await asyncio.wrap_future(future)

    def _leave(self, _: Future[Found]) -> None:
        with self._lock:
            self._taken -= 1

    def _need_patience(self, user: str, address: str) -> None:
        pause_s = self._throttle.pause_s(user, address)
        if pause_s:
            raise Refusal(
                "rate_limited",
                f"too many wrong passwords for this user or from this address: try again in {pause_s} s",
                {"retry_after_s": pause_s},
            )


def _stand_back() -> None:
    os.setpriority(os.PRIO_PROCESS, get_native_id(), NICE)
