"""Exhaustion: whether tasks of several kinds fit in any way at all, by trying every way: an idle cluster, or what is
free of a small one now.

Nodes with the same left count as one, so that even a large cluster has few ways; where it has too many, none is known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from operator import ge, sub

from phalanx.cluster.bits import members, span
from phalanx.cluster.cluster import NODE
from phalanx.cluster.topology import Topology
from phalanx.placement.bounds import Range, domains_within
from phalanx.placement.fit import Ask, Fit
from phalanx.workload.gang import Task
from phalanx.workload.job import Job

STEPS_MAX = 2_000
"""Tasks put somewhere in trial: a bound on work, counted and never timed."""

TASKS_MAX = 64
"""Tasks of a gang above which there are too many ways."""

STEPS_NOW_MAX = 80
"""Likewise, where a gang is to be placed: that is tried again and again."""

NODES_NOW_MAX = 128
"""Nodes that have something free above which a gang that has a place is as good as never refused without it."""

Amounts = tuple[int, ...]
Make = tuple[Amounts, Amounts]
"""What a node has left, its GPUs first, and whether it takes each kind of task."""


def some_way(fit: Fit, job: Job) -> bool | None:
    """Whether a gang of single tasks on whole devices fits in some way; None if that is not known."""
    gang = job.gang
    tasks = [role.task for role in gang.roles for _ in range(min(role.replicas_min, TASKS_MAX + 1))]
    is_simple = all(not role.members and not role.topology.required and role.task.share is None for role in gang.roles)
    if not is_simple or len(tasks) > TASKS_MAX:
        return None
    kinds = _kinds(tasks)
    asks = [fit.ask(task, job) for task in kinds]
    ways = _Ways(asks, [tasks.count(kind) for kind in kinds], STEPS_MAX)
    for nodes in dict.fromkeys(_domains(fit, asks, ways.numbers, gang.topology.required)):
        if ways.exist(nodes):
            return True
    return None if ways.steps_left < 0 else False


def way_now(
    fit: Fit, job: Job, tasks: Sequence[Task], passes: Callable[[Ask], int], domains: Sequence[Range]
) -> list[int] | None:
    """The node of each of some tasks on whole devices, all of them in one domain, as things are; None if none is known.

    The domain that has least to choose from comes first, and in it the nodes that have fewest GPUs free.
    """
    kinds = _kinds(tasks)
    asks = [fit.ask(task, job) for task in kinds]
    passing = [passes(ask) for ask in asks]
    anywhere = 0
    for nodes in passing:
        anywhere |= nodes
    if len(tasks) > TASKS_MAX or anywhere.bit_count() > NODES_NOW_MAX or not all(passing):
        return None
    ways = _Ways(asks, [tasks.count(kind) for kind in kinds], STEPS_NOW_MAX)
    gpus = sum(task.gpus for task in tasks)
    within = [anywhere & span(*domain) for domain in domains]
    enough = [nodes for nodes in within if nodes and fit.capacity.has_free(nodes, gpus)]
    for nodes in sorted(enough, key=int.bit_count):
        found = ways.first(_makes_now(fit, nodes, passing, ways.numbers))
        if found is not None:
            of_kind = {kind: iter(found[number]) for number, kind in enumerate(kinds)}
            return [next(of_kind[task]) for task in tasks]
    return None


def _makes_now(fit: Fit, nodes: int, passing: list[int], numbers: list[int]) -> dict[Make, list[int]]:
    """Nodes by what they have left and take, as things are."""
    capacity = fit.capacity
    found: dict[Make, list[int]] = {}
    for node in members(nodes):
        left = (capacity.free[node].bit_count(), *(capacity.amounts[number].free[node] for number in numbers))
        found.setdefault((left, tuple(each >> node & 1 for each in passing)), []).append(node)
    return found


def _kinds(tasks: Sequence[Task]) -> list[Task]:
    """The kinds of some tasks, the largest first."""
    return list(dict.fromkeys(sorted(tasks, key=lambda task: (-task.gpus, -task.cpus_milli, -task.memory_mb))))


def _domains(fit: Fit, asks: list[Ask], numbers: list[int], level: str) -> Iterator[tuple[tuple[Make, int], ...]]:
    """The domains of a level, each as the makes of its nodes with their numbers: equal ones are tried once."""
    topology = fit.capacity.topology
    takes = [bytearray(len(topology.nodes)) for _ in asks]
    for flags, ask in zip(takes, asks, strict=True):
        for node in members(ask.eligible):
            flags[node] = 1
    totals = [fit.capacity.amounts[number].total for number in numbers]
    for domain in _gpus_of(topology, level):
        found: dict[Make, int] = {}
        for node, gpus in domain:
            make = ((gpus, *(total[node] for total in totals)), tuple(flags[node] for flags in takes))
            found[make] = found.get(make, 0) + 1
        yield tuple(sorted(found.items()))


def _gpus_of(topology: Topology, level: str) -> Iterator[list[tuple[int, int]]]:
    """The nodes of each domain of a level and how many of their GPUs are in it."""
    if level in topology.cluster.levels_inside:
        for node, layout in enumerate(topology.layouts):
            yield from ([(node, group.bit_count())] for group in layout.levels.get(level, ()))
        return
    everywhere = Range(0, len(topology.nodes))
    if level in topology.domains:
        domains = domains_within(topology, level, everywhere)
    elif level == NODE:
        domains = (Range(node, node + 1) for node in range(*everywhere))
    else:
        domains = iter((everywhere,))
    for first, last in domains:
        yield [(node, topology.nodes[node].gpus) for node in range(first, last)]


class _Ways:
    """Ways to put so many tasks of each kind on nodes, the largest tasks first."""

    def __init__(self, asks: list[Ask], counts: list[int], steps_max: int) -> None:
        self.numbers = list(dict.fromkeys(number for ask in asks for number, _ in ask.needs))
        self._needs = [(ask.gpus, *(dict(ask.needs).get(number, 0) for number in self.numbers)) for ask in asks]
        self._kinds = [kind for kind, count in enumerate(counts) for _ in range(count)]
        self.steps_left = steps_max
        self._failed: dict[tuple[int, tuple[tuple[Make, int], ...]], None] = {}
        self._chosen: list[Make] = []

    def first(self, nodes: dict[Make, list[int]]) -> list[list[int]] | None:
        """The nodes of the tasks of each kind, by the first way there is."""
        self._chosen.clear()
        if not self.exist(tuple(sorted((make, len(alike)) for make, alike in nodes.items()))):
            return None
        left = {make: list(reversed(alike)) for make, alike in nodes.items()}
        found: list[list[int]] = [[] for _ in self._needs]
        for kind, make in zip(self._kinds, reversed(self._chosen), strict=True):
            node = left[make].pop()
            left.setdefault(self._after(make, kind), []).append(node)
            found[kind].append(node)
        return found

    def _after(self, make: Make, kind: int) -> Make:
        """What a node is once a task of a kind is on it."""
        has, takes = make
        return tuple(map(sub, has, self._needs[kind])), takes

    def exist(self, nodes: tuple[tuple[Make, int], ...], at: int = 0) -> bool:
        """Whether there is one for the tasks from some on. Not, once the steps are spent."""
        if at == len(self._kinds):
            return True
        self.steps_left -= 1
        if self.steps_left < 0 or (at, nodes) in self._failed:
            return False
        kind = self._kinds[at]
        need = self._needs[kind]
        for make, _ in nodes:
            has, takes = make
            if takes[kind] and all(map(ge, has, need)):
                left = dict(nodes)
                left[make] -= 1
                after = self._after(make, kind)
                left[after] = left.get(after, 0) + 1
                if self.exist(tuple(sorted(each for each in left.items() if each[1])), at + 1):
                    self._chosen.append(make)
                    return True
        self._failed[at, nodes] = None
        return False
