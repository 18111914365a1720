"""A throttle of wrong passwords: so many a minute for a user name and for an address, then a pause."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from ipaddress import ip_address, ip_network
from threading import Lock

WINDOW_S = 60.0
USER_FAILURES_MAX = 10
ADDRESS_FAILURES_MAX = 30
"""More than for a user name: on a log-in node many users have one address."""

NAMES_KEPT = 10_000


class FailureCount:
    """The failures of the last minute by name. Of too many names those are forgotten that failed longest ago."""

    def __init__(self, failures_max: int, clock: Callable[[], float], names_max: int = NAMES_KEPT) -> None:
        self._failures_max = failures_max
        self._names_max = names_max
        self._clock = clock
        self._failed_s: dict[str, deque[float]] = {}

    def __len__(self) -> int:
        return len(self._failed_s)

    def add(self, name: str) -> None:
        """Counts a failure."""
        failed_s = self._failed_s.pop(name, None) or deque(maxlen=self._failures_max)
        failed_s.append(self._clock())
        self._failed_s[name] = failed_s
        if len(self._failed_s) > self._names_max:
            del self._failed_s[next(iter(self._failed_s))]

    def pause_s(self, name: str) -> float:
        """How long until one more failure would be within bounds; 0 if it is."""
        failed_s = self._failed_s.get(name)
        if failed_s is None or len(failed_s) < self._failures_max:
            return 0.0
        return max(failed_s[0] + WINDOW_S - self._clock(), 0.0)


class FailureThrottle:
    """What keeps passwords from being guessed: user names and addresses with too many failures have to wait.

    A success takes nothing back: the password of one account must not buy guesses at another's.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._users = FailureCount(USER_FAILURES_MAX, clock)
        self._addresses = FailureCount(ADDRESS_FAILURES_MAX, clock)
        self._lock = Lock()

    def add(self, user: str, address: str) -> None:
        """Counts a failure of a user name from an address."""
        with self._lock:
            self._users.add(user)
            self._addresses.add(source_of(address))

    def pause_s(self, user: str, address: str) -> int:
        """How many seconds a user name has to wait at an address before its password is looked at."""
        with self._lock:
            return math.ceil(max(self._users.pause_s(user), self._addresses.pause_s(source_of(address))))


def source_of(address: str) -> str:
    """What failures from an address are counted by. One machine has all IPv6 addresses of its network of 64 bits."""
    try:
        found = ip_address(address)
    except ValueError:
        return address
    if found.version == 4 or found.ipv4_mapped is not None:
        return address
    return str(ip_network((int(found), 64), strict=False))
