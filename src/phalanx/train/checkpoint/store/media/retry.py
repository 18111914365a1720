"""Bounded patience with a remote store."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from phalanx.train.checkpoint.store.errors import AccessRefused, StoreError, StoreUnreachable
from phalanx.train.checkpoint.store.media.drivers import is_of_driver, is_refused_access

Result = TypeVar("Result")

# Trying again does not help against these.
FINAL = (FileNotFoundError, NotADirectoryError, IsADirectoryError)

ACCESS_ADVICE = (
    "expected credentials that may list, read, write and delete there. "
    "For S3, set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, where every rank runs"
)


@dataclass(frozen=True, slots=True)
class Retry:
    """How often and how long a remote store is asked before it counts as unreachable."""

    attempts: int = 5
    first_wait_s: float = 0.25
    longest_wait_s: float = 10.0
    call_timeout_s: float = 600.0

    def run(self, what: str, call: Callable[[], Result]) -> Result:
        """The call's result, after at most `attempts` tries with doubling waits between them."""
        wait_s = self.first_wait_s
        for attempt in range(1, self.attempts + 1):
            try:
                return within(self.call_timeout_s, call)
            except FINAL:
                raise
            except Exception as error:
                if is_refused_access(error):
                    raise AccessRefused(f"{what}: access refused: {error}; {ACCESS_ADVICE}") from error
                if not isinstance(error, OSError) and not is_of_driver(error):
                    raise
                if attempt == self.attempts:
                    raise StoreUnreachable(
                        f"{what}: failed {attempt} times, last with {type(error).__name__}: {error}"
                    ) from error
            time.sleep(wait_s)
            wait_s = min(2 * wait_s, self.longest_wait_s)
        raise StoreError(f"{what}: expected at least 1 attempt, got {self.attempts}")


def within(timeout_s: float, call: Callable[[], Result]) -> Result:
    """The call's result, or TimeoutError. A call that hangs is left behind in a thread that ends with the process."""
    results: list[Result] = []
    errors: list[BaseException] = []

    def target() -> None:
        try:
            results.append(call())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=target, name="checkpoint-store-call", daemon=True)
    thread.start()
    thread.join(timeout_s)
    if thread.is_alive():
        raise TimeoutError(f"no answer within {timeout_s:g} s")
    if errors:
        raise errors[0]
    return results[0]
