"""The domains of a level in which a group of tasks may have room, the best first, and the room of nodes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice

from phalanx.cluster.bits import lowest, members, span
from phalanx.cluster.capacity import Capacity
from phalanx.cluster.cluster import CLUSTER, NODE
from phalanx.cluster.topology import Domain
from phalanx.placement.bounds import Counting, Range, domains_within, lies_in_one, supply_now
from phalanx.placement.fit import TASKS_PER_NODE_MAX, Ask, Fit
from phalanx.placement.pack import Packing
from phalanx.workload.gang import Role
from phalanx.workload.job import Job
from phalanx.workload.shape import has_parts
from phalanx.workload.sizes import leaves

TRIALS_MAX = 256
"""Domains filled in trial per group and level before the next wider level: a bound on work, counted and never timed."""

TRIALS_FEW = 4
"""Domains or replicas up to which trying is cheaper than counting first what all of them have room for."""


class DomainSearch:
    """The search of one trial.

    `among` are the nodes that are looked at. With `crowded` tasks that share devices go where the fewest are; if it is
    False, only to devices of their own; if it is None, where the device is fullest. `cut_short` says that a search was
    ended before all places were tried: then a refusal proves nothing.
    """

    def __init__(self, fit: Fit, packing: Packing, job: Job) -> None:
        self.fit = fit
        self.capacity: Capacity = fit.capacity
        self.packing = packing
        self.job = job
        self.among = -1
        self.crowded: bool | None = None
        self.cut_short = False
        self._sharing = False
        self._step = 0
        self._allowed = -1
        self._one_type: tuple[int, ...] = ()
        self._of_type = -1
        self._passing: dict[Ask, tuple[int, int]] = {}

    def _domains(self, level: str, roles: tuple[Role, ...], within: Range) -> Iterator[Range]:
        if level == CLUSTER:
            return iter((within,))
        if level in self.capacity.topology.domains:
            if lies_in_one(self.capacity.topology, level, within):
                return iter((within,))
            return self._budgeted(self._rooms(level, roles, within))
        if self._sharing and has_parts(roles):
            return self._budgeted(self._sharing_nodes(level, roles, within))
        return self._budgeted(self._nodes(level, roles, within))

    def _budgeted(self, domains: Iterator[Range]) -> Iterator[Range]:
        """As many domains as are tried at most."""
        left = TRIALS_MAX
        for domain in domains:
            if not left:
                self.cut_short = True
                return
            left -= 1
            yield domain

    def _rooms(self, level: str, roles: tuple[Role, ...], within: Range) -> Iterator[Range]:
        """Domains with free GPUs for the role that takes most of them, the tightest first.

        The first few are looked at as they come; after that, what all have for all roles is counted at once.
        """
        anchor, count = max(leaves(roles), key=lambda leaf: leaf[0].task.gpus * leaf[1])
        ask = self.fit.ask(anchor.task, self.job)
        rooms: Iterator[Range | Domain]
        if not ask.gpus or ask.portions:
            rooms = domains_within(self.capacity.topology, level, within)
            few = [Range(room.first, room.last) for room in islice(rooms, TRIALS_FEW)]
            yield from (room for room in few if self._counting().bounds(roles, room).hold(room))
        else:
            types = self._one_type or ask.types
            found = self.capacity.rooms(level, types, ask.gpus, count, *within)
            rooms = iter(self.packing.rooms(found, self.capacity))
            yield from self._worth_trying(rooms, ask, count)
        rest = next(rooms, None)
        if rest is not None:
            bounds = self._counting().bounds(roles, within)
            for room in chain((rest,), rooms):
                if bounds.hold(room):
                    yield Range(room.first, room.last)

    def _counting(self) -> Counting:
        return Counting(self.fit, self.job, supply_now(self.capacity), self._passes, self.crowded is not None)

    def _worth_trying(self, rooms: Iterator[Range | Domain], ask: Ask, count: int) -> Iterator[Range]:
        """Of the first domains those whose labels, taints or amounts do not leave too few nodes for tasks of a kind."""
        holding = self._holding(ask, self._passes(ask))
        tried = 0
        for domain in rooms:
            first, every_node = domain.first, (1 << domain.last - domain.first) - 1
            room = 0
            for nodes in holding:
                room += (nodes >> first & every_node).bit_count()
            if room >= count:
                yield Range(first, domain.last)
                tried += 1
                if tried == TRIALS_FEW:
                    return

    def _sharing_nodes(self, level: str, roles: tuple[Role, ...], within: Range) -> Iterator[Range]:
        """Single nodes that may have room for all roles; inside the node, each group of a level."""
        for node in self._counting().bounds(roles, within).on_nodes():
            groups = self.capacity.topology.layouts[node].levels.get(level, ())
            for group in (-1,) if level == NODE else groups:
                yield from self._only(group, node)

    def _holding(self, ask: Ask, passing: int) -> list[int]:
        """Sets of nodes with GPUs for at least one task, two tasks, …: a domain's room is how often it is in them."""
        holding = []
        having = 0
        for free in range(self.capacity.gpus_max, ask.gpus - 1, -1):
            having |= self.capacity.with_free[free]
            if free % ask.gpus == 0:
                holding.append(having & passing)
        return holding

    def _nodes(self, level: str, roles: tuple[Role, ...], within: Range) -> Iterator[Range]:
        """Single nodes with room for all roles, the best first; inside the node, within one group of a level."""
        asks = [(self.fit.ask(role.task, self.job), count) for role, count in leaves(roles)]
        gpus = sum(ask.gpus * count for ask, count in asks)
        if gpus > self.capacity.gpus_max:
            return
        nodes = self._room_for_all(asks, within)
        topology = self.capacity.topology
        for best in self.packing.ranked(self.capacity, gpus, nodes):
            for node in members(best):
                devices = -1
                if level != NODE:
                    free = self.capacity.free[node] & self._allowed
                    devices = topology.layouts[node].pick_within(level, free, gpus)
                    if not devices and gpus:
                        continue
                yield from self._only(devices, node)

    def _room_for_all(self, asks: list[tuple[Ask, int]], within: Range) -> int:
        """Nodes whose amounts suffice for all tasks together."""
        nodes = self._passes(asks[0][0]) & span(*within)
        if len(asks) == 1 and asks[0][1] == 1:
            return nodes
        totals: dict[int, int] = {}
        for ask, count in asks:
            nodes &= ask.eligible
            for number, amount in ask.needs:
                totals[number] = totals.get(number, 0) + amount * count
        for number, amount in totals.items():
            nodes &= self.capacity.amounts[number].at_least(amount)
        return nodes

    def _passes(self, ask: Ask) -> int:
        known = self._passing.get(ask)
        if known is not None and known[0] == self._step:
            return known[1]
        nodes = self.fit.passing(ask) & self.among
        if ask.gpus:
            nodes &= self._of_type
        self._passing[ask] = (self._step, nodes)
        return nodes

    def _only(self, devices: int, node: int) -> Iterator[Range]:
        """One node, of which no other devices than these are looked at for as long as it is tried."""
        outer = self._allowed
        self._allowed &= devices
        try:
            yield Range(node, node + 1)
        finally:
            self._allowed = outer

    def _room_by_gpus(self, ask: Ask, within: Range) -> int:
        """For how many tasks nodes have the GPUs."""
        return sum(map(int.bit_count, self._holding(ask, self._passes(ask) & span(*within))))

    def _tightest(self, ask: Ask, count: int, nodes: int, within: Range, fallback: int) -> int:
        """The node that `count` tasks fill best."""
        if within.last - within.first == 1 or not ask.gpus:
            return fallback
        nodes &= span(*within)
        if count > 1:
            for number, amount in ask.needs:
                nodes &= self.capacity.amounts[number].at_least(amount * count)
        for best in self.packing.ranked(self.capacity, ask.gpus * count, nodes):
            return lowest(best)
        return fallback

    def _fits(self, ask: Ask, node: int) -> int:
        """How many tasks fit a node."""
        capacity = self.capacity
        fits = (capacity.free[node] & self._allowed).bit_count() // ask.gpus if ask.gpus else TASKS_PER_NODE_MAX
        for number, amount in ask.needs:
            more = capacity.amounts[number].free[node] // amount
            if more < fits:
                fits = more
        return fits
