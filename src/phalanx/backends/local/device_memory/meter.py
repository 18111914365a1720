"""The meter: looks now and then how much device memory each attempt has taken, so that it is known what it would take
of the host to suspend it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping

from phalanx.backends.local.host.processes import process

Key = tuple[str, int]
"""A job and the number of its attempt."""

INTERVAL_S = 15.0
NEWS_SHARE = 0.05
"""By how much an amount must differ from the one that was told to be told again."""

GENERATIONS_MAX = 64


class Meter:
    """Asks `used_mb` for the device memory of processes, and gives it to the attempts whose shepherds they descend
    from.
    """

    def __init__(self, used_mb: Callable[[], Mapping[int, int]]) -> None:
        self._used_mb = used_mb
        self._told: dict[Key, int] = {}
        self._next_s = time.monotonic() + INTERVAL_S

    def patience_s(self) -> float:
        """How long until the next look."""
        return max(self._next_s - time.monotonic(), 0)

    def look(self, shepherds: Callable[[], Iterable[tuple[int, Key]]]) -> dict[Key, int]:
        """Attempts by whose memory there is news, if it is time."""
        if self.patience_s() > 0:
            return {}
        self._next_s = time.monotonic() + INTERVAL_S
        return self.news(dict(shepherds()))

    def news(self, shepherds: Mapping[int, Key]) -> dict[Key, int]:
        """What each attempt has, as far as that is other than was told."""
        has = dict.fromkeys(shepherds.values(), 0)
        for pid, mb in self._used_mb().items():
            key = _shepherded(pid, shepherds)
            if key is not None:
                has[key] += mb
        self._told = {key: mb for key, mb in self._told.items() if key in has}
        found = {key: mb for key, mb in has.items() if abs(mb - self._told.get(key, 0)) > NEWS_SHARE * mb and mb}
        self._told.update(found)
        return found


def _shepherded(pid: int, shepherds: Mapping[int, Key]) -> Key | None:
    """The attempt that a process belongs to; None if it is none of ours."""
    for _ in range(GENERATIONS_MAX):
        if pid in shepherds:
            return shepherds[pid]
        found = process(pid)
        if found is None or found.parent <= 1:
            return None
        pid = found.parent
    return None
