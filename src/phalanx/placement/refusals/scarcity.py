"""Scarcity: what beside GPUs keeps a gang out for which enough GPUs are free where it may lie."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from phalanx.placement.fit import Fit
from phalanx.placement.gang import GangTrial
from phalanx.placement.pack import Packing
from phalanx.workload.gang import Role, Task
from phalanx.workload.job import Job
from phalanx.workload.rewrite import Rewrite, rewritten


def _without_cpus(task: Task) -> Task:
    return replace(task, cpus_milli=0, cpus_limit_milli=0)


def _without_memory(task: Task) -> Task:
    return replace(task, memory_mb=0, memory_limit_mb=0)


def _without_nics(task: Task) -> Task:
    return replace(task, nics=0)


def _without_storage(task: Task) -> Task:
    return replace(task, storage_gb=())


def _bare(task: Task) -> Task:
    return _without_cpus(_without_memory(_without_nics(_without_storage(task))))


AMOUNTS: dict[str, Rewrite] = {
    "cpus": _without_cpus,
    "memory": _without_memory,
    "nics": _without_nics,
    "storage": _without_storage,
}


@dataclass(frozen=True, slots=True)
class Scarcity:
    """What is short: its name, empty if several things are; and the one role that finds too little, if it is one."""

    name: str
    role: str


def scarcity(fit: Fit, job: Job) -> Scarcity | None:
    """What is short beside the GPUs of a gang; None if it finds a place now, or would find none without it either."""
    bare = rewritten(job, _bare)
    if bare == job or not _seats(fit, bare) or _seats(fit, job):
        return None
    name = next((name for name, without in AMOUNTS.items() if _seats_otherwise(fit, job, rewritten(job, without))), "")
    paths = list(_paths(job.gang.roles))
    roles = (path for path in paths if _seats_otherwise(fit, job, rewritten(job, _bare, path)))
    return Scarcity(name, next(roles, "") if len(paths) > 1 else "")


def _seats_otherwise(fit: Fit, job: Job, otherwise: Job) -> bool:
    return otherwise != job and _seats(fit, otherwise)


def _seats(fit: Fit, job: Job) -> bool:
    """Whether a gang would find a place now. Nothing grows by the try being undone."""
    grown = fit.capacity.grown
    trial = GangTrial(fit, Packing(), job)
    seated = trial.seat()
    trial.undo()
    fit.capacity.grown = grown
    return seated


def _paths(roles: tuple[Role, ...], above: str = "") -> Iterator[str]:
    for role in roles:
        path = f"{above}/{role.name}" if above else role.name
        if role.members:
            yield from _paths(role.members, path)
        else:
            yield path
