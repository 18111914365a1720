"""The clock of the speed benchmarks: CPU time of the thread that works, which other programs do not add to."""

from __future__ import annotations

from collections.abc import Callable
from time import thread_time, thread_time_ns
from typing import TypeVar

Answer = TypeVar("Answer")


def timed_us(work: Callable[[], Answer]) -> tuple[float, Answer]:
    """Microseconds that some work takes, and what it answers."""
    start = thread_time_ns()
    answer = work()
    return (thread_time_ns() - start) / 1_000, answer


class Patience:
    """So many seconds from now."""

    def __init__(self, seconds: float) -> None:
        self._end_s = thread_time() + seconds

    @property
    def is_over(self) -> bool:
        """Whether they have passed."""
        return thread_time() > self._end_s
