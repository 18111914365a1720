"""The order of pending jobs: the keys of queues and of jobs, as queues are at the moment."""

from __future__ import annotations

from collections.abc import Iterable

from phalanx.cluster.queues import ancestors
from phalanx.engine.state.records import JobRecord
from phalanx.engine.state.state import State
from phalanx.policy.policy import Key

LEAF, INNER = 0, 1
"""Of two queues that are equal at a level, one without queues inside goes first: its key ends there."""

WHOLE = 0
"""The place around all other places."""


def queue_key(state: State, queue: str) -> Key:
    """The key of a queue, which goes before those of its jobs."""
    policy = state.policy
    if not policy.orders_levels:
        return policy.queue_order(queue, state.usage(queue), state)
    if not state.quotas:
        return policy.level_order(queue, state.usage(queue), state)
    key: Key = ()
    for path in ancestors(queue):
        if path:
            key = (*policy.level_order(path, state.usage(path), state), INNER if key else LEAF, *key)
    return key


def whole_key(state: State, record: JobRecord) -> Key:
    """The key of a job among all that are pending; a job past its max_wait goes first whatever its queue."""
    key = state.key(record)
    return key if record.overdue or not state.policy.orders_queues else (*queue_key(state, record.job.queue), *key)


class QueueKeys:
    """The keys of the queues that were asked for. Each has a place: a number greater than that of the queue around it.

    Where the policy does not order queues, every queue has the same key.
    """

    def __init__(self, state: State) -> None:
        self.state = state
        policy = state.policy
        self._has_levels = bool(state.quotas) and policy.orders_levels
        self._orders = policy.orders_queues
        self._order = policy.level_order if policy.orders_levels else policy.queue_order
        self.now: list[Key] = [()]
        self.around: list[int] = [WHOLE]
        self.inside: list[list[int]] = [[]]
        self.places: dict[str, int] = {}

    def place(self, path: str) -> int:
        """The place of a queue, whose key is kept from now on."""
        place = self.places.get(path)
        if place is None:
            outside = path.rpartition("/")[0] if self._has_levels else ""
            around = self.place(outside) if outside else WHOLE
            place = self.places[path] = len(self.now)
            self.now.append(self._key(path))
            self.around.append(around)
            self.inside.append([])
            self.inside[around].append(place)
        return place

    def _key(self, path: str) -> Key:
        return self._order(path, self.state.usage(path), self.state) if self._orders else ()

    def catch_up(self, touched: Iterable[str]) -> list[int]:
        """Works out the keys anew of queues that have got or lost something; the places where they have changed."""
        changed: list[int] = []
        if not self._orders:
            return changed
        for path in dict.fromkeys(path for queue in touched for path in ancestors(queue)):
            place = self.places.get(path)
            if place is not None:
                key = self._key(path)
                if key != self.now[place]:
                    self.now[place] = key
                    changed.append(place)
        return changed
