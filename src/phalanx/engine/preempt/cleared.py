"""Cleared GPUs: those of each node once attempts have left. They are the same for all heads at a stage of a plan."""

from __future__ import annotations

from collections.abc import Mapping

from phalanx.engine.state.records import AttemptRecord
from phalanx.engine.state.state import State


class ClearedGpus:
    """Each number is counted once, when a head first asks for it: hundreds of heads ask for the same."""

    def __init__(self, state: State, leaving: Mapping[str, AttemptRecord]) -> None:
        self.state = state
        self._leaving = leaving
        self._left: int | None = None
        self._soon: dict[int, int] = {}
        self._without: dict[tuple[int, int], int] = {}
        self._nodes: dict[tuple[int, int], int] = {}

    @property
    def left(self) -> int:
        """The nodes that an attempt is leaving."""
        if self._left is None:
            self._left, bit = 0, self.state.topology.bit
            for attempt in self._leaving.values():
                for booking in attempt.bookings:
                    self._left |= bit[booking.node]
        return self._left

    def soon(self, node: int) -> int:
        """GPUs of a node that are free once the attempts that leave it have left."""
        found = self._soon.get(node)
        if found is None:
            capacity = self.state.capacity
            kept = capacity.held[node] & ~capacity.ceding[node] | capacity.claimed[node]
            kept |= capacity.unhealthy[node] | capacity.cutting[node]
            found = self._soon[node] = (capacity.all_devices[node] & ~kept).bit_count()
        return found

    def without(self, node: int, up_to: int) -> int:
        """Likewise, once all attempts up to a priority have left it, too."""
        found = self._without.get((node, up_to))
        if found is None:
            gpus = self.soon(node)
            for attempt in self.state.on_node.get(node, {}).values():
                if attempt.job.priority <= up_to and attempt.stoppable and attempt.key not in self._leaving:
                    gpus += sum(booking.devices.bit_count() for booking in attempt.bookings if booking.node == node)
            found = self._without[node, up_to] = min(gpus, self.state.capacity.all_devices[node].bit_count())
        return found

    def nodes(self, up_to: int, gpus: int) -> int:
        """Nodes that have so many GPUs, free or held by attempts up to a priority that may be stopped."""
        found = self._nodes.get((up_to, gpus))
        if found is None:
            found = self.state.preemptible_gpus.nodes(self.state.capacity, up_to, gpus)
            self._nodes[up_to, gpus] = found
        return found
