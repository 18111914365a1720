"""The clock of the loop: follows the wall clock, and neither jumps nor goes back when that is set."""

from __future__ import annotations

import time
from collections.abc import Callable

SLEW = 10
"""Until it agrees with the wall, the loop's clock runs at most one part in so many faster or slower than time."""

NS_PER_MS = 1_000_000


def wall_ms() -> int:
    """Milliseconds since 1970, as the machine believes."""
    return time.time_ns() // NS_PER_MS


def passed_ns() -> int:
    """Nanoseconds since some moment; also counts while the machine sleeps."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


class Still:
    """A clock that stands still, at the moment of a journal that is shown."""

    def __init__(self, now_ms: int) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        """The moment."""
        return self._now_ms


class Clock:
    """Milliseconds since 1970. A job's time-outs must not all fire because the clock is set an hour ahead."""

    def __init__(
        self,
        not_before_ms: int = 0,
        wall: Callable[[], int] = time.time_ns,
        passed: Callable[[], int] = passed_ns,
    ) -> None:
        self._wall = wall
        self._passed = passed
        self._read_ns = passed()
        self._now_ns = max(not_before_ms * NS_PER_MS, wall())

    def now_ms(self) -> int:
        """The time; never less than before."""
        passed = self._passed()
        elapsed_ns = max(passed - self._read_ns, 0)
        self._read_ns = passed
        error_ns = self._wall() - (self._now_ns + elapsed_ns)
        most_ns = elapsed_ns // SLEW
        self._now_ns += elapsed_ns + max(-most_ns, min(error_ns, most_ns))
        return self._now_ns // NS_PER_MS
