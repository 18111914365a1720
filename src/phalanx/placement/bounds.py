"""Bounds: how many tasks domains could have room for at most. Counting is cheaper than seating and undoing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

from phalanx.cluster.capacity import Capacity
from phalanx.cluster.topology import Domain, Topology
from phalanx.placement.fit import TASKS_PER_NODE_MAX, Ask, Fit
from phalanx.workload.gang import Role
from phalanx.workload.job import Job
from phalanx.workload.sizes import at_least, least_leaves


class Range(NamedTuple):
    """Nodes numbered `first` up to but not including `last`: every domain is one."""

    first: int
    last: int


class Supply(NamedTuple):
    """What nodes have to give: sets of free devices, amounts by number, and sets of devices that take more shares."""

    free: list[int]
    amounts: list[list[int]]
    joinable: Callable[[int], int]


def supply_now(capacity: Capacity) -> Supply:
    """What is there as things are."""
    return Supply(capacity.free, [amount.free for amount in capacity.amounts], capacity.usable_shares)


def supply_idle(capacity: Capacity) -> Supply:
    """What is there if nothing is allocated and all is healthy."""
    return Supply(capacity.all_devices, [amount.total for amount in capacity.amounts], lambda node: 0)


class Wanted(NamedTuple):
    """Equal tasks: what one of them asks for, how many there are, and the nodes that take one."""

    ask: Ask
    tasks: int
    passing: int


class Bounds:
    """What the nodes of a range have for tasks that are to be seated together.

    Nothing is counted too low: what has too little here has no room, whatever the order of seating. Where there is one
    kind of task on whole devices, nothing is counted too high either. Tasks that are `alone` share no device with
    the rest of their gang.
    """

    def __init__(self, fit: Fit, supply: Supply, wanted: Sequence[Wanted], within: Range, alone: bool) -> None:
        self._fit = fit
        self._supply = supply
        self._within = within
        self._alone = alone
        self._rooms = [(count, self._by_node(ask, passing)) for ask, count, passing in wanted]
        self._sums = [(count, _running(rooms)) for count, rooms in self._rooms]
        if len(wanted) > 1:
            self._sums += self._together(wanted)

    def hold(self, domain: Range | Domain) -> bool:
        """Whether a domain may have room for all the tasks."""
        first, last = domain.first - self._within.first, domain.last - self._within.first
        return all(sums[last] - sums[first] >= count for count, sums in self._sums)

    def groups(self, domains: Iterable[Range]) -> int:
        """How many times domains may have room for all the tasks, all of one time in one domain."""
        start = self._within.first
        return sum(
            min((sums[last - start] - sums[first - start]) // count for count, sums in self._sums if count)
            for first, last in domains
        )

    def on_nodes(self) -> list[int]:
        """Nodes that may have room for all the tasks each."""
        return [node for node, times in enumerate(self._times(), start=self._within.first) if times]

    def groups_on_nodes(self) -> int:
        """How many times single nodes may have room for all the tasks."""
        return sum(self._times())

    def _times(self) -> Iterable[int]:
        """How many times each node may have room for all the tasks."""
        times = [[room // count for room in rooms] for count, rooms in self._rooms if count]
        return times[0] if len(times) == 1 else map(min, *times)

    def _by_node(self, ask: Ask, passing: int) -> list[int]:
        """For how many tasks of a kind each node has room."""
        first, last = self._within
        rooms = self._by_devices(ask)
        for number, amount in ask.needs:
            free = self._supply.amounts[number][first:last]
            if min(free, default=0) >= amount * max(rooms, default=0):
                continue
            rooms = [room if room * amount <= has else has // amount for room, has in zip(rooms, free, strict=True)]
        return _only(rooms, passing >> first)

    def _by_devices(self, ask: Ask) -> list[int]:
        first, last = self._within
        if not ask.gpus:
            return [TASKS_PER_NODE_MAX] * (last - first)
        counts = map(int.bit_count, self._supply.free[first:last])
        if ask.portions:
            return self._shares_by_node(ask, counts)
        tasks_on = [gpus // ask.gpus for gpus in range(self._fit.capacity.gpus_max + 1)]
        return list(map(tasks_on.__getitem__, counts))

    def _shares_by_node(self, ask: Ask, free: Iterable[int]) -> list[int]:
        """For how many tasks that share devices each node has room, were all its shared devices as its emptiest."""
        first, last = self._within
        each = [1] * len(ask.portions) if self._alone else self._fit.per_device(ask)
        rooms = [gpus * each[kind] for gpus, kind in zip(free, self._fit.kind_of[first:last], strict=True)]
        for i, shared in enumerate(self._fit.capacity.shared[first:last]):
            if shared:
                joined = 1 if self._alone else self._joining(ask, first + i)
                rooms[i] += self._supply.joinable(first + i).bit_count() * joined
        return rooms

    def _joining(self, ask: Ask, node: int) -> int:
        """How many tasks the emptiest of a node's shared devices takes by its compute."""
        portion = ask.portions[self._fit.kind_of[node]]
        if portion is None:
            return 0
        if portion.revocable:
            return TASKS_PER_NODE_MAX
        return self._fit.capacity.share_room.free[node] // portion.compute_permille

    def _together(self, wanted: Sequence[Wanted]) -> list[tuple[int, list[int]]]:
        """What tasks of several kinds take in all: of free GPUs, and of each amount, on the nodes that take them."""
        first, last = self._within
        found = []
        whole = [each for each in wanted if each.ask.gpus and not each.ask.portions]
        if whole:
            free = list(map(int.bit_count, self._supply.free[first:last]))
            gpus = sum(ask.gpus * count for ask, count, _ in whole)
            found.append((gpus, _running(_only(free, _anywhere(whole) >> first))))
        for number in dict.fromkeys(number for ask, _, _ in wanted for number, _ in ask.needs):
            needing = [(each, amount) for each in wanted for other, amount in each.ask.needs if other == number]
            total = sum(amount * each.tasks for each, amount in needing)
            nodes = _anywhere(each for each, _ in needing)
            found.append((total, _running(_only(self._supply.amounts[number][first:last], nodes >> first))))
        return found


class Counting:
    """Counts for one job what there is, for whichever roles of it are asked about. `passes` are nodes for a task."""

    def __init__(self, fit: Fit, job: Job, supply: Supply, passes: Callable[[Ask], int], alone: bool = False) -> None:
        self._fit = fit
        self._job = job
        self._supply = supply
        self._passes = passes
        self._alone = alone

    def bounds(self, roles: tuple[Role, ...], within: Range) -> Bounds:
        """What nodes have for roles at these sizes, and with as few members inside them as they can have."""
        asks = [(self._fit.ask(role.task, self._job), count) for role, count in least_leaves(roles)]
        wanted = [Wanted(ask, count, self._passes(ask)) for ask, count in asks]
        return Bounds(self._fit, self._supply, wanted, within, self._alone)

    def groups(self, roles: tuple[Role, ...], level: str, within: Range) -> int:
        """How many times domains of a level have room for roles at their smallest."""
        topology = self._fit.capacity.topology
        if level and not topology.knows(level):
            return 0
        bounds = self.bounds(at_least(roles), within)
        if level in topology.domains:
            return bounds.groups(domains_within(topology, level, within))
        # What lies inside a node counts as the node.
        return bounds.groups_on_nodes() if level in topology.cluster.levels else bounds.groups((within,))

    def holds(self) -> bool:
        """Whether there may be room for the whole gang at its smallest."""
        gang = self._job.gang
        everywhere = Range(0, len(self._fit.capacity.topology.nodes))
        return self._holds(gang.roles, gang.topology.required, everywhere, 1)

    def _holds(self, roles: tuple[Role, ...], level: str, within: Range, times: int) -> bool:
        """Whether domains of a level have room for roles so many times, and likewise for each replica of a role."""
        if self.groups(roles, level, within) < times:
            return False
        return all(
            self._holds(role.members or (Role(task=role.task),), role.topology.required, within, role.replicas_min)
            for role in roles
            if role.members or role.topology.required
        )


def lies_in_one(topology: Topology, level: str, within: Range) -> bool:
    """Whether a range is a part of one domain of a level: then all in it is as close as the level asks."""
    if within.first >= within.last:
        return False
    domain = topology.domains[level][topology.domain_of[level][within.first]]
    return within.last <= domain.last and within != (domain.first, domain.last)


def domains_within(topology: Topology, level: str, within: Range) -> Iterator[Range]:
    """The domains of a level of several nodes that lie in a range; the range itself, where it is a part of one."""
    if lies_in_one(topology, level, within):
        yield within
        return
    for domain in topology.domains[level]:
        if within.first <= domain.first and domain.last <= within.last:
            yield Range(domain.first, domain.last)


def _running(values: Iterable[int]) -> list[int]:
    """Sums of the first none, one, two, … of some values: a domain has the difference of two of them."""
    return list(accumulate(values, initial=0))


def _anywhere(wanted: Iterable[Wanted]) -> int:
    """Nodes that take tasks of any of some kinds."""
    nodes = 0
    for _, _, passing in wanted:
        nodes |= passing
    return nodes


def _only(rooms: list[int], nodes: int) -> list[int]:
    """Rooms on nodes of a set, none on the rest."""
    if not rooms:
        return rooms
    digits = f"{nodes & (1 << len(rooms)) - 1:0{len(rooms)}b}"
    return [room if digit == "1" else 0 for room, digit in zip(rooms, reversed(digits), strict=True)]
