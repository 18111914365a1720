"""Blocks: what is free of what is reserved for other jobs, held for a while, so that no job is placed there."""

from __future__ import annotations

from collections.abc import Iterable

from phalanx.cluster.bits import members
from phalanx.cluster.capacity import Booking, Capacity


class Blocks:
    """Those on each node, and shared devices that are closed.

    A search for the first moment at which a job fits has other devices in its way at each. Little changes from one
    to the next, so only where something does are blocks lifted and laid anew. For a job of which every task needs
    `whole_gpus` nothing is blocked on nodes that have none: it could not be placed there as it is.
    """

    def __init__(self, capacity: Capacity, *, whole_gpus: bool = False) -> None:
        self._capacity = capacity
        self._whole_gpus = whole_gpus
        self._laid: dict[int, list[Booking]] = {}
        self._closed: dict[int, int] = {}

    def lay(self, reserved: Iterable[tuple[Booking, ...]]) -> None:
        """Holds what is free now of reserved bookings, and nothing else."""
        wanted: dict[int, list[Booking]] = {}
        for bookings in reserved:
            for booking in bookings:
                if not self._whole_gpus or self._may_have_gpus(booking.node):
                    wanted.setdefault(booking.node, []).append(booking)
        for node in [node for node in self._laid if node not in wanted]:
            self._lift(node)
        for node, each in wanted.items():
            blocks = self._blocks(node, each)
            if blocks != self._laid.get(node):
                self._lift(node)
                for block in blocks:
                    self._capacity.hold(block)
                self._laid[node] = blocks

    def _may_have_gpus(self, node: int) -> bool:
        """Whether whole GPUs of a node are free, or might be but for what is blocked."""
        return bool(self._capacity.free[node]) or node in self._laid or node in self._closed

    def close(self, reserved: Iterable[tuple[Booking, ...]]) -> None:
        """Has reserved devices that are shared now, which cannot be held, take no new share; and no other devices."""
        every: dict[int, int] = dict.fromkeys(self._closed, 0)
        for bookings in reserved:
            for booking in bookings:
                every[booking.node] = every.get(booking.node, 0) | booking.devices
        capacity = self._capacity
        for node, devices in every.items():
            closed = self._closed.pop(node, 0)
            wanted = devices & (capacity.shared[node] & ~capacity.cutting[node] | closed)
            for device in members(closed ^ wanted):
                capacity.set_cutting(node, device, cutting=bool(wanted >> device & 1))
            if wanted:
                self._closed[node] = wanted

    def lift(self) -> None:
        """Gives everything back."""
        for node in list(self._laid):
            self._lift(node)
        self.close(())

    def _lift(self, node: int) -> None:
        for block in self._laid.pop(node, ()):
            self._capacity.release(block)

    def _blocks(self, node: int, bookings: list[Booking]) -> list[Booking]:
        """What there would be to be held of each on a node on which nothing is blocked."""
        laid = self._laid.get(node, ())
        free = self._capacity.free[node] | self._closed.get(node, 0) & ~self._capacity.shared[node]
        for block in laid:
            free |= block.devices
        left: dict[int, int] = {}
        blocks: list[Booking] = []
        for _, devices, needs, _, _ in bookings:
            amounts: list[tuple[int, int]] = []
            for number, amount in needs:
                if number not in left:
                    left[number] = self._capacity.amounts[number].free[node] + _amount(laid, number)
                held = min(amount, left[number])
                if held > 0:
                    amounts.append((number, held))
                    left[number] -= held
            if devices & free or amounts:
                blocks.append(Booking(node, devices & free, tuple(amounts)))
                free &= ~devices
        return blocks


def _amount(laid: Iterable[Booking], number: int) -> int:
    """What blocks hold of CPUs or the like."""
    return sum(amount for block in laid for each, amount in block.needs if each == number)
