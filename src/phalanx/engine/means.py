"""Means: what queues may have more, and may have back, worked out once for all jobs of a queue.

Under `Quotas` a larger need is never allowed where a smaller one is not. So of each queue and resource the most that is
allowed says it all, and thousands of waiting jobs are told apart by a comparison each.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from phalanx.engine.quotas import Most, Quotas


class Means:
    """Those of a tree of queues as it is now: what was worked out is void once any queue has more or less."""

    def __init__(self, quotas: Quotas) -> None:
        self.quotas = quotas
        self._changes = -1
        self._allowed: dict[str, Most] = {}
        self._reclaimable: dict[str, list[Most]] = {}
        self._pool: Most = []

    def suffice(self, queue: str, need: Sequence[int]) -> bool:
        """Whether a queue may have so much more: `Quotas.shortfall` has nothing to say."""
        if self._changes != self.quotas.changes:
            self._catch_up()
        return _covers(self._allowed.get(queue) or self._most(queue), need)

    def may_reclaim(self, queue: str, need: Sequence[int]) -> bool:
        """Whether it may have back what others borrow, as `Quotas.may_reclaim` says."""
        if self._changes != self.quotas.changes:
            self._catch_up()
        if queue in self._reclaimable:
            most = self._reclaimable[queue]
        else:
            most = self._reclaimable[queue] = self.quotas.reclaimable(queue)
        return covered(most, need)

    def lacking(self, queue: str, need: Sequence[int]) -> tuple[int, int]:
        """A resource of which a queue may not have so much more, and what the pool must have left of it for that."""
        most = self._most(queue)
        resource = 0
        while not need[resource] or need[resource] <= most[resource]:
            resource += 1
        return resource, need[resource] - most[resource] + self.pool[resource]

    @property
    def pool(self) -> Most:
        """What the pool of the cluster has left of each resource."""
        if self._changes != self.quotas.changes:
            self._catch_up()
        return self._pool

    def _most(self, queue: str) -> Most:
        if self._changes != self.quotas.changes:
            self._catch_up()
        most = self._allowed.get(queue)
        if most is None:
            most = self._allowed[queue] = self.quotas.allowed(queue)
        return most

    def _catch_up(self) -> None:
        self._changes = self.quotas.changes
        self._allowed.clear()
        self._reclaimable.clear()
        self._pool = self.quotas.pool()


def covered(any_of: Iterable[Most], need: Sequence[int]) -> bool:
    """Whether so much is no more than any one of some amounts."""
    return any(_covers(most, need) for most in any_of)


def _covers(most: Most, need: Sequence[int]) -> bool:
    """Whether so much is no more than the most, of each resource that is needed at all."""
    gpus, cpus, memory = need
    return (not gpus or gpus <= most[0]) and (not cpus or cpus <= most[1]) and (not memory or memory <= most[2])
