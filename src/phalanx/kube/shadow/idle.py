"""Idle GPUs: how long GPUs did nothing, by why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum
from typing import NamedTuple

from phalanx.cluster.cluster import Health
from phalanx.kube.api.quantity import down
from phalanx.kube.mirror import Mirror
from phalanx.kube.nodes import allocatable, gpu_resource, health_of
from phalanx.workload.gang import Role
from phalanx.workload.job import Job

Shape = tuple[tuple[int, int], ...]
"""How many pods of so many GPUs a gang needs."""


class Why(StrEnum):
    """Why GPUs did nothing."""

    PARTIAL = "held by gangs that were not whole"
    NODE = "free on nodes that take no pods"
    SCATTERED = "free, too few or too scattered for any pending gang"
    LEFT = "free, enough for a pending gang"
    NO_WORK = "free, nothing pending"


class _Room(NamedTuple):
    """The GPUs of a node."""

    used: int = 0
    free: int = 0
    is_healthy: bool = True


@dataclass(slots=True)
class Idle:
    """GPU milliseconds: `busy` with work, and `by` why there was none; of `gangs`, what was held before they ran."""

    busy: int = 0
    by: Counter[Why] = field(default_factory=Counter)
    gangs: Counter[str] = field(default_factory=Counter)
    _at_ms: int = 0
    _rooms: dict[str, _Room] = field(default_factory=dict)
    _used: int = 0
    _down: int = 0
    _left: Counter[int] = field(default_factory=Counter)
    _pending: Counter[Shape] = field(default_factory=Counter)
    _partial: dict[str, int] = field(default_factory=dict)

    def begin(self, at_ms: int) -> None:
        """What was before is not known."""
        self._at_ms = at_ms

    def pends(self, job: Job) -> None:
        """A gang is pending from now on."""
        self._pending[shape_of(job)] += 1

    def holds(self, job: Job, gpus: int) -> None:
        """A pending gang holds so many GPUs already."""
        if gpus:
            self._partial[job.id] = gpus

    def settles(self, job: Job) -> None:
        """A gang is pending no more."""
        self._pending -= Counter({shape_of(job): 1})
        self._partial.pop(job.id, None)

    def look_at(self, nodes: Iterable[str], mirror: Mirror, used: Mapping[str, int]) -> None:
        """Takes note of how some nodes are now."""
        for name in nodes:
            self._count(self._rooms.pop(name, _Room()), -1)
            if name in mirror.nodes:
                node = mirror.nodes[name]
                has = down(allocatable(node).get(gpu_resource(node), Decimal(0)))
                held = used.get(name, 0)
                room = _Room(held, max(has - held, 0), health_of(node)[0] is Health.HEALTHY)
                self._rooms[name] = room
                self._count(room, 1)

    def _count(self, room: _Room, times: int) -> None:
        self._used += times * room.used
        if not room.is_healthy:
            self._down += times * room.free
        elif room.free:
            self._left[room.free] += times

    def until(self, at_ms: int) -> None:
        """All was as it is until then."""
        passed, self._at_ms = at_ms - self._at_ms, max(at_ms, self._at_ms)
        if passed <= 0:
            return
        partial = sum(self._partial.values())
        self.busy += passed * (self._used - partial)
        self.by[Why.PARTIAL] += passed * partial
        self.by[Why.NODE] += passed * self._down
        self.by[self._why()] += passed * sum(gpus * count for gpus, count in self._left.items())
        for job, gpus in self._partial.items():
            self.gangs[job] += passed * gpus

    def _why(self) -> Why:
        if not self._pending:
            return Why.NO_WORK
        return Why.LEFT if any(map(self._fits, self._pending)) else Why.SCATTERED

    def _fits(self, shape: Shape) -> bool:
        """Whether a gang would find enough free GPUs, by their numbers alone."""
        left = {gpus: count for gpus, count in self._left.items() if count > 0}
        for size, count in shape:
            wanted = count
            for gpus in sorted(left) if size else ():
                nodes = left.get(gpus, 0)
                each = gpus // size
                if not each or not nodes or wanted <= 0:
                    continue
                taken = min(nodes, -(-wanted // each))
                wanted -= taken * each
                left[gpus] -= taken
            if size and wanted > 0:
                return False
        return True


def shape_of(job: Job) -> Shape:
    """What a gang needs, the largest pods first."""
    found: Counter[int] = Counter()
    for gpus, count in _tasks(job.gang.roles, 1):
        found[gpus] += count
    return tuple(sorted(found.items(), reverse=True))


def _tasks(roles: Iterable[Role], times: int) -> Iterator[tuple[int, int]]:
    for role in roles:
        if role.members:
            yield from _tasks(role.members, times * role.replicas_max)
        else:
            yield role.task.gpus, times * role.replicas_max
