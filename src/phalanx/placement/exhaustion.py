"""Exhaustion: whether tasks of several kinds fit an idle cluster in any way at all, by trying every way.

Nodes with the same left count as one, so that even a large cluster has few ways; where it has too many, none is known.
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import ge, sub

from phalanx.cluster.bits import members
from phalanx.cluster.cluster import NODE
from phalanx.cluster.topology import Topology
from phalanx.placement.bounds import Range, domains_within
from phalanx.placement.fit import Ask, Fit
from phalanx.workload.job import Job

STEPS_MAX = 2_000
"""Tasks put somewhere in trial: a bound on work, counted and never timed."""

TASKS_MAX = 64
"""Tasks of a gang above which there are too many ways."""

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
    kinds = list(dict.fromkeys(sorted(tasks, key=lambda task: (-task.gpus, -task.cpus_milli, -task.memory_mb))))
    asks = [fit.ask(task, job) for task in kinds]
    ways = _Ways(asks, [tasks.count(kind) for kind in kinds])
    for nodes in dict.fromkeys(_domains(fit, asks, ways.numbers, gang.topology.required)):
        if ways.exist(nodes):
            return True
    return None if ways.steps_left < 0 else False


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

    def __init__(self, asks: list[Ask], counts: list[int]) -> None:
        self.numbers = list(dict.fromkeys(number for ask in asks for number, _ in ask.needs))
        self._needs = [(ask.gpus, *(dict(ask.needs).get(number, 0) for number in self.numbers)) for ask in asks]
        self._kinds = [kind for kind, count in enumerate(counts) for _ in range(count)]
        self.steps_left = STEPS_MAX
        self._failed: dict[tuple[int, tuple[tuple[Make, int], ...]], None] = {}

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
                after = (tuple(map(sub, has, need)), takes)
                left[after] = left.get(after, 0) + 1
                if self.exist(tuple(sorted(each for each in left.items() if each[1])), at + 1):
                    return True
        self._failed[at, nodes] = None
        return False
