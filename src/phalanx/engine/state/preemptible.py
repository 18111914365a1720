"""Preemptible GPUs: those that jobs up to some priority hold on each node, in indexes like free capacity."""

from __future__ import annotations

from phalanx.cluster.amount import Amount
from phalanx.cluster.capacity import Booking, Capacity
from phalanx.engine.state.records import AttemptRecord, PreemptionGroup

PRIORITIES_MAX = 8
"""Priorities an index is kept for. Past it the oldest is dropped, and built anew when it is asked for."""


class PreemptibleGpus:
    """GPUs held by attempts that may be stopped at all, by node and priority.

    `groups` are, for each queue, those of all its present attempts, with the bookings these have. Nothing is counted
    until it is `counting`: where no attempt is ever preempted, nothing asks.
    """

    def __init__(self, nodes: int) -> None:
        self.counting = False
        self._held: list[dict[int, int]] = [{} for _ in range(nodes)]
        self._up_to: dict[int, Amount] = {}
        self.groups: dict[str, dict[PreemptionGroup, int]] = {}

    def add(self, attempt: AttemptRecord, booking: Booking, sign: int) -> None:
        """Takes note that an attempt holds a booking (1), or does no longer (-1)."""
        if not self.counting:
            return
        self._count(attempt, sign)
        if not attempt.stoppable or not booking.devices:
            return
        priority, gpus = attempt.job.priority, sign * booking.devices.bit_count()
        held = self._held[booking.node]
        held[priority] = held.get(priority, 0) + gpus
        if not held[priority]:
            del held[priority]
        for up_to, index in self._up_to.items():
            if priority <= up_to:
                index.put(booking.node, index.free[booking.node] + gpus)

    def _count(self, attempt: AttemptRecord, sign: int) -> None:
        groups = self.groups.setdefault(attempt.job.queue, {})
        bookings = groups.get(attempt.group, 0) + sign
        if bookings:
            groups[attempt.group] = bookings
        else:
            del groups[attempt.group]

    def gpus(self, node: int, up_to: int) -> int:
        """GPUs of a node that jobs of at most this priority hold."""
        return sum(gpus for priority, gpus in self._held[node].items() if priority <= up_to)

    def nodes(self, capacity: Capacity, up_to: int, gpus: int) -> int:
        """Nodes that have so many GPUs, free or held by jobs of at most this priority."""
        index = self._index(capacity, up_to)
        found = 0
        for free, having in capacity.by_free():
            found |= having & index.at_least(max(gpus - free, 0))
        return found

    def _index(self, capacity: Capacity, up_to: int) -> Amount:
        index = self._up_to.get(up_to)
        if index is None:
            if len(self._up_to) >= PRIORITIES_MAX:
                del self._up_to[next(iter(self._up_to))]
            held = [self.gpus(node, up_to) for node in range(len(self._held))]
            index = self._up_to[up_to] = Amount(f"stoppable up to {up_to}", held, capacity.topology.bit)
        return index
