"""Tenancy: the virtual clusters of a State, and the cells on which its attempts stand.

The group of an attempt among the cells has the attempt's name. Attempts that share leaves have no group of their own. A
leaf that is shared is a group of one leaf, and is had for as long as an attempt is on it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from phalanx.cluster.bits import members
from phalanx.cluster.capacity import Capacity
from phalanx.cluster.cell_cluster import cluster_of
from phalanx.cluster.cells import CellSite
from phalanx.engine.state.records import AttemptRecord, JobRecord
from phalanx.placement.cells.ask import leaf_request_of, request_of
from phalanx.placement.cells.cells import Cells
from phalanx.placement.cells.group import Group, GroupState, Seat
from phalanx.placement.cells.request import Request
from phalanx.placement.cells.trees.memory import recall, remember
from phalanx.placement.cells.trees.undo import Undo
from phalanx.protocol.cells_steps import CellSeat, CellStep, Grown, Joined, Left, Seated, Shrunk
from phalanx.workload.job import Job

Place = tuple[str, int]
"""A node of the cluster, and a device of it."""


class Tenancy:
    """The cells of a State. Everything it changes can be taken back while a block is open."""

    def __init__(self, site: CellSite) -> None:
        self.cells = Cells(site)
        self.on_leaf: dict[str, tuple[str, ...]] = {}
        self.leaf_count = 0
        self._marks: list[int] = []
        self._index()
        self._bad: dict[str, None] = {}

    def _index(self) -> None:
        """Names of leaves for devices and back, and virtual leaves by their addresses: they follow from the site."""
        estate = self.cells.estate
        self.place_of: dict[tuple[str, str, int], Place] = {}
        self._leaf_at: dict[Place, tuple[str, str, int]] = {}
        self.name_of: dict[str, str] = {}
        for node, leaves in cluster_of(estate.site).leaves.items():
            for device, leaf in enumerate(leaves):
                self.place_of[leaf.chain, leaf.node, leaf.index] = node, device
                self._leaf_at[node, device] = leaf.chain, leaf.node, leaf.index
                self.name_of[node] = leaf.node
        roots = (root for cluster in estate.clusters.values() for root in cluster.roots())
        self._virtual = {leaf.address: leaf for root in roots for leaf in root.leaves()}

    def __getstate__(self) -> dict[str, Any]:
        """Cells are written as plain data: what follows from them is worked out again."""
        return {
            "memory": remember(self.cells),
            "on_leaf": self.on_leaf,
            "leaf_count": self.leaf_count,
            "bad": tuple(self._bad),
        }

    def __setstate__(self, saved: dict[str, Any]) -> None:
        self.cells = recall(saved["memory"])
        self.on_leaf = dict(saved["on_leaf"])
        self.leaf_count = saved["leaf_count"]
        self._bad = dict.fromkeys(saved["bad"])
        self._marks = []
        self._index()

    def fingerprint(self) -> tuple[object, ...]:
        """Everything true of the cells, for comparing two moments or two histories."""
        known = remember(self.cells)
        shared = tuple(sorted(self.on_leaf.items()))
        return repr(known.chains), known.groups, known.serial, shared, self.leaf_count, tuple(sorted(self._bad))

    def check(self, attempts: Iterable[AttemptRecord]) -> None:
        """Asserts that the cells are in order, and that attempts hold the devices their cells say."""
        self.cells.check()
        holders = dict.fromkeys(self.attempts_in(group.name for group in self.cells.groups()))
        for attempt in attempts:
            if request_of(attempt.job) is not None:
                assert attempt.key in holders, f"{attempt.key} has no cells"
                del holders[attempt.key]
        assert not holders, f"cells of attempts that are gone: {list(holders)}"

    @property
    def undo(self) -> Undo:
        """The log by which changes are taken back."""
        return self.cells.estate.undo

    def open(self, capacity: Capacity) -> None:
        """Begins a block whose changes are taken back at its end. The cells know of broken nodes in it."""
        self._marks.append(self.undo.opened())
        self.follow(capacity)

    def close(self) -> None:
        """Ends the block that was begun last."""
        self.undo.undo_to(self._marks.pop())
        self.undo.closed()

    def follow(self, capacity: Capacity) -> None:
        """Takes note of nodes that take no new work, and of those that do again. One sick device is enough,
        or one that foreign work holds.
        """
        topology = capacity.topology
        closed = topology.everything & ~capacity.open
        for booking in capacity.foreign.values():
            if booking.devices:
                closed |= topology.bit[booking.node]
        for node, _ in capacity.device_health:
            closed |= topology.bit[node]
        names = (self.name_of.get(topology.nodes[node].name) for node in members(closed))
        bad = dict.fromkeys(name for name in names if name is not None)
        if bad.keys() == self._bad.keys():
            return
        with self.undo.step():
            # What heals comes first: then nothing is bound to broken hardware that need not be.
            for name in self._bad:
                if name not in bad:
                    self.cells.set_health(name, is_healthy=True)
            for name in bad:
                if name not in self._bad:
                    self.cells.set_health(name, is_healthy=False)
            self.undo.set(self, "_bad", bad)

    def request(self, record: JobRecord) -> Request | None:
        """What the next attempt of a job asks of the cells; None if it needs no devices."""
        return request_of(record.asked, f"{record.job.id}/{record.next_attempt}")

    def attempts_in(self, groups: Iterable[str]) -> tuple[str, ...]:
        """The attempts that stand on the cells of some groups, each once."""
        return tuple(dict.fromkeys(key for group in groups for key in self.on_leaf.get(group, (group,))))

    def proceed(self, key: str) -> None:
        """The attempts in the way of an attempt have gone: it has its cells from now on."""
        for group in self._groups_of(key):
            self.cells.proceed(group)

    def gone(self, key: str) -> None:
        """An attempt has ended, or lost its claim. A leaf that it shared goes with the last attempt on it."""
        if self.cells.has(key):
            self.cells.remove(key)
            return
        with self.undo.step():
            for leaf in self._groups_of(key):
                rest = tuple(other for other in self.on_leaf[leaf] if other != key)
                if rest:
                    self.undo.put(self.on_leaf, leaf, rest)
                else:
                    self.undo.drop(self.on_leaf, leaf)
                    self.cells.remove(leaf)

    def holds(self, key: str) -> bool:
        """Whether an attempt has cells, or a claim on some."""
        return bool(self._groups_of(key))

    def _groups_of(self, key: str) -> list[str]:
        if self.cells.has(key):
            return [key]
        return [leaf for leaf, keys in self.on_leaf.items() if key in keys]

    def shared_by(self, job: Job) -> Iterator[str]:
        """The shared leaves that a job may join: those of its cluster and priority, on which no attempt is to leave."""
        asked = leaf_request_of(job, "")
        # By age: the order of the table does not outlive a block that was taken back.
        for leaf in sorted(self.on_leaf, key=_age):
            group = self.cells.group(leaf)
            known = group.request
            alike = (known.virtual_cluster, known.priority, known.pinned_id, known.lazy_preemption, known.is_kept) == (
                asked.virtual_cluster,
                asked.priority,
                asked.pinned_id,
                asked.lazy_preemption,
                asked.is_kept,
            )
            if alike and group.state is GroupState.ALLOCATED and not group.lazily_preempted_by:
                yield leaf

    def new_leaf(self) -> str:
        """The name of the next leaf that is to be shared."""
        return f"leaf#{self.leaf_count + 1}"

    def seat_at(self, key: str, node: str, devices: Iterable[int]) -> Seat | None:
        """The seat of an attempt on devices of a node of the cluster."""
        if not self.cells.has(key):
            return None
        wanted = sorted(self._leaf_at.get((node, device), ("", "", -1)) for device in devices)
        for seat in self.cells.group(key).seats:
            if sorted((leaf.chain.name, leaf.node_name, leaf.index) for leaf in seat.leaves if leaf) == wanted:
                return seat
        return None

    def give_back(self, key: str, node: str, devices: Iterable[int]) -> None:
        """An elastic attempt has not got a seat after all."""
        seat = self.seat_at(key, node, devices)
        if seat is not None:
            self.cells.shrink(key, seat)

    def fold(self, steps: Iterable[CellStep], jobs: Mapping[str, JobRecord]) -> None:
        """Takes the steps of a decision."""
        for step in steps:
            match step:
                case Seated(attempt=key, seats=seats):
                    request = request_of(jobs[key.rpartition("/")[0]].asked, key)
                    assert request is not None, f"{key} asks for no devices"
                    self.cells.take(request, [self._seat(seat) for seat in seats])
                case Joined(attempt=key, leaf=leaf, seat=seat):
                    if seat is not None:
                        request = leaf_request_of(jobs[key.rpartition("/")[0]].asked, leaf)
                        self.cells.take(request, [self._seat(seat)])
                    self.join(leaf, key)
                case Grown(attempt=key, seat=seat):
                    self.cells.add(key, self._seat(seat))
                case Shrunk(attempt=key, node=node, indices=indices):
                    self.cells.shrink(key, self._seat_on(self.cells.group(key), node, indices))
                case Left(attempt=key):
                    self.gone(key)

    def join(self, leaf: str, key: str) -> None:
        """Puts an attempt on a leaf that it shares with other attempts, or is the first on."""
        with self.undo.step():
            if leaf not in self.on_leaf:
                self.undo.set(self, "leaf_count", self.leaf_count + 1)
            self.undo.put(self.on_leaf, leaf, (*self.on_leaf.get(leaf, ()), key))

    def _seat(self, told: CellSeat) -> Seat:
        leaves = [self.cells.estate.leaves[told.chain, told.node, index] for index in told.indices]
        return Seat.of(leaves, [self._virtual[address] for address in told.virtual] if told.virtual else None)

    def _seat_on(self, group: Group, node: str, indices: tuple[int, ...]) -> Seat:
        return next(seat for seat in group.seats if seat.node == node and tuple(seat.indices) == indices)

    def adopt(self, old: Tenancy | None, attempts: Iterable[AttemptRecord]) -> None:
        """Takes over running attempts from another configuration, or from none: then none has a guarantee yet."""
        known = {group.name: group for group in old.cells.groups()} if old is not None else {}
        if old is not None:
            self.on_leaf, self.leaf_count = dict(old.on_leaf), old.leaf_count
        for attempt in attempts:
            if attempt.key not in known and attempt.key not in self.attempts_in(self.on_leaf):
                found = self._stranger(attempt)
                if found is not None:
                    known[found.name] = found
        for group in known.values():
            self.cells.restore(group)

    def _stranger(self, attempt: AttemptRecord) -> Group | None:
        """The group of an attempt that started before there were cells: on leaves that it has no cells for."""
        request = request_of(attempt.job, attempt.key)
        if request is None:
            return None
        seats: list[Seat] = []
        for slot in attempt.placement.slots:
            found = [
                self._leaf_at[slot.node, device] for device in slot.devices if (slot.node, device) in self._leaf_at
            ]
            if found:
                seats.append(Seat(found[0][1], [index for _, _, index in found], [""] * len(found)))
        return Group(request, "", seats, GroupState.ALLOCATED, 0)


def _age(leaf: str) -> int:
    return int(leaf.rpartition("#")[2])


def told(seat: Seat) -> CellSeat:
    """A seat as a decision tells of it."""
    leaves = [leaf for leaf in seat.leaves if leaf is not None]
    virtual = tuple(leaf.address for leaf in seat.virtual or () if leaf is not None)
    return CellSeat(leaves[0].chain.name, seat.node, tuple(seat.indices), virtual)
