"""Free capacity, in indexes: what is left on every node and in every domain, kept up to date and never scanned for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from phalanx.cluster.amount import Amount
from phalanx.cluster.bits import from_flags, from_members, members
from phalanx.cluster.cluster import Health
from phalanx.cluster.device import DeviceLoad, Portion, add, obstacle, remove, set_layout, violations
from phalanx.cluster.mig import GEOMETRIES, Layout
from phalanx.cluster.room_index import Devices, LevelCounts
from phalanx.cluster.topology import Domain, Topology

CPUS, MEMORY, NICS, CPUS_LIMIT, MEMORY_LIMIT = range(5)
"""Numbers of the amounts every cluster has; node-local storage tiers follow in the order of the cluster file."""

MB_PER_GB = 1024

CHANGES_MAX = 1 << 16
"""Changes of domains kept for indexes to catch up with."""


NODES_FEW = 8
"""Nodes up to which looking at each is cheaper than going through all numbers of free GPUs."""


class Booking(NamedTuple):
    """What one task takes of one node: amounts by number, and a set of whole devices or a portion of one.

    `holder` names the task on a device that is shared.
    """

    node: int
    devices: int
    needs: tuple[tuple[int, int], ...]
    portion: Portion | None = None
    holder: str = ""


class Capacity:
    """The free devices and amounts of a cluster.

    A booking is *held* by the attempt that runs there. A *claim* is a booking for an attempt that waits until the
    holders, which *cede* it, have left. Every change has an exact inverse, so that a trial is undone by undoing its
    steps. `versions` count changes of each node, for code that remembers what it saw of it.
    """

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        nodes = topology.nodes
        count = len(nodes)
        self.gpu_types: tuple[str, ...] = tuple(dict.fromkeys(node.gpu_type for node in nodes))
        self.gpus_max = max((node.gpus for node in nodes), default=0)
        self.type_of = [self.gpu_types.index(node.gpu_type) for node in nodes]
        self.all_devices = [(1 << node.gpus) - 1 for node in nodes]
        self.held = [0] * count
        self.ceding = [0] * count
        self.claimed = [0] * count
        self.unhealthy = [0] * count
        self.shared = [0] * count
        self.partitioned = [0] * count
        self.cutting = [0] * count
        self.promised: dict[tuple[int, int], int] = {}
        self.loads: dict[tuple[int, int], DeviceLoad] = {}
        self.foreign: dict[int, Booking] = {}
        self.share_room = Amount("share", [0] * count, topology.bit)
        self.health = [Health.HEALTHY] * count
        self.with_health = dict.fromkeys(Health, 0)
        self.with_health[Health.HEALTHY] = topology.everything
        self.device_health: dict[tuple[int, int], Health] = {}
        self.free = list(self.all_devices)
        self.free_total = topology.cluster.gpus
        self.idle = topology.everything
        self.grown = 0
        self.amounts = _amounts(topology)
        self.amount_number = {amount.name: i for i, amount in enumerate(self.amounts)}
        self.tasks = [0] * count
        self.versions = [0] * count
        self.with_free = [0] * (self.gpus_max + 1)
        for i, node in enumerate(nodes):
            self.with_free[node.gpus] |= topology.bit[i]
        self._frees = from_members({node.gpus: None for node in nodes}, self.gpus_max + 1)
        # Of nodes that are not idle, by how many tasks they have and then by how many GPUs are free.
        self.in_use: list[list[int]] = [[0] * (self.gpus_max + 1)]
        devices = Devices(len(self.gpu_types), self.type_of, self.gpus_max, self.free)
        self._levels = {level: LevelCounts(topology, level, devices) for level in topology.levels}
        self._tables = [(table.of_node, table.counts, table.changes) for table in self._levels.values()]

    @property
    def open(self) -> int:
        """The nodes that take new work."""
        return self.with_health[Health.HEALTHY]

    def hold(self, booking: Booking) -> None:
        """Gives a booking to an attempt that starts now."""
        for number, amount in booking.needs:
            self.amounts[number].hold(booking.node, amount)
        self._take(booking)

    def release(self, booking: Booking) -> None:
        """Takes back what was held."""
        for number, amount in booking.needs:
            self.amounts[number].hold(booking.node, -amount)
        self._take_back(booking)

    def hold_foreign(self, node: int, wanted: int, gpus: int, needs: tuple[tuple[int, int], ...]) -> None:
        """Gives what is not ours as much as there is of what it holds, in place of what it had on the node.

        `wanted` are devices, `gpus` the number of further ones, which are the last that are left.
        """
        self.release_foreign(node)
        left = self.unused(node)
        devices = wanted & left
        left ^= devices
        for _ in range(min(gpus, left.bit_count())):
            last = 1 << left.bit_length() - 1
            devices |= last
            left ^= last
        there = ((number, min(amount, self.amounts[number].free[node])) for number, amount in needs)
        booking = Booking(node, devices, tuple((number, amount) for number, amount in there if amount > 0))
        if booking.devices or booking.needs:
            self.foreign[node] = booking
            self.hold(booking)

    def release_foreign(self, node: int) -> None:
        """Takes back what is not ours holds of a node."""
        booking = self.foreign.pop(node, None)
        if booking is not None:
            self.release(booking)

    def vacate(self, booking: Booking, tasks: int = 1) -> None:
        """Takes back what a terminating attempt held, or several on whole devices of one node, of so many tasks."""
        if booking.portion is None:
            self.ceding[booking.node] &= ~booking.devices
        for number, amount in booking.needs:
            self.amounts[number].leave(booking.node, amount)
        self._take_back(booking, tasks)

    def occupy(self, booking: Booking, tasks: int = 1) -> None:
        """Undoes `vacate`."""
        for number, amount in booking.needs:
            self.amounts[number].leave(booking.node, -amount)
        self._take(booking, tasks)
        if booking.portion is None:
            self.ceding[booking.node] |= booking.devices

    def _take(self, booking: Booking, tasks: int = 1) -> None:
        """Gives the devices of a booking to its holder."""
        node, devices, _, portion, holder = booking
        assert not self.held[node] & devices, f"{self._name(node)}: a device is given twice"
        if portion is None:
            assert not self.shared[node] & devices, f"{self._name(node)}: a shared device is given whole"
            self.held[node] |= devices
        else:
            add(self.load(node, devices.bit_length() - 1), holder, portion)
            self.shared[node] |= devices
            self._refresh_share(node)
        self._refresh(node, tasks if devices else 0)

    def _take_back(self, booking: Booking, tasks: int = 1) -> None:
        """Takes the devices of a booking from its holder."""
        node, devices, _, portion, holder = booking
        if portion is None:
            assert self.held[node] & devices == devices, f"{self._name(node)}: a device is returned that was not held"
            self.held[node] ^= devices
        else:
            load = self.load(node, devices.bit_length() - 1)
            remove(load, holder)
            if not load.holders:
                self.shared[node] ^= devices
            self._refresh_share(node)
        self.grown |= self.topology.bit[node]
        self._refresh(node, -tasks if devices else 0)

    def cede(self, booking: Booking) -> None:
        """Marks a holder as leaving: what it holds may be claimed."""
        node, devices, needs, portion, _ = booking
        self.versions[node] += 1
        if portion is None:
            self.ceding[node] |= devices
        for number, amount in needs:
            self.amounts[number].cede(node, amount)

    def keep(self, booking: Booking) -> None:
        """Undoes `cede`."""
        node, devices, needs, portion, _ = booking
        self.versions[node] += 1
        if portion is None:
            self.ceding[node] &= ~devices
        for number, amount in needs:
            self.amounts[number].cede(node, -amount)

    def claim(self, booking: Booking) -> None:
        """Gives an attempt a claim on a booking: it starts once the ceding holders have left.

        A device of which a portion is claimed takes no other attempt until the claim is allocated or taken back.
        """
        node, devices, needs, portion, _ = booking
        if portion is not None:
            self.promised[node, devices] = self.promised.get((node, devices), 0) + 1
        else:
            assert not self.claimed[node] & devices, f"{self._name(node)}: a device is claimed twice"
        assert not devices & self.held[node] & ~self.ceding[node], f"{self._name(node)}: a claim on a kept device"
        self.claimed[node] |= devices
        for number, amount in needs:
            self.amounts[number].claim(node, amount)
        self._refresh_share(node)
        self._refresh(node, 1 if devices else 0)

    def unclaim(self, booking: Booking) -> None:
        """Takes a promise back."""
        node, devices, needs, portion, _ = booking
        if portion is not None:
            self.promised[node, devices] -= 1
        if portion is None or not self.promised[node, devices]:
            self.claimed[node] &= ~devices
        for number, amount in needs:
            self.amounts[number].claim(node, -amount)
        self._refresh_share(node)
        self.grown |= self.topology.bit[node]
        self._refresh(node, -1 if devices else 0)

    def held_by_others(self, booking: Booking) -> bool:
        """Whether a claimed booking still waits for an attempt to leave."""
        node, devices, needs, portion, _ = booking
        if self.held[node] & devices:
            return True
        if portion is None and self.shared[node] & devices:
            return True
        if portion is not None and obstacle(self.load(node, devices.bit_length() - 1), portion) is not None:
            return True
        return any(
            self.amounts[number].held[node] + amount > self.amounts[number].total[node] for number, amount in needs
        )

    def load(self, node: int, device: int) -> DeviceLoad:
        """The holders of a shared device; made when it is first shared or cut."""
        load = self.loads.get((node, device))
        if load is None:
            spec = self.topology.nodes[node]
            model = spec.gpu_type if spec.gpu_type in GEOMETRIES else None
            load = self.loads[node, device] = DeviceLoad(model, int(spec.gpu_memory_gb * MB_PER_GB))
        return load

    def set_layout(self, node: int, device: int, layout: Layout | None) -> None:
        """Takes note of how a device is cut now."""
        set_layout(self.load(node, device), layout)
        bit = 1 << device
        self.partitioned[node] = self.partitioned[node] & ~bit | (bit if layout is not None else 0)

    def set_cutting(self, node: int, device: int, cutting: bool) -> None:
        """A device that is being cut is given to no attempt until it is known how it came out."""
        bit = 1 << device
        self.cutting[node] = self.cutting[node] | bit if cutting else self.cutting[node] & ~bit
        if not cutting:
            self.grown |= self.topology.bit[node]
        self._refresh_share(node)
        self._refresh(node)

    def unused(self, node: int) -> int:
        """Devices of a node that nothing holds, shares or claims, whatever its health."""
        return self.all_devices[node] & ~(self.held[node] | self.claimed[node] | self.shared[node] | self.cutting[node])

    def usable_shares(self, node: int) -> int:
        """Shared devices of a node that may take more shares."""
        return self.shared[node] & ~(self.claimed[node] | self.unhealthy[node] | self.cutting[node])

    def _refresh_share(self, node: int) -> None:
        """The most compute that one shared device of the node can still guarantee."""
        rooms = (self.loads[node, device].free_permille for device in members(self.usable_shares(node)))
        self.share_room.put(node, max(rooms, default=0))

    def set_health(self, node: int, health: Health) -> None:
        """Changes the health of a node; only a healthy one is open for new work."""
        bit = self.topology.bit[node]
        self.with_health[self.health[node]] ^= bit
        self.with_health[health] ^= bit
        self.health[node] = health
        if health is Health.HEALTHY:
            self.grown |= bit
        self._refresh(node)

    def set_device_health(self, node: int, device: int, health: Health) -> None:
        """Changes the health of one device."""
        if health is Health.HEALTHY:
            self.device_health.pop((node, device), None)
            self.unhealthy[node] &= ~(1 << device)
            self.grown |= self.topology.bit[node]
        else:
            self.device_health[node, device] = health
            self.unhealthy[node] |= 1 << device
        self._refresh_share(node)
        self._refresh(node)

    def _refresh(self, node: int, more_tasks: int = 0) -> None:
        """Works out what is free on a node that has so many more tasks, or fewer, with devices or a promise of some."""
        new = 0
        self.versions[node] += 1
        if self.health[node] is Health.HEALTHY:
            new = self.all_devices[node] & ~(
                self.held[node] | self.claimed[node] | self.unhealthy[node] | self.shared[node] | self.cutting[node]
            )
        old = self.free[node]
        if new == old and not more_tasks:
            return
        self.free[node] = new
        before, after = old.bit_count(), new.bit_count()
        self._put_in_use(node, old, new, more_tasks)
        if before == after:
            return
        bit = self.topology.bit[node]
        self.free_total += after - before
        self.with_free[before] ^= bit
        self.with_free[after] ^= bit
        self._frees |= 1 << after
        if not self.with_free[before]:
            self._frees ^= 1 << before
        kind = self.type_of[node]
        for of_node, counts, changes in self._tables:
            domain = of_node[node]
            row = counts[domain][kind]
            row[before] -= 1
            row[after] += 1
            changes.append(domain)
            if len(changes) > CHANGES_MAX:
                self._forget_changes()

    def _put_in_use(self, node: int, old: int, new: int, more_tasks: int) -> None:
        """Keeps idle nodes in a set, and the rest in sets by their tasks and by how many GPUs are free."""
        bit, everything = self.topology.bit[node], self.all_devices[node]
        had = self.tasks[node]
        has = self.tasks[node] = had + more_tasks
        if has == len(self.in_use):
            self.in_use.append([0] * (self.gpus_max + 1))
        if old == everything:
            self.idle ^= bit
        else:
            self.in_use[had][old.bit_count()] ^= bit
        if new == everything:
            self.idle ^= bit
        else:
            self.in_use[has][new.bit_count()] ^= bit

    def _forget_changes(self) -> None:
        for table in self._levels.values():
            table.forget_changes()

    def _name(self, node: int) -> str:
        return self.topology.nodes[node].name

    def rooms(
        self, level: str, gpu_types: tuple[int, ...], gpus: int, tasks: int, first: int, last: int
    ) -> Iterator[Domain]:
        """Domains of a level with room for `tasks` tasks of `gpus` GPUs each, the tightest first.

        Counts free GPUs by type only: labels, taints and amounts are for the caller to check.
        """
        return self._levels[level].index(gpu_types, gpus).at_least(tasks, first, last)

    def room(self, level: str, gpu_types: tuple[int, ...], gpus: int, domain: int) -> int:
        """For how many tasks of `gpus` GPUs one domain of a level has room; likewise by type only."""
        return self._levels[level].index(gpu_types, gpus).room_of(domain)

    def by_free(self, least: int = 0) -> Iterator[tuple[int, int]]:
        """Numbers of free GPUs from `least` on, and the nodes that have so many; only numbers that some node has."""
        frees = self._frees >> least << least
        while frees:
            lowest = frees & -frees
            free = lowest.bit_length() - 1
            yield free, self.with_free[free]
            frees ^= lowest

    def free_gpus(self, nodes: int) -> int:
        """Free GPUs on a set of nodes."""
        if nodes.bit_count() <= NODES_FEW:
            return sum([self.free[node].bit_count() for node in members(nodes)])
        total = 0
        for count in range(1, len(self.with_free)):
            total += count * (self.with_free[count] & nodes).bit_count()
        return total

    def has_free(self, nodes: int, gpus: int) -> bool:
        """Whether a set of nodes has so many free GPUs in all. Mostly the emptiest of them have: they count first."""
        for count in range(len(self.with_free) - 1, 0, -1):
            having = self.with_free[count] & nodes
            if having:
                gpus -= count * having.bit_count()
                if gpus <= 0:
                    return True
        return gpus <= 0

    def fingerprint(self) -> tuple[object, ...]:
        """Everything that is true of the capacity, for comparing two moments."""
        return (
            tuple(self.held),
            tuple(self.ceding),
            tuple(self.claimed),
            tuple(self.unhealthy),
            tuple(self.shared),
            tuple(self.partitioned),
            tuple(self.cutting),
            tuple(sorted(self.foreign.values())),
            tuple((at, count) for at, count in sorted(self.promised.items()) if count),
            tuple(
                (
                    at,
                    tuple(sorted(load.holders)),
                    load.guaranteed_permille,
                    load.resident_mb,
                    load.occupied,
                    load.layout,
                )
                for at, load in sorted(self.loads.items())
                if load.holders
            ),
            tuple(self.share_room.free),
            tuple(self.health),
            tuple(self.free),
            tuple(self.tasks),
            tuple(self.with_free),
            tuple(
                (amount.name, *amount.held, *amount.ceding, *amount.claimed, *amount.free) for amount in self.amounts
            ),
            tuple(table.fingerprint() for table in self._levels.values()),
        )

    def check(self) -> None:
        """Asserts that nothing is given twice and that the indexes say what the numbers say."""
        for i, bit in enumerate(self.topology.bit):
            assert not self.claimed[i] & self.held[i] & ~self.ceding[i], f"{self._name(i)}: a kept device is claimed"
            assert not self.ceding[i] & ~self.held[i], f"{self._name(i)}: a device is ceded that is not held"
            for count, having in enumerate(self.with_free):
                assert bool(self.idle & bit) == (self.free[i] == self.all_devices[i]), f"{self._name(i)}: not idle"
                assert bool(having & bit) == (self.free[i].bit_count() == count), f"{self._name(i)}: wrong bucket"
            in_use = not self.idle & bit
            for tasks, by_free in enumerate(self.in_use):
                for count, having in enumerate(by_free):
                    expected = in_use and (tasks, count) == (self.tasks[i], self.free[i].bit_count())
                    assert bool(having & bit) == expected, f"{self._name(i)}: tasks are miscounted"
        assert self._frees == from_flags(map(bool, self.with_free)), "numbers of free GPUs are miscounted"
        assert self.free_total == sum(free.bit_count() for free in self.free), "free GPUs are miscounted"
        for (node, device), load in self.loads.items():
            assert not violations(load), f"{self._name(node)}, device {device}: {violations(load)}"
            assert bool(load.holders) == bool(self.shared[node] >> device & 1), f"{self._name(node)}: not shared"
        for amount in (*self.amounts, self.share_room):
            amount.check()
        for table in self._levels.values():
            table.check()


def _amounts(topology: Topology) -> list[Amount]:
    nodes, overcommit = topology.nodes, topology.cluster.overcommit
    tiers = tuple(dict.fromkeys(tier for node in nodes for tier, _ in node.storage_gb))
    totals: list[tuple[str, list[int]]] = [
        ("cpus", [node.cpus_milli for node in nodes]),
        ("memory", [node.memory_mb for node in nodes]),
        ("nics", [node.nics for node in nodes]),
        ("cpus_limit", [int(node.cpus_milli * overcommit.cpus) for node in nodes]),
        ("memory_limit", [int(node.memory_mb * overcommit.memory) for node in nodes]),
        *((f"storage.{tier}", [dict(node.storage_gb).get(tier, 0) for node in nodes]) for tier in tiers),
    ]
    return [Amount(name, total, topology.bit) for name, total in totals]
