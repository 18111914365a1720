"""How many connections that stay open a worker has at once: of one user, and of all together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from phalanx.server.refusal import Refusal

EXECS_PER_USER, EXECS_PER_WORKER = 8, 128
FORWARDS_PER_USER, FORWARDS_PER_WORKER = 64, 512
FOLLOWERS_PER_USER, FOLLOWERS_PER_WORKER = 32, 512
STREAMS_PER_USER, STREAMS_PER_WORKER = 32, 512
RETRY_S = 5


@dataclass(slots=True)
class Slots:
    """The slots of one kind of connection. Each worker counts its own."""

    what: str
    per_user: int
    per_worker: int
    _open: Counter[str] = field(default_factory=Counter)

    @contextmanager
    def held(self, user: str) -> Iterator[None]:
        """Holds a slot of a user; refused when the user or the worker has no more."""
        if self._open[user] >= self.per_user:
            raise self._refusal(f"{user} has {self.per_user} {self.what} open, which is the most a user may have")
        if self._open.total() >= self.per_worker:
            raise self._refusal(f"the server has {self.per_worker} {self.what} open, which is the most it serves")
        self._open[user] += 1
        try:
            yield
        finally:
            self._open[user] -= 1
            if not self._open[user]:
                del self._open[user]

    def _refusal(self, full: str) -> Refusal:
        return Refusal("rate_limited", f"{full}: close one, or try again later", {"retry_after_s": RETRY_S})


@dataclass(frozen=True, slots=True)
class OpenConnections:
    """The slots of a worker."""

    execs: Slots = field(default_factory=lambda: Slots("execs", EXECS_PER_USER, EXECS_PER_WORKER))
    forwards: Slots = field(default_factory=lambda: Slots("forwarded ports", FORWARDS_PER_USER, FORWARDS_PER_WORKER))
    followers: Slots = field(default_factory=lambda: Slots("log followers", FOLLOWERS_PER_USER, FOLLOWERS_PER_WORKER))
    streams: Slots = field(default_factory=lambda: Slots("event streams", STREAMS_PER_USER, STREAMS_PER_WORKER))
