"""Resizing by hand: the job that somebody means who wants another number of replicas."""

from __future__ import annotations

from dataclasses import replace

from phalanx.engine.records import JobRecord
from phalanx.server.refusal import Refusal
from phalanx.workload.gang import Gang, Role
from phalanx.workload.job import Job


def resized(record: JobRecord, replicas: int, minimum: int | None, role: str) -> Job:
    """The job with at most so many replicas of a role; what nobody can mean is refused.

    A job of a fixed size that waits has exactly so many then. An elastic one keeps the least it can do with, and the
    policy decides between that and the most.
    """
    job = record.job
    chosen = _role(job, role)
    fixed = chosen.replicas_min == chosen.replicas_max
    least = minimum if minimum is not None else replicas if fixed and record.attempt is None else chosen.replicas_min
    if least > replicas and minimum is not None:
        raise Refusal("invalid", f"expected at most {replicas} as the least number of replicas, got {minimum}")
    if least > replicas:
        raise Refusal(
            "conflict",
            f"job {job.id} cannot do with fewer than {least} replicas, unless you say with `min` that it can",
        )
    roles = tuple(
        replace(each, replicas_min=least, replicas_max=replicas) if each is chosen else each for each in job.gang.roles
    )
    return replace(job, gang=Gang(roles, job.gang.topology))


def _role(job: Job, name: str) -> Role:
    roles = job.gang.roles
    names = ", ".join(role.name for role in roles)
    if not name and len(roles) > 1:
        raise Refusal("conflict", f"job {job.id} has several roles: say which of {names} is to be resized")
    found = next((role for role in roles if not name or role.name == name), None)
    if found is None:
        raise Refusal("conflict", f"job {job.id} has no role {name!r} (it has: {names})")
    return found
