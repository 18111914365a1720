"""The candidates of one queue in a decision: masks over its classes, and their first jobs in order."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

from phalanx.engine.quota.quotas import Most
from phalanx.engine.state.classes import QueueClasses
from phalanx.engine.state.records import OVERDUE, AttemptRecord, EquivalenceClass
from phalanx.engine.state.requests import Needs
from phalanx.policy.policy import Key


class PendingClass:
    """An equivalence class as far as a decision has come with it: `at` is the first of its jobs that is still to be
    tried, `held` one that is held back while a shorter one goes before it. `attempt` is one that this plan stops, and
    that has a turn like a pending job.
    """

    __slots__ = ("at", "attempt", "bit", "held", "queue", "waiting")

    def __init__(self, queue: QueueCandidates, bit: int, waiting: EquivalenceClass) -> None:
        self.queue = queue
        self.bit = bit
        self.waiting = waiting
        self.at = 0
        self.held: int | None = None
        self.attempt: AttemptRecord | None = None

    @property
    def job(self) -> str:
        """The first job that is still to be tried."""
        return self.waiting.jobs[self.at][1]

    @property
    def has_more(self) -> bool:
        """Whether any job of it is still to be tried."""
        return self.at < len(self.waiting.jobs)

    @property
    def is_late(self) -> bool:
        """Whether that job is past its max_wait, and so goes before all others whatever their queues."""
        return self.waiting.jobs[self.at][0][0] == OVERDUE


Entry = tuple[Key, str, PendingClass]


class QueueCandidates:
    """The classes of a queue as masks.

    `open` have jobs left, and `late` are those of them that go before all queues. `settled` were refused in an earlier
    decision, `blocked` in this one, each until capacity grows where that may help. `straight` are tried whatever quota
    and capacity there is. `reclaimed` have tried in vain to reclaim; `reserved_from` were kept off by what is reserved
    for others. While it is `quiet`, nothing has grown. `known`
    were refused when all were last evaluated, `lacking` for want of GPUs. `mask` are its candidates and `found` the
    first of them, as of a `moment`.
    """

    __slots__ = (
        "_cursor",
        "_last",
        "alone",
        "blocked",
        "displacing",
        "draws_on_all",
        "entries",
        "everything",
        "found",
        "growths",
        "known",
        "lacking",
        "late",
        "least",
        "mask",
        "moment",
        "needs",
        "open",
        "path",
        "place",
        "quiet",
        "reclaimed",
        "reserved_from",
        "settled",
        "short",
        "straight",
    )

    def __init__(self, path: str, place: int, classes: QueueClasses | None) -> None:
        self.path = path
        self.place = place
        self.open = classes.mask if classes is not None else 0
        self.late = classes.late if classes is not None else 0
        self.settled = self.blocked = self.straight = self.reclaimed = 0
        self.displacing = self.short = self.reserved_from = 0
        self.needs: Needs | None = None
        self.least: Most | None = None
        self.known = self.lacking = self.mask = 0
        self.moment = -1
        self.found: Entry | None = None
        self.quiet = True
        self.growths = 0
        self.draws_on_all = False
        self.alone: list[PendingClass] = []
        self.entries: list[Entry] = []
        for number, waiting in classes.by_number.items() if classes is not None else ():
            self.entries.append((*waiting.jobs[0], PendingClass(self, 1 << number, waiting)))
        self.entries.sort(key=turn_of)
        self.everything = [each for _, _, each in self.entries]
        self._cursor = 0
        self._last = 0

    def __iter__(self) -> Iterator[PendingClass]:
        return (each for _, _, each in self.entries)

    def first(self, mask: int) -> Entry | None:
        """The first of the classes in a mask."""
        if not mask:
            return None
        if mask & ~self._last:
            self._cursor = 0
        self._last = mask
        entries = self.entries
        for at in range(self._cursor, len(entries)):
            if entries[at][2].bit & mask:
                self._cursor = at
                return entries[at]
        self._cursor = len(entries)
        return None

    def move(self, pending: PendingClass, at: int) -> None:
        """Has a class go on with another of its jobs; without one it is not open any more."""
        place = bisect_left(self.entries, pending.waiting.jobs[pending.at], key=turn_of)
        del self.entries[place]
        pending.at = at
        self.needs = None
        if not pending.has_more:
            self.open &= ~pending.bit
            self._cursor = min(self._cursor, place)
            return
        self.late = self.late | pending.bit if pending.is_late else self.late & ~pending.bit
        self._insert(pending)
        self._cursor = min(self._cursor, place)

    def stand_alone(self, pending: PendingClass) -> None:
        """Takes in a class of one job that is not among those of the State."""
        self.alone.append(pending)
        self.everything.append(pending)
        self.open |= pending.bit
        if pending.attempt is None and pending.is_late:
            self.late |= pending.bit
        self._insert(pending)

    def _insert(self, pending: PendingClass) -> None:
        key, job = pending.waiting.jobs[pending.at]
        place = bisect_left(self.entries, (key, job), key=turn_of)
        self.entries.insert(place, (key, job, pending))
        self._cursor = min(self._cursor, place)


def turn_of(entry: Entry) -> tuple[Key, str]:
    """What entries are sorted by."""
    return entry[0], entry[1]
