"""History: how long jobs of a queue, a user and a size have run, for jobs that do not say how long they take.

What is kept is a distribution, the latest lengths of each kind of job, and what is asked for is one of its quantiles.
For a job that has run for some time already, it is taken over those that ran longer. Users repeat themselves: jobs of
one user in one queue with as many GPUs tell most about the next one (Tsafrir, Etsion and Feitelson, IEEE TPDS 2007);
where too few of these are known, those of a wider kind are asked.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Iterator
from copy import deepcopy

from phalanx.cluster.queues import ancestors
from phalanx.workload.job import Job

LENGTHS_MAX = 256
"""The latest lengths that are kept of a kind: enough for a quantile of 1 %, few enough to follow how people change."""

KINDS_MAX = 20_000
"""Kinds that are kept at most; the one that was added to longest ago is forgotten first."""

ENOUGH = 8
"""Lengths below which a wider kind is asked instead: of fewer an outer quantile is the longest or the shortest one."""

PERMILLE = 1000

KindOfJob = tuple[str, str, int]
"""Queue, user and size; an empty user and the size 0 are all of them."""


class Lengths:
    """The latest lengths of one kind, in the order in which they came and in the order of length."""

    __slots__ = ("_latest", "_order")

    def __init__(self) -> None:
        self._latest: deque[int] = deque()
        self._order: list[int] = []

    def __len__(self) -> int:
        return len(self._order)

    def add(self, length_ms: int) -> None:
        """Adds a length; of too many the oldest goes."""
        if len(self._latest) == LENGTHS_MAX:
            del self._order[bisect_left(self._order, self._latest.popleft())]
        self._latest.append(length_ms)
        insort(self._order, length_ms)

    def beyond(self, executed_ms: int) -> int:
        """How many are longer than what has run already; all, if nothing has."""
        return len(self._order) - self._first(executed_ms)

    def quantile_ms(self, permille: int, executed_ms: int = 0) -> int:
        """Of those longer than what has run already, the least that so many thousandths of them do not exceed."""
        first = self._first(executed_ms)
        count = len(self._order) - first
        rank = max(-(-permille * count // PERMILLE), 1)
        return self._order[first + rank - 1]

    def _first(self, executed_ms: int) -> int:
        return bisect_right(self._order, executed_ms) if executed_ms else 0

    def latest(self) -> tuple[int, ...]:
        """All that are kept, the oldest first."""
        return tuple(self._latest)


class History:
    """The lengths of jobs that have ended, by kind."""

    def __init__(self) -> None:
        self._kinds: dict[KindOfJob, Lengths] = {}

    def add(self, job: Job, executed_ms: int) -> None:
        """Takes note of how long a job has run in all, however it ended: its devices were free then."""
        for kind in kinds_of(job):
            lengths = self._kinds.pop(kind, None) or Lengths()
            lengths.add(executed_ms)
            self._kinds[kind] = lengths
        while len(self._kinds) > KINDS_MAX:
            del self._kinds[next(iter(self._kinds))]

    def aside(self, job: Job) -> History:
        """The same, to which a length of this job can be added without this one being changed."""
        other = History()
        other._kinds = dict(self._kinds)
        for kind in kinds_of(job):
            if kind in other._kinds:
                other._kinds[kind] = deepcopy(other._kinds[kind])
        return other

    def quantile_ms(self, job: Job, permille: int, executed_ms: int = 0) -> int | None:
        """How long a job will have run in all, with a chance of so many thousandths, given that it has run so long.

        None if nothing like it is known that ran longer.
        """
        lengths = self._like(job, executed_ms)
        return lengths.quantile_ms(permille, executed_ms) if lengths is not None else None

    def fingerprint(self) -> tuple[object, ...]:
        """All that is known, for comparing two moments."""
        return tuple((kind, lengths.latest()) for kind, lengths in self._kinds.items())

    def _like(self, job: Job, executed_ms: int) -> Lengths | None:
        """The lengths of the narrowest kind of which enough are longer; else of the widest of which any is."""
        some = None
        for kind in kinds_of(job):
            lengths = self._kinds.get(kind)
            beyond = lengths.beyond(executed_ms) if lengths is not None else 0
            if beyond >= ENOUGH:
                return lengths
            if beyond:
                some = lengths
        return some


def kinds_of(job: Job) -> Iterator[KindOfJob]:
    """The kinds a job is of, from the narrowest to the widest; the last are all of its queue, and of those above it."""
    size = max(job.gang.gpus_min, 1)
    if job.user:
        yield (job.queue, job.user, size)
        yield (job.queue, job.user, 0)
    yield (job.queue, "", size)
    for path in ancestors(job.queue):
        yield (path, "", 0)
