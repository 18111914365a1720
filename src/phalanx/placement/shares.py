"""Shares: on which device each of many equal tasks goes that take a part of one."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from phalanx.cluster.bits import lowest, members
from phalanx.cluster.capacity import Capacity
from phalanx.cluster.device import Portion
from phalanx.cluster.device import fit as fit_portion
from phalanx.placement.fit import Ask, Fit
from phalanx.placement.pack import Packing

NODES_AT_ONCE = 256
"""Nodes with shared devices that are looked at before a device of its own is taken."""


class Part(NamedTuple):
    """A part of a device."""

    node: int
    device: int
    portion: Portion


class Parts:
    """Parts of devices for equal tasks, one by one; the caller books one before it asks for the next.

    With `crowded` None they lie on the fullest shared device, else on one of its own. If it is True, on the
    emptiest shared device on which there is no other task of the gang (`taken`); if it is False, on free devices only.
    """

    def __init__(self, fit: Fit, packing: Packing, ask: Ask, nodes: int, allowed: int) -> None:
        self._fit = fit
        self._capacity: Capacity = fit.capacity
        self._packing = packing
        self._ask = ask
        self._nodes = nodes
        self._allowed = allowed
        self.crowded: bool | None = None
        self.taken: dict[tuple[int, int], None] = {}
        self._left: Iterator[int] | None = None
        self._joinable: list[tuple[int, int]] = []

    def next(self) -> Part | None:
        """A part for one more task; None if there is no room."""
        if self.crowded is False:
            return self._fresh()
        if self._left is None:
            self._left = self._sharing()
            self._look_further()
        found = self._join() or self._fresh()
        while found is None and self._look_further():
            found = self._join()
        if found is not None:
            self._take(found)
        return found

    def _take(self, part: Part) -> None:
        at = (part.node, part.device)
        if self.crowded:
            self.taken[at] = None
        elif not self._joinable:
            self._joinable.append(at)

    def _sharing(self) -> Iterator[int]:
        """Nodes with a shared device that may have room."""
        portions = [portion for portion in self._ask.portions if portion is not None]
        least = min((0 if portion.revocable else portion.compute_permille for portion in portions), default=1)
        return members(self._nodes & self._capacity.share_room.at_least(least))

    def _look_further(self) -> bool:
        """Ranks the shared devices of some more nodes, the best last; False if there are no more nodes."""
        assert self._left is not None, "nodes are looked for first"
        ranked = []
        nodes = list(islice(self._left, NODES_AT_ONCE))
        for node in nodes:
            for device in members(self._capacity.usable_shares(node) & self._allowed):
                if (node, device) not in self.taken and self._portion(node, device) is not None:
                    load = self._capacity.loads[node, device]
                    rank = (-load.free_permille, len(load.holders)) if self.crowded else (load.free_permille, 0)
                    ranked.append((rank, node, device))
        ranked.sort(reverse=True)
        self._joinable = [(node, device) for _, node, device in ranked]
        return bool(nodes)

    def _join(self) -> Part | None:
        """A part of the best shared device: a device without room for one of several equal tasks has none again."""
        while self._joinable:
            node, device = self._joinable[-1]
            if (node, device) not in self.taken and self._has_amounts(node):
                portion = self._portion(node, device)
                if portion is not None:
                    return Part(node, device, portion)
            self._joinable.pop()
        return None

    def _portion(self, node: int, device: int) -> Portion | None:
        wanted = self._ask.portions[self._fit.kind_of[node]]
        return fit_portion(self._capacity.load(node, device), wanted) if wanted is not None else None

    def _has_amounts(self, node: int) -> bool:
        return all(self._capacity.amounts[number].free[node] >= amount for number, amount in self._ask.needs)

    def _fresh(self) -> Part | None:
        """A free device."""
        capacity = self._capacity
        nodes = self._nodes
        for number, amount in self._ask.needs:
            nodes &= capacity.amounts[number].at_least(amount)
        for best in self._packing.ranked(capacity, 1, nodes):
            node = lowest(best)
            free = capacity.free[node] & self._allowed
            if free:
                device = lowest(capacity.topology.layouts[node].pick(free, 1))
                portion = self._portion(node, device)
                if portion is not None:
                    return Part(node, device, portion)
        return None
