"""Clearable nodes: where a head could be placed, as attempts are preempted one after the other."""

from __future__ import annotations

from collections.abc import Iterator

from phalanx.engine.state.records import AttemptRecord, JobRecord
from phalanx.engine.state.state import State
from phalanx.workload.gang import Task


class ClearableNodes:
    """Counts, as attempts are preempted one after the other, where a head of equal tasks could be placed."""

    def __init__(self, state: State, head: JobRecord, task: Task, count: int) -> None:
        self.state = state
        self._gpus = task.gpus
        self._count = count
        self._passing = state.fit.ask(task, head.asked).eligible & state.capacity.open
        self._gained: dict[int, int] = {}
        self._room: dict[int, int] = {}
        self._cleared: dict[int, int] = {}
        required = head.asked.gang.topology.required
        self._of_node = state.topology.domain_of.get(required)
        self._domains = state.topology.domains.get(required, ())
        self._on_one_node = self._of_node is None and required in state.cluster.levels

    def gain(self, attempt: AttemptRecord) -> Iterator[int]:
        """Takes note that an attempt is preempted. Yields the nodes that gained tasks wherever all tasks fit."""
        for booking in attempt.bookings:
            node = booking.node
            if not self._passing >> node & 1:
                continue
            free = self.state.capacity.free[node].bit_count()
            had = free + self._gained.get(node, 0)
            has = had + booking.devices.bit_count()
            self._gained[node] = has - free
            more = has // self._gpus - had // self._gpus
            if more:
                domain = self._domain(node)
                if domain not in self._room:
                    self._room[domain] = self._free_room(domain)
                self._room[domain] += more
                self._cleared[domain] = self._cleared.get(domain, 0) | self.state.topology.bit[node]
                if self._room[domain] >= self._count:
                    yield self._cleared[domain]

    def _domain(self, node: int) -> int:
        if self._on_one_node:
            return node
        return self._of_node[node] if self._of_node is not None else 0

    def _free_room(self, domain: int) -> int:
        """How many tasks fit in a domain as it is."""
        capacity = self.state.capacity
        if self._on_one_node:
            return capacity.free[domain].bit_count() // self._gpus
        nodes = self._passing & (self._domains[domain].nodes if self._of_node is not None else -1)
        by_free = capacity.by_free(self._gpus)
        return sum([(nodes & having).bit_count() * (free // self._gpus) for free, having in by_free])
