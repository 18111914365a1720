"""Sleepers: kinds of waiting jobs that were refused, and will be again until something rises to what they need.

Somebody who leaves may help thousands, or nobody: with fewer GPUs than a gang needs it stays where it is, and so it
does while its queue may have no more. What each waits for is written down, and only those are woken that it may help.

A decision goes through all who wait in order. Where somebody makes way meanwhile, those who have had their turn are
asked anew, and the others go on waiting for theirs: so of a sleeper it is known when it lay down and whether its turn
was still to come then. What comes of a decision is the same as if nobody slept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from heapq import heappop, heappush
from typing import NamedTuple

from phalanx.engine.means import Means
from phalanx.engine.quotas import EVERY, Quotas, eased_queues
from phalanx.engine.records import JobRecord
from phalanx.policy.view import Usage

FREE_SOON, FREE, POOL = 0, 1, 2
"""Levels: GPUs that are free or will be once those have left who leave; those that are free; and from `POOL` on what
the pool of the cluster has left of each resource."""

LEVELS = POOL + len(EVERY)

Wakes = tuple[tuple[int, int], ...]
"""Levels, and how high each must be to wake somebody."""


class Bed(NamedTuple):
    """In which queue a class sleeps, since which moment of the walk, and whether it had not had its turn by then."""

    queue: str
    since: int
    in_line: bool


class Sleepers:
    """Classes by what wakes them: a level that is high enough, or that their queue may have more than when they slept.

    Some are woken in vain; nobody who could be helped sleeps on.
    """

    def __init__(self, quotas: Quotas, means: Means, need: Callable[[int], Usage]) -> None:
        self.quotas = quotas
        self.means = means
        self._need = need
        self._beds: dict[int, Bed] = {}
        self._in_queue: dict[str, dict[int, None]] = {}
        self._least: dict[str, Usage] = {}
        self._waits_for: list[list[tuple[int, int]]] = [[] for _ in range(LEVELS)]
        quotas.eased.clear()

    def __iter__(self) -> Iterator[int]:
        return iter(self._beds)

    def newest_first(self) -> Iterator[int]:
        """Everybody, who lay down last first."""
        return reversed(self._beds)

    def bed(self, i: int) -> Bed:
        """Where and since when a class sleeps."""
        return self._beds[i]

    def put(self, i: int, record: JobRecord, wakes: Wakes, since: int, in_line: bool) -> None:
        """Lets a class sleep that may have nothing back, nor more than it has, as queues are now."""
        queue = record.job.queue
        self._beds[i] = Bed(queue, since, in_line)
        self._in_queue.setdefault(queue, {})[i] = None
        self._least.pop(queue, None)
        self.wait_for(i, wakes)

    def wait_for(self, i: int, wakes: Wakes) -> None:
        """Has something wake one who sleeps."""
        for level, height in wakes:
            heappush(self._waits_for[level], (height, i))

    def called(self, levels: Sequence[int]) -> list[int]:
        """Whom something may help by now. They sleep until they are taken, and are not called a second time."""
        found: dict[int, None] = {}
        for waits_for, height in zip(self._waits_for, levels, strict=True):
            while waits_for and waits_for[0][0] <= height:
                _, i = heappop(waits_for)
                if i in self._beds:
                    found[i] = None
        for queue, bounds in eased_queues(self.quotas, self._in_queue).items():
            if self._may_have_more(queue, bounds):
                found.update(self._in_queue[queue])
        return list(found)

    def take(self, i: int) -> int:
        """Wakes one."""
        queue = self._beds.pop(i).queue
        del self._in_queue[queue][i]
        if not self._in_queue[queue]:
            del self._in_queue[queue]
            self._least.pop(queue, None)
        return i

    def _may_have_more(self, queue: str, bounds: bool) -> bool:
        least = self._least.get(queue)
        if least is None:
            # That of some who have woken since may be less.
            least = self._least[queue] = Usage(*map(min, zip(*map(self._need, self._in_queue[queue]), strict=True)))
        if self.means.may_reclaim(queue, least):
            return True
        return bounds and self.means.suffice(queue, least)
