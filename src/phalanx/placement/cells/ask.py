"""What a job asks of the cells: its queue is its virtual cluster, its gang a group of pods."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from phalanx.placement.cells.group import Group, Seat
from phalanx.placement.cells.priority import GUARANTEED_MAX, OPPORTUNISTIC
from phalanx.placement.cells.request import Member, Quota, Request
from phalanx.workload.gang import Role, Task
from phalanx.workload.job import Job, Kind

PINNED_LABEL = "hived/pinned-cell"
LAZY_LABEL = "hived/lazy-preemption"
QUOTA_LABEL = "hived/quota"
SUGGESTED_LABEL = "hived/suggested-nodes"
LABELS = (PINNED_LABEL, LAZY_LABEL, QUOTA_LABEL, SUGGESTED_LABEL)
"""Labels by which a job says more than its other fields can. A quota is written tag=leaves, nodes as a,b,c."""


def priority_of(job: Job) -> int:
    """The priority of a job in its virtual cluster: below 0 is opportunistic, what is above 1000 counts as 1000."""
    return max(OPPORTUNISTIC, min(job.priority, GUARANTEED_MAX))


def request_of(job: Job, group: str = "") -> Request | None:
    """The request of a job at its smallest, or None if it asks for no GPUs.

    A gang has leaves of one type: the one it names, if all of it names the same. A job that is not preemptible, and a
    service, is stopped for no job of its own cluster.
    """
    pods: dict[int, int] = {}
    types: dict[tuple[str, ...], None] = {}
    for _, task in tasks_of(job):
        pods[task.gpus] = pods.get(task.gpus, 0) + 1
        types[task.gpu_types] = None
    if not pods:
        return None
    named = [names for names in types if names]
    labels = dict(job.labels)
    return Request(
        group or job.id,
        job.queue,
        tuple(Member(pods[leaves], leaves) for leaves in sorted(pods)),
        priority_of(job),
        named[0][0] if len(named) == 1 and len(named[0]) == 1 else "",
        labels.get(PINNED_LABEL, ""),
        labels.get(LAZY_LABEL) == "true",
        quota=_quota(labels.get(QUOTA_LABEL, "")),
        is_kept=not job.preemptible or job.kind is Kind.SERVICE,
    )


def leaf_request_of(job: Job, group: str) -> Request:
    """The request of a job for one leaf, which it shares with jobs of its cluster and priority."""
    request = request_of(job, group or job.id)
    assert request is not None, f"job {job.id} asks for no GPUs"
    return replace(request, members=(Member(1, 1),))


def shares_leaves(job: Job) -> bool:
    """Whether the tasks of a job ask for parts of devices."""
    return any(task.share is not None for _, task in all_tasks_of(job))


def suggested_to(job: Job) -> tuple[str, ...] | None:
    """The nodes that a caller outside would have a job on; None for all."""
    names = dict(job.labels).get(SUGGESTED_LABEL)
    return tuple(names.split(",")) if names is not None else None


def _quota(text: str) -> Quota | None:
    tag, _, leaves = text.rpartition("=")
    return Quota(tag, int(leaves)) if tag and leaves.isdecimal() else None


def seats_of(job: Job, group: Group) -> list[tuple[str, Seat]]:
    """The seats of a job's group in the order of its tasks, each with the path of the role of the task."""
    left: dict[int, list[Seat]] = {}
    for seat in reversed(group.seats):
        left.setdefault(seat.size, []).append(seat)
    return [(role, left[task.gpus].pop()) for role, task in tasks_of(job)]


def tasks_of(job: Job) -> Iterator[tuple[str, Task]]:
    """The tasks of a job at its smallest that ask for GPUs, with the paths of their roles, gangs in gangs unrolled."""
    return ((path, task) for path, task in all_tasks_of(job) if task.gpus)


def all_tasks_of(job: Job) -> Iterator[tuple[str, Task]]:
    """All tasks of a job at its smallest."""

    def unroll(role: Role, above: str) -> Iterator[tuple[str, Task]]:
        path = f"{above}/{role.name}" if above else role.name
        for _ in range(role.replicas_min):
            for member in role.members:
                yield from unroll(member, path)
            if not role.members:
                yield path, role.task

    for role in job.gang.roles:
        yield from unroll(role, "")
