"""Upper bounds: how many tasks of a head could fit at most, once victims have left. Counting is cheaper than trying.

What is counted is never too little: a head that is counted out would not have fitted, had it been tried. And no attempt
has to be taken out of the capacity for that.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping

from phalanx.cluster.bits import from_members, members
from phalanx.cluster.topology import Domain
from phalanx.engine.preempt.cleared import ClearedGpus
from phalanx.engine.state.records import AttemptRecord, JobRecord
from phalanx.engine.state.state import State
from phalanx.placement.place import largest_task
from phalanx.placement.placement import Lack


class UpperBounds:
    """The upper bounds of a decision: heads that ask for the same have the same one, until the plan goes on."""

    def __init__(self, state: State) -> None:
        self.state = state
        self._stage: Hashable = None
        self._known: dict[Hashable, UpperBound] = {}
        self._cleared: ClearedGpus | None = None
        # A head that is refused is asked for twice.
        self._last: tuple[JobRecord, UpperBound] | None = None

    def of(self, head: JobRecord, leaving: Mapping[str, AttemptRecord], stage: Hashable) -> UpperBound:
        """That of a head, with the plan at some stage."""
        if stage != self._stage:
            self._stage = stage
            self._known.clear()
            self._cleared = ClearedGpus(self.state, leaving)
            self._last = None
        if self._last is not None and self._last[0] is head:
            return self._last[1]
        kind = (head.asked.gang, head.asked.node_selector, head.asked.tolerations)
        found = self._known.get(kind)
        if found is None:
            found = self._known[kind] = UpperBound(self.state, head, leaving, self._cleared)
        self._last = (head, found)
        return found


class UpperBound:
    """That of one head while terminating attempts are still there.

    Of a head of several roles those tasks are counted that take most of its GPUs. One that shares devices cannot be
    counted out. `lack` is what it lacks, once that has been found out.
    """

    def __init__(
        self, state: State, head: JobRecord, leaving: Mapping[str, AttemptRecord], cleared: ClearedGpus | None = None
    ) -> None:
        self.state = state
        self.capacity = state.capacity
        self._cleared = ClearedGpus(state, leaving) if cleared is None else cleared
        self._asked, self._tasks = head.asked, head.tasks
        gang = head.asked.gang
        task, self._count = largest_task(head.asked)
        self._gpus = task.gpus
        self._counts = bool(task.gpus) and task.share is None
        self._ask = state.fit.ask(task, head.asked)
        self._required = gang.topology.required
        self._level = self._required if self._required in state.topology.domains else ""
        self._on_one_node = self._count == 1 or (self._required in state.cluster.levels and not self._level)
        self.lack: Lack | None = None
        self._fits: bool | None = None
        self._fits_now: bool | None = None
        self._fits_without: dict[tuple[int, bool], bool] = {}
        self._reach: dict[bool, int] = {}

    def reach(self, fresh: int | None) -> int:
        """Nodes it could use. Was it refused before, only those that something new can make a difference on."""
        again = fresh is not None
        if again not in self._reach:
            self._reach[again] = self._find_reach(fresh)
        return self._reach[again]

    def _find_reach(self, fresh: int | None) -> int:
        reach = 0
        for task in self._tasks.values():
            reach |= self.state.fit.ask(task, self._asked).eligible
        reach &= self.capacity.open
        if fresh is None:
            return reach
        if len(self._tasks) == self._count == 1:
            return reach & fresh
        if not self._level:
            return reach
        of_node, found = self.state.topology.domain_of[self._level], 0
        for domain in dict.fromkeys([of_node[node] for node in members(fresh)]):
            found |= self.state.topology.domains[self._level][domain].nodes
        return reach & found

    def gpus_outside(self, nodes: Iterable[int]) -> int:
        """GPUs of nodes that it could use and that are none of these, whatever lies there."""
        outside = self.reach(None) & ~from_members(dict.fromkeys(nodes), len(self.state.topology.nodes))
        return sum([self.capacity.all_devices[node].bit_count() for node in members(outside)])

    def fits_beside(self) -> bool:
        """Whether it may fit once terminating attempts have left, if it does not fit as things are."""
        if self._fits is None:
            self._fits = not self._counts or self._may_fit_beside()
        return self._fits

    def _may_fit_beside(self) -> bool:
        left = {node: tasks for node in self._left_nodes if (tasks := self._tasks_soon(node))}
        if self._on_one_node:
            return any(tasks >= self._count for tasks in left.values())
        if self._level:
            return self._any_domain_gains(left)
        return bool(left) and self._tasks_in_all(left) >= self._count

    def _tasks_in_all(self, left: Mapping[int, int]) -> int:
        others = self.state.fit.passing(self._ask) & ~self._bits(left)
        by_free = self.capacity.by_free(self._gpus)
        return sum(
            [(others & having).bit_count() * (free // self._gpus) for free, having in by_free], sum(left.values())
        )

    def fits_now(self) -> bool:
        """Whether it may fit as things are: of a job whose queue may have no more that is not known yet."""
        if self._fits_now is None:
            self._fits_now = not self._counts or self._is_free_now()
        return self._fits_now

    def _is_free_now(self) -> bool:
        passing = self.state.fit.passing(self._ask)
        if self._on_one_node:
            return any(passing & having for _, having in self.capacity.by_free(self._gpus * self._count))
        if not self._level:
            return self._tasks_in_all({}) >= self._count
        of_node = self.state.topology.domain_of[self._level]
        room: dict[int, int] = {}
        for nodes in self._sets(passing, self.capacity.with_free):
            for node in members(nodes):
                domain = of_node[node]
                room[domain] = room.get(domain, 0) + 1
                if room[domain] >= self._count:
                    return True
        return False

    def _any_domain_gains(self, left: Mapping[int, int]) -> bool:
        """Whether terminating attempts leave enough in a domain, beside what is free there."""
        of_node = self.state.topology.domain_of[self._level]
        room: dict[int, int] = {}
        for node, tasks in left.items():
            domain = of_node[node]
            if domain not in room:
                room[domain] = self.capacity.room(self._level, self._ask.types, self._gpus, domain)
            room[domain] += tasks
        return any(tasks >= self._count for tasks in room.values())

    def fits_without(self, up_to: int, fresh: int | None) -> bool:
        """Whether it may fit once, on nodes within reach, all attempts up to a priority have left, too."""
        asked = (up_to, fresh is not None)
        if asked not in self._fits_without:
            self._fits_without[asked] = self.fits_beside() or self._may_fit_without(up_to, self.reach(fresh))
        return self._fits_without[asked]

    def _may_fit_without(self, up_to: int, reach: int) -> bool:
        left = {
            node: self._cleared.without(node, up_to) // self._gpus for node in self._left_nodes if reach >> node & 1
        }
        if self._on_one_node:
            clearable = self._cleared.nodes(up_to, self._gpus * self._count) & reach
            if clearable and left:
                clearable &= ~self._bits(left)
            return bool(clearable) or any(tasks >= self._count for tasks in left.values())
        sets = self._stoppable_sets(up_to, reach & ~self._bits(left))
        if not self._level:
            return self._tasks_on(sets) + sum(left.values()) >= self._count
        return any(tasks >= self._count for tasks in self._by_domain(sets, left, reach))

    def _stoppable_sets(self, up_to: int, nodes: int) -> list[int]:
        """Of some nodes those that have GPUs for one task, for two, … once all attempts up to a priority have left."""
        most = self.capacity.gpus_max // self._gpus
        return [nodes & self._cleared.nodes(up_to, tasks * self._gpus) for tasks in range(1, most + 1)]

    def _by_domain(self, sets: list[int], left: Mapping[int, int], reach: int) -> Iterator[int]:
        """Tasks in each domain within reach."""
        of_node = self.state.topology.domain_of[self._level]
        gained: dict[int, int] = {}
        for node, tasks in left.items():
            gained[of_node[node]] = gained.get(of_node[node], 0) + tasks
        domains = self.state.topology.domains[self._level]
        few = reach.bit_count() < len(domains)
        for i in dict.fromkeys([of_node[node] for node in members(reach)]) if few else range(len(domains)):
            yield self._tasks_in(domains[i], sets) + gained.get(i, 0)

    def _sets(self, nodes: int, with_free: list[int]) -> list[int]:
        """Of some nodes those that have GPUs for one task, for two, … as they are."""
        sets: list[int] = []
        having = 0
        for free in range(len(with_free) - 1, self._gpus - 1, -1):
            having |= with_free[free]
            if free % self._gpus == 0:
                sets.append(nodes & having)
        return sets

    def _tasks_on(self, sets: list[int]) -> int:
        return sum([nodes.bit_count() for nodes in sets])

    def _tasks_in(self, domain: Domain, sets: list[int]) -> int:
        first, every_node = domain.first, (1 << domain.last - domain.first) - 1
        return sum([(nodes >> first & every_node).bit_count() for nodes in sets])

    def _bits(self, nodes: Mapping[int, int]) -> int:
        found, bit = 0, self.state.topology.bit
        for node in nodes:
            found |= bit[node]
        return found

    @property
    def _left_nodes(self) -> Iterator[int]:
        """Nodes that could take a task and that an attempt is leaving."""
        return members(self._cleared.left & self._ask.eligible & self.capacity.open)

    def _tasks_soon(self, node: int) -> int:
        """Tasks that such a node takes then."""
        fits = self._cleared.soon(node) // self._gpus
        for number, needed in self._ask.needs:
            amount = self.capacity.amounts[number]
            free = amount.total[node] - amount.held[node] + amount.ceding[node] - amount.claimed[node]
            fits = min(fits, free // needed)
        return fits
