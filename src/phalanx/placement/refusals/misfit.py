"""Misfits: what of an idle and healthy cluster is too small for a gang, in figures. Worked out on request."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from phalanx.cluster.bits import members
from phalanx.cluster.cluster import CLUSTER, NODE, Node
from phalanx.placement.fit import TASKS_PER_NODE_MAX, Fit, most_on
from phalanx.workload.gang import Role, Task
from phalanx.workload.job import Job


@dataclass(frozen=True, slots=True)
class Misfit:
    """What a gang asks of one domain of a level, and the most that one has of the nodes that its other rules allow.

    `level` is the one that the gang, or each replica of `role`, must lie in, or else the whole cluster. It takes `gpus`
    in all there, and `tasks` of `task_gpus` each, where parts of devices count as none. The largest, `domain`, has
    `gpus_most` and holds `tasks_most` of the tasks; for want of `short_of` where that is not GPUs. Where a domain
    suffices for one replica, `domains` are needed and only `domains_most` there. `among` is how many nodes the other
    rules allow.
    """

    level: str
    role: str
    gpus: int
    gpus_most: int
    tasks: int
    tasks_most: int
    task_gpus: int
    domain: str = ""
    short_of: str = ""
    domains: int = 1
    domains_most: int = 0
    among: int = 0


class _Group(NamedTuple):
    """Tasks that must lie in one domain together, and how many such groups there are."""

    role: str
    level: str
    tasks: tuple[tuple[Task, int], ...]
    times: int

    @property
    def gpus(self) -> int:
        return sum(task.gpus * count for task, count in self.tasks if task.share is None)


class _Room(NamedTuple):
    """A domain, the nodes of it that may be used, their GPUs, and how many tasks of a kind they hold."""

    domain: str
    nodes: tuple[int, ...]
    gpus: int
    tasks: int


def misfit(fit: Fit, job: Job) -> Misfit | None:
    """What is too small for a gang that no idle cluster holds, the innermost rule first.

    None if it is not the size of a domain: then some predicate leaves no node for one of its tasks.
    """
    for group in _groups(job):
        found = _too_small(fit, job, group)
        if found is not None:
            return found
    return None


def _groups(job: Job) -> Iterator[_Group]:
    def walk(roles: tuple[Role, ...], above: str, times: int) -> Iterator[_Group]:
        for role in roles:
            path = f"{above}/{role.name}" if above else role.name
            yield from walk(role.members, path, times * role.replicas_min)
            if role.topology.required:
                tasks = _tasks(role.members) if role.members else ((role.task, 1),)
                yield _Group(path, role.topology.required, tasks, times * role.replicas_min)

    yield from walk(job.gang.roles, "", 1)
    yield _Group("", job.gang.topology.required or CLUSTER, _tasks(job.gang.roles), 1)


def _tasks(roles: tuple[Role, ...], times: int = 1) -> tuple[tuple[Task, int], ...]:
    """The tasks of roles at their smallest, those that take most GPUs first."""
    found: list[tuple[Task, int]] = []
    for role in roles:
        count = times * role.replicas_min
        found.extend(_tasks(role.members, count) if role.members else [(role.task, count)])
    return tuple(sorted(found, key=lambda each: -each[0].gpus * each[1]))


def _too_small(fit: Fit, job: Job, group: _Group) -> Misfit | None:
    """The first kind of task of a group for which no domain is large enough, or too few are."""
    groups_most: list[int] | None = None
    for task, count in group.tasks:
        among = fit.ask(task, job).eligible
        if not among or not count:
            continue
        rooms = list(_rooms(fit, group.level, task, among))
        best = max(rooms, key=lambda room: (room.tasks, room.gpus), default=_Room("", (), 0, 0))
        fitting = [room.tasks // count for room in rooms]
        groups_most = fitting if groups_most is None else list(map(min, groups_most, fitting))
        is_enough = best.tasks >= count and best.gpus >= group.gpus
        if is_enough and sum(groups_most) >= group.times:
            continue
        return Misfit(
            group.level,
            group.role,
            group.gpus,
            max((room.gpus for room in rooms), default=0),
            count,
            best.tasks,
            task.gpus if task.share is None else 0,
            best.domain,
            _short_of(fit, task, count, best),
            group.times if is_enough else 1,
            sum(groups_most) if is_enough else 0,
            among.bit_count(),
        )
    return None


def _rooms(fit: Fit, level: str, task: Task, among: int) -> Iterator[_Room]:
    """The domains of a level: the same ones in the same order, whatever the task."""
    topology = fit.capacity.topology
    on_node = _OnNode(fit, task)
    if level == CLUSTER:
        nodes = tuple(members(among))
        yield _Room(CLUSTER, nodes, *_sum(on_node, nodes))
    elif level in topology.domains:
        for domain in topology.domains[level]:
            nodes = tuple(members(domain.nodes & among))
            yield _Room(domain.name, nodes, *_sum(on_node, nodes))
    elif level in topology.cluster.levels:
        for number, node in enumerate(topology.nodes):
            groups = (-1,) if level == NODE else topology.layouts[number].levels.get(level, ())
            for group in groups:
                may = among >> number & 1
                gpus = node.gpus if group < 0 else group.bit_count()
                yield _Room(node.name, (number,), gpus if may else 0, on_node.tasks(number, gpus) if may else 0)


def _sum(on_node: _OnNode, nodes: tuple[int, ...]) -> tuple[int, int]:
    """GPUs, and tasks that fit, of some nodes."""
    every = [on_node.fit.capacity.topology.nodes[node].gpus for node in nodes]
    return sum(every), sum(map(on_node.tasks, nodes, every))


class _OnNode:
    """How many tasks of a kind an idle node holds, worked out once for nodes that are made alike."""

    def __init__(self, fit: Fit, task: Task) -> None:
        self.fit = fit
        self.task = task
        self._needs = fit.needs(task)
        self._known: dict[tuple[object, ...], int] = {}

    def tasks(self, number: int, gpus: int) -> int:
        """Tasks that go to so many GPUs of a node, and to all of what lies beside them."""
        node = self.fit.capacity.topology.nodes[number]
        totals = tuple(self.fit.capacity.amounts[each].total[number] for each, _ in self._needs)
        make = (gpus, node.gpu_type, node.gpu_memory_gb, totals)
        known = self._known.get(make)
        if known is None:
            beside = (total // amount for total, (_, amount) in zip(totals, self._needs, strict=True))
            known = self._known[make] = min(self._by_gpus(node, gpus), *beside, TASKS_PER_NODE_MAX)
        return known

    def _by_gpus(self, node: Node, gpus: int) -> int:
        if not self.task.gpus:
            return TASKS_PER_NODE_MAX
        if self.task.share is None:
            return gpus // self.task.gpus
        return gpus * most_on(self.fit.portion(self.task, node), node)


def _short_of(fit: Fit, task: Task, count: int, best: _Room) -> str:
    """What beside GPUs the best domain has too little of; empty if it is GPUs."""
    for number, amount in fit.needs(task):
        resource = fit.capacity.amounts[number]
        if sum(resource.total[node] // amount for node in best.nodes) < count:
            return resource.name
    return ""
