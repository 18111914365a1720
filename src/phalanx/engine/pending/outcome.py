"""Candidates of a decision, and what becomes of each."""

from __future__ import annotations

from typing import NamedTuple

from phalanx.engine.pending.queue import PendingClass
from phalanx.engine.quota.shortfall import Shortfall
from phalanx.engine.state.records import JobRecord
from phalanx.protocol.reason import Reason


class Candidate(NamedTuple):
    """The job that is next, of its `pending` class. Where nodes are given as `fresh`, only these can have changed that
    it does not fit; `may_fit` is false if it cannot unless others leave. It no longer `reclaims` once it has tried
    that in vain, where no other job leaves for it.
    """

    record: JobRecord
    pending: PendingClass
    fresh: int | None = None
    may_fit: bool = True
    was_refused: bool = False
    reclaims: bool = True


class Outcome(NamedTuple):
    """What became of a candidate: it was placed, or it stays pending for a `reason`.

    It lacked quota where that is `short`. Of its class a job that ends within `spare_ms` may fit where this one is
    held back; a refused candidate `blocks` those that may not pass it; `next_too` says that something may be reserved
    for the next of its class as well.
    """

    reason: Reason | None = None
    short: Shortfall | None = None
    spare_ms: int | None = None
    blocks: bool = False
    next_too: bool = False

    @property
    def placed(self) -> bool:
        """Whether the job gets its devices."""
        return self.reason is None


PLACED = Outcome()
