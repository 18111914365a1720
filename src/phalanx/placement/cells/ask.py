"""What a job asks of the cells: its queue is its virtual cluster, its gang a group of pods."""

from __future__ import annotations

from collections.abc import Iterator

from phalanx.placement.cells.cell import GUARANTEED_MAX, OPPORTUNISTIC
from phalanx.placement.cells.group import Group, Seat
from phalanx.placement.cells.request import Member, Request
from phalanx.workload.gang import Role, Task
from phalanx.workload.job import Job

PINNED_LABEL = "hived/pinned-cell"
LAZY_LABEL = "hived/lazy-preemption"


def request_of(job: Job) -> Request | None:
    """The request of a job at its smallest, or None if it asks for no GPUs.

    Priorities below 0 are opportunistic, those above 1000 count as 1000. A gang has leaves of one type: the one it
    names, if all of it names the same.
    """
    pods: dict[int, int] = {}
    types: dict[tuple[str, ...], None] = {}
    for _, task in _tasks(job):
        pods[task.gpus] = pods.get(task.gpus, 0) + 1
        types[task.gpu_types] = None
    if not pods:
        return None
    named = [names for names in types if names]
    labels = dict(job.labels)
    return Request(
        job.id,
        job.queue,
        tuple(Member(pods[leaves], leaves) for leaves in sorted(pods)),
        max(OPPORTUNISTIC, min(job.priority, GUARANTEED_MAX)),
        named[0][0] if len(named) == 1 and len(named[0]) == 1 else "",
        labels.get(PINNED_LABEL, ""),
        labels.get(LAZY_LABEL) == "true",
    )


def seats_of(job: Job, group: Group) -> list[tuple[str, Seat]]:
    """The seats of a job's group in the order of its tasks, each with the role of the task."""
    left: dict[int, list[Seat]] = {}
    for seat in reversed(group.seats):
        left.setdefault(seat.size, []).append(seat)
    return [(role, left[task.gpus].pop()) for role, task in _tasks(job)]


def _tasks(job: Job) -> Iterator[tuple[str, Task]]:
    """The tasks of a job at its smallest that ask for GPUs, with the names of their roles, gangs in gangs unrolled."""

    def unroll(role: Role) -> Iterator[tuple[str, Task]]:
        for _ in range(role.replicas_min):
            for member in role.members:
                yield from unroll(member)
            if not role.members and role.task.gpus:
                yield role.name, role.task

    for role in job.gang.roles:
        yield from unroll(role)
