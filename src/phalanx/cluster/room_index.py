"""Domains by how many tasks have room in them, caught up with changes only when asked."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from phalanx.cluster.bits import members
from phalanx.cluster.topology import Domain, Topology


class Devices(NamedTuple):
    """The GPUs of all nodes, as their capacity keeps them: how many `types` there are and which each node has, the most
    on one node, and which are free now.
    """

    types: int
    type_of: list[int]
    gpus_max: int
    free: list[int]


class LevelCounts:
    """For each domain of a level and GPU type: how many nodes have exactly n GPUs free."""

    def __init__(self, topology: Topology, level: str, devices: Devices) -> None:
        self.devices = devices
        self.of_node = topology.domain_of[level]
        self.domains = topology.domains[level]
        self.counts = [[[0] * (devices.gpus_max + 1) for _ in range(devices.types)] for _ in self.domains]
        self.changes: list[int] = []
        self._indexes: dict[tuple[tuple[int, ...], int], RoomIndex] = {}
        for node, domain in enumerate(self.of_node):
            self.counts[domain][devices.type_of[node]][devices.free[node].bit_count()] += 1

    def index(self, gpu_types: tuple[int, ...], gpus: int) -> RoomIndex:
        """The index for tasks of one size on some GPU types."""
        index = self._indexes.get((gpu_types, gpus))
        if index is None:
            index = self._indexes[gpu_types, gpus] = RoomIndex(self, gpu_types, gpus)
        return index

    def forget_changes(self) -> None:
        """Has every index catch up, so that no change has to be remembered."""
        for index in self._indexes.values():
            index.catch_up()
            index.seen = 0
        self.changes.clear()

    def fingerprint(self) -> tuple[object, ...]:
        """The counts, for comparison."""
        return tuple(tuple(tuple(row) for row in rows) for rows in self.counts)

    def check(self) -> None:
        """Raises if the counts are not what the devices say."""
        fresh = [[[0] * len(row) for row in rows] for rows in self.counts]
        for node, domain in enumerate(self.of_node):
            fresh[domain][self.devices.type_of[node]][self.devices.free[node].bit_count()] += 1
        assert fresh == self.counts, "a domain miscounts its free nodes"
        for index in self._indexes.values():
            index.check()


class RoomIndex:
    """Domains of a level by how many tasks of one size have room in them. Caught up with changes when asked."""

    def __init__(self, table: LevelCounts, gpu_types: tuple[int, ...], gpus: int) -> None:
        self.table = table
        self.gpu_types = gpu_types
        self.weights = [(free, free // gpus) for free in range(gpus, table.devices.gpus_max + 1)]
        self.seen = 0
        self.room = [self._measure(domain) for domain in range(len(table.domains))]
        self.with_room: dict[int, int] = {}
        self.occupied = 0
        for domain, room in enumerate(self.room):
            self._add(domain, room)
        self.seen = len(table.changes)

    def _measure(self, domain: int) -> int:
        rows = self.table.counts[domain]
        return sum(rows[kind][free] * fits for kind in self.gpu_types for free, fits in self.weights)

    def _add(self, domain: int, room: int) -> None:
        self.with_room[room] = self.with_room.get(room, 0) | 1 << domain
        self.occupied |= 1 << room

    def catch_up(self) -> None:
        """Takes in what has changed since it was last asked."""
        changes = self.table.changes
        for domain in dict.fromkeys(changes[self.seen :]):
            old, new = self.room[domain], self._measure(domain)
            if old == new:
                continue
            self.room[domain] = new
            left = self.with_room[old] ^ 1 << domain
            if left:
                self.with_room[old] = left
            else:
                del self.with_room[old]
                self.occupied ^= 1 << old
            self._add(domain, new)
        self.seen = len(changes)

    def room_of(self, domain: int) -> int:
        """How many tasks have room in a domain."""
        self.catch_up()
        return self.room[domain]

    def at_least(self, tasks: int, first: int, last: int) -> Iterator[Domain]:
        """Domains between two nodes with room for so many tasks, those with the least room first."""
        self.catch_up()
        domains = self.table.domains
        for above in members(self.occupied >> tasks):
            for domain in members(self.with_room.get(above + tasks, 0)):
                found = domains[domain]
                if first <= found.first and found.last <= last:
                    yield found

    def check(self) -> None:
        """Raises if the index is not what the counts say."""
        self.catch_up()
        assert self.room == [self._measure(domain) for domain in range(len(self.room))], "a room index is stale"
