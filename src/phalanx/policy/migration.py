"""Migration: running jobs that leave devices on which they take turns, or gather on fewer nodes (gandiva)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field

from phalanx.policy.view import JobView, Moment, NodeView

PERCENT = 100


def label_of(node: NodeView) -> int:
    """The size of the jobs on a node, by the first that came; 0 if there is none."""
    return next((gpus for gpus in node.jobs.values() if gpus), 0)


def spread(at: Moment, nodes: tuple[NodeView, ...]) -> Iterator[tuple[str, str]]:
    """Jobs that take turns, and the nodes with free GPUs to which they go.

    A job that moves has its GPUs to itself, and none moves to GPUs that are taken: every move leaves fewer jobs that
    take turns, so that none goes back and forth. Of those on a device the last to come leaves, since it has done least.
    """
    free = {node.name: node.free for node in nodes}
    gone: dict[str, None] = {}
    for job in _crowded(at, nodes):
        target = None if _is_alone(at, job.job.id, gone) else _vacant(job, nodes, free)
        if target is not None:
            gone[job.job.id] = None
            free[target] -= job.gpus
            yield job.job.id, target


def _crowded(at: Moment, nodes: tuple[NodeView, ...]) -> list[JobView]:
    """Jobs that could move from nodes on which jobs want more GPUs than are taken, the last to come first."""
    if not any(node.free for node in nodes):
        return []
    crowds = [node for node in nodes if sum(node.jobs.values()) > node.gpus - node.free]
    jobs = map(at.job, dict.fromkeys(name for node in crowds for name in node.jobs))
    movers = [job for job in jobs if job.running_since_ms is not None and job.job.movable and not job.job.gang.elastic]
    return sorted(movers, key=lambda job: job.opened, reverse=True)


def _is_alone(at: Moment, job: str, gone: dict[str, None]) -> bool:
    """Whether no job takes turns with a job but those that go elsewhere."""
    return not any(name != job and name not in gone for device in at.sharing(job) for name in device)


def _vacant(job: JobView, nodes: tuple[NodeView, ...], free: dict[str, int]) -> str | None:
    """The node to which a job goes: its own, one of its own size, one without jobs, another; of those the fullest."""
    room = [node for node in nodes if free[node.name] >= job.gpus > 0]
    return min(room, key=lambda node: (_kind(job, node), free[node.name])).name if room else None


def _kind(job: JobView, node: NodeView) -> int:
    if job.job.id in node.jobs:
        return 0
    label = label_of(node)
    return 1 if label == job.gpus else 2 if not label else 3


@dataclass(slots=True)
class Gathering:
    """Free GPUs and jobs of nodes while moves are worked out. `lies` is where each job has how many GPUs."""

    nodes: tuple[NodeView, ...]
    threshold: int
    free: dict[str, int] = field(default_factory=dict)
    jobs: dict[str, dict[str, int]] = field(default_factory=dict)
    lies: dict[str, dict[str, int]] = field(default_factory=dict)

    def moves(self) -> Iterator[tuple[str, str]]:
        """Jobs and the nodes they go to, from the node with the most free GPUs to one with fewer.

        It ends when too few are free on nodes that are not idle, or no job gains.
        """
        least = max(self.threshold * max((node.gpus for node in self.nodes), default=0), 1)
        if PERCENT * sum(node.free for node in self.nodes if node.jobs) < least:
            return
        self.free = {node.name: node.free for node in self.nodes if node.jobs}
        self.jobs = {node.name: {job: gpus for job, gpus in node.jobs.items() if gpus} for node in self.nodes}
        for name, there in self.jobs.items():
            for job, gpus in there.items():
                self.lies.setdefault(job, {})[name] = gpus
        while PERCENT * self._scattered() >= least and (found := self._next()) is not None:
            self._move(*found)
            yield found

    def _scattered(self) -> int:
        """GPUs that are free on nodes that are not idle."""
        return sum(free for name, free in self.free.items() if self.jobs[name])

    def _move(self, job: str, target: str) -> None:
        lay, gpus = self.lies[job], sum(self.lies[job].values())
        for name, there in lay.items():
            del self.jobs[name][job]
            self.free[name] += there
        self.jobs[target][job] = gpus
        self.free[target] -= gpus
        self.lies[job] = {target: gpus}

    def _next(self) -> tuple[str, str] | None:
        """Which job moves next, and where: of the node with the most free GPUs, spread jobs first."""
        fullest = sorted((name for name in self.free if self.jobs[name]), key=lambda name: self.free[name])
        alike: dict[int, list[str]] = {}
        for name in fullest:
            alike.setdefault(next(iter(self.jobs[name].values())), []).append(name)
        for source in sorted(fullest, key=lambda name: -self.free[name]):
            for job in sorted(self.jobs[source], key=lambda job: len(self.lies[job]) == 1):
                is_whole = len(self.lies[job]) == 1
                target = self._fuller(job, source, alike) if is_whole else self._together(job, fullest)
                if target is not None:
                    return job, target
        return None

    def _fuller(self, job: str, source: str, alike: dict[int, list[str]]) -> str | None:
        """For a job that lies on one node already: of nodes with jobs of its size the fullest that has room, if that
        is fuller than its own. `alike` are nodes by the size of their jobs, the fullest first.
        """
        gpus = self.lies[job][source]
        names = alike.get(gpus, [])
        at = bisect_left(names, gpus, key=self.free.__getitem__)
        return names[at] if at < len(names) and self.free[names[at]] < self.free[source] else None

    def _together(self, job: str, fullest: list[str]) -> str | None:
        """For a job that is spread: the fullest node with room for all of it; of equals the one with most of it."""
        lies = self.lies[job]
        gpus = sum(lies.values())
        found: str | None = None
        for name in fullest:
            free = self.free[name]
            if found is not None and free > self.free[found]:
                break
            if free + lies.get(name, 0) < gpus:
                continue
            if found is None or lies.get(name, 0) > lies.get(found, 0):
                found = name
        return found
