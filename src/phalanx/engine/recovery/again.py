"""The place of a job that lost hardware: where it was, with something near in place of what it lost."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from phalanx.cluster.bits import from_members, lowest, members, span
from phalanx.cluster.capacity import Booking
from phalanx.cluster.cluster import CLUSTER, NODE, Health
from phalanx.engine.recovery.spares import SparesOpened
from phalanx.engine.state.records import JobRecord, usage_of
from phalanx.engine.state.windows import closing
from phalanx.engine.transaction.transaction import Closed, Transaction
from phalanx.placement.placement import Placement, Slot
from phalanx.workload.gang import Role


class Again:
    """The search for it. Tasks that stay keep nodes, devices and ranks; those of a lost node go to another together: a
    spare, or one of some `others`.
    """

    def __init__(self, transaction: Transaction, record: JobRecord, former: Placement, others: int) -> None:
        self.transaction, self.record, self.former, self.others = transaction, record, former, others
        self.state = transaction.state
        self.spares = self.state.capacity.with_health[Health.SPARE]
        self.booked: dict[int, Booking] = {}
        self.slots: dict[int, Slot] = {slot.rank: slot for slot in former.slots}

    def place(self) -> tuple[Placement, list[Booking]] | None:
        """The place, which stays taken for the rest of the transaction; None where there is none."""
        levels = _levels(self.record.asked.gang.roles, [self.record.asked.gang.topology.required])
        if not self._is_as_before() or any(level in self.state.cluster.levels_inside for level in levels):
            return None
        mark = self.transaction.mark()
        with SparesOpened(self.state), Closed(self.state, closing(self.state, self.record, self.state.now)):
            lost = [slot for slot in self.former.slots if not self._keep(slot)]
            by_node: dict[str, list[Slot]] = {}
            for slot in lost:
                by_node.setdefault(slot.node, []).append(slot)
            done = all(self._replace(node, slots, levels) for node, slots in by_node.items())
        if not done or not self._may_have():
            self.transaction.undo_to(mark)
            return None
        slots = tuple(self.slots[slot.rank] for slot in self.former.slots)
        return Placement(slots, self._mesh()), [self.booked[slot.rank] for slot in slots]

    def _is_as_before(self) -> bool:
        """Whether the job asks for what it had."""
        record = self.record
        counts: dict[str, int] = {}
        for slot in self.former.slots:
            task = record.tasks.get(slot.role)
            if task is None or slot.portion is not None or task.share is not None or len(slot.devices) != task.gpus:
                return False
            counts[slot.role] = counts.get(slot.role, 0) + 1
        if any(slot.node not in self.state.topology.number for slot in self.former.slots):
            return False
        if record.asked.gang.elastic:
            return not self.state.policy.sets_sizes and len(self.former.slots) >= _fewest(record.asked.gang.roles)
        return len(self.former.slots) == _fewest(record.asked.gang.roles)

    def _keep(self, slot: Slot) -> bool:
        """Has a task have the devices that it had, if they are free and well."""
        node = self.state.topology.number[slot.node]
        return self._book(slot, node, from_members(slot.devices, self.state.topology.nodes[node].gpus))

    def _book(self, slot: Slot, node: int, devices: int) -> bool:
        state = self.state
        ask = state.fit.ask(self.record.tasks[slot.role], self.record.asked)
        if devices & ~state.capacity.free[node] or not state.fit.passing(ask) & state.topology.bit[node]:
            return False
        booking = Booking(node, devices, ask.needs, None, f"{self.record.job.id}#{slot.rank}")
        state.capacity.hold(booking)
        self.transaction.note_held((booking,))
        self.booked[slot.rank] = booking
        self.slots[slot.rank] = replace(
            slot, node=state.topology.nodes[node].name, devices=tuple(members(devices)) if devices else ()
        )
        return True

    def _replace(self, lost: str, slots: list[Slot], levels: list[str]) -> bool:
        """Has the tasks of a node go to another, the nearest of the same kind: spares only where there is no other."""
        for nodes in self._near(lost, levels):
            for among in (nodes & ~self.spares & self.others, nodes & self.spares):
                if any(self._move(slots, node) for node in self._fitting(slots, among)):
                    return True
        return False

    def _near(self, lost: str, levels: list[str]) -> Iterator[int]:
        """The nodes around one, out to the narrowest domain that the gang must stay in."""
        topology = self.state.topology
        node = topology.number[lost]
        alike = self.state.fit.of_types((topology.nodes[node].gpu_type,))
        for level in (*reversed(self.state.cluster.levels_above), CLUSTER):
            domain = topology.domains[level][topology.domain_of[level][node]] if level != CLUSTER else None
            yield alike & (span(domain.first, domain.last) if domain is not None else topology.everything)
            if level in levels:
                return

    def _fitting(self, slots: list[Slot], among: int) -> Iterator[int]:
        """Nodes with enough free devices for all of them, the fullest first."""
        gpus = sum(len(slot.devices) for slot in slots)
        for _, nodes in self.state.capacity.by_free(gpus):
            here = nodes & among
            while here:
                node = lowest(here)
                yield node
                here ^= self.state.topology.bit[node]

    def _move(self, slots: list[Slot], node: int) -> bool:
        mark = self.transaction.mark()
        layout, capacity = self.state.topology.layouts[node], self.state.capacity
        for slot in slots:
            free = capacity.free[node]
            if free.bit_count() < len(slot.devices) or not self._book(slot, node, layout.pick(free, len(slot.devices))):
                self.transaction.undo_to(mark)
                return False
        return True

    def _may_have(self) -> bool:
        """An elastic gang may have more than its minimum only within the quota of its queue."""
        quotas = self.state.quotas
        usage = usage_of(self.booked.values())
        return not quotas or quotas.shortfall(self.record.job.queue, usage) is None

    def _mesh(self) -> tuple[tuple[str, int], ...]:
        """The devices by parallel rank: each that replaces another is what that was."""
        instead = {
            (was.node, old): (self.slots[was.rank].node, new)
            for was in self.former.slots
            for old, new in zip(was.devices, self.slots[was.rank].devices, strict=True)
        }
        return tuple(instead[device] for device in self.former.mesh)


def _levels(roles: Iterable[Role], found: list[str]) -> list[str]:
    """The levels that a gang and its parts must keep to. Tasks of one node stay together in any case."""
    for role in roles:
        found.append(role.topology.required)
        _levels(role.members, found)
    return [level for level in found if level and level not in (NODE, CLUSTER)]


def _fewest(roles: Iterable[Role]) -> int:
    """The least number of tasks."""
    return sum(role.replicas_min * (_fewest(role.members) if role.members else 1) for role in roles)
