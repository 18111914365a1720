"""Resource requests by number: request k is bit k of a mask, so that sets of requests are integers.

What decides placement, the quota that is needed and the preemption group make two jobs of one queue equivalent. Each
distinct combination has a number; masks say which of them are pending, fit, or are affordable.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable, Iterable, Sequence
from typing import NamedTuple

from phalanx.engine.quota.account import EVERY, GPUS
from phalanx.engine.quota.quotas import Most
from phalanx.engine.state.records import JobRecord
from phalanx.placement.cells.ask import priority_of
from phalanx.placement.fit import Ask, Fit
from phalanx.policy.view import Usage

ALL = -1
"""The mask of all requests, those to come included."""


class Request(NamedTuple):
    """What an equivalence class asks for. `eligible` are the nodes on which one of its tasks could ever run, `least`
    the GPUs that its smallest task takes of one of them. `gpus` are those without which it cannot start. `priority` is
    that in a virtual cluster.
    """

    number: int
    bit: int
    gpus: int
    need: Usage
    asks: tuple[Ask, ...]
    eligible: int
    least: int
    priority: int


class Prefixes:
    """Requests, by their bits, by an amount that each needs."""

    def __init__(self, amounts: Iterable[tuple[int, int]]) -> None:
        masks: dict[int, int] = {}
        for bit, amount in amounts:
            masks[amount] = masks.get(amount, 0) | bit
        self._amounts = sorted(masks)
        self._masks = [0]
        for amount in self._amounts:
            self._masks.append(self._masks[-1] | masks[amount])

    def within(self, most: int) -> int:
        """The requests that need no more than so much; what needs nothing is always among them."""
        return self._masks[bisect_right(self._amounts, most if most > 0 else 0)]


class Needs:
    """Requests, by their bits, by what each needs of every resource."""

    def __init__(self, needs: Sequence[tuple[int, Usage]]) -> None:
        self._by_resource = [Prefixes([(bit, need[resource]) for bit, need in needs]) for resource in EVERY]

    def within(self, most: Most) -> int:
        """The requests that need no more of any resource than so much."""
        found = ALL
        for resource in EVERY:
            found &= self._by_resource[resource].within(most[resource])
        return found

    def without(self, resource: int) -> int:
        """The requests that need nothing of a resource."""
        return self._by_resource[resource].within(0)


class Requests:
    """The distinct requests of a cluster, each with a number for as long as the table lives."""

    def __init__(self, fit: Fit) -> None:
        self._fit = fit
        self._numbers: dict[Hashable, int] = {}
        self.every: list[Request] = []
        self._indexed = -1
        self._by_gpus = Prefixes(())
        self._by_need = Needs(())
        self._by_nodes: dict[tuple[int, int], int] = {}
        self._by_priority: dict[int, int] = {}

    def number(self, key: Hashable, record: JobRecord) -> int:
        """The number of a request, by all that tells it apart and one job that makes it."""
        found = self._numbers.get(key)
        if found is None:
            found = self._numbers[key] = len(self.every)
            self.every.append(self._request(found, record))
        return found

    def _request(self, number: int, record: JobRecord) -> Request:
        asks = tuple([self._fit.ask(task, record.asked) for task in record.tasks.values()])
        eligible = 0
        for ask in asks:
            eligible |= ask.eligible
        least = min(0 if ask.portions else ask.gpus for ask in asks)
        return Request(
            number, 1 << number, record.gpus_min, record.need, asks, eligible, least, priority_of(record.job)
        )

    def with_gpus(self, most: int) -> int:
        """The requests that need no more than so many GPUs."""
        self._index()
        return self._by_gpus.within(most)

    def affordable(self, most: Most) -> int:
        """The requests that need no more of any resource than so much."""
        self._index()
        return self._by_need.within(most)

    @property
    def without_gpus(self) -> int:
        """The requests that need no GPUs of a quota."""
        self._index()
        return self._by_need.without(GPUS)

    @property
    def by_nodes(self) -> dict[tuple[int, int], int]:
        """The requests by their eligible nodes and the GPUs of their smallest tasks."""
        self._index()
        return self._by_nodes

    @property
    def by_priority(self) -> dict[int, int]:
        """The requests by priority."""
        self._index()
        return self._by_priority

    def _index(self) -> None:
        """Sorts all requests, where some have come since that was last done."""
        if self._indexed == len(self.every):
            return
        self._indexed = len(self.every)
        self._by_gpus = Prefixes([(each.bit, each.gpus) for each in self.every])
        self._by_need = Needs([(each.bit, each.need) for each in self.every])
        self._by_nodes, self._by_priority = {}, {}
        for each in self.every:
            key = (each.eligible, each.least)
            self._by_nodes[key] = self._by_nodes.get(key, 0) | each.bit
            self._by_priority[each.priority] = self._by_priority.get(each.priority, 0) | each.bit
