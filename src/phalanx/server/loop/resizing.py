"""Resizing by hand: the job that a user means that wants another number of replicas."""

from __future__ import annotations

from dataclasses import replace

from phalanx.engine.decide.scaling import scaled
from phalanx.engine.state.records import JobRecord
from phalanx.server.refusal import Refusal
from phalanx.workload.gang import Gang, Role
from phalanx.workload.job import Job
from phalanx.workload.scale import Scale


def resized(record: JobRecord, replicas: int, minimum: int | None, role: str, now: int) -> Job:
    """The job with at most so many replicas of a role; what cannot be meant is refused.

    A job of a fixed size that waits has exactly so many then. An elastic one keeps the least it can do with, and the
    policy decides between that and the most. A service that follows its load has that many until its load says
    otherwise.
    """
    job = record.job
    chosen = _role(job, role)
    if job.scale is not None:
        _need_within(job, job.scale, replicas, minimum)
        return scaled(job, replicas, now)
    if replicas < 1:
        raise Refusal("invalid", f"expected at least 1 replica, got {replicas}: cancel the job, or hold it")
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


def _need_within(job: Job, scale: Scale, replicas: int, minimum: int | None) -> None:
    if minimum is not None:
        raise Refusal("conflict", f"job {job.id} follows its load: its least number of replicas is that of its scale")
    if not scale.least <= replicas <= scale.most:
        raise Refusal(
            "conflict",
            f"job {job.id} follows its load, with {scale.least} to {scale.most} replicas, and not {replicas}",
        )


def _role(job: Job, name: str) -> Role:
    roles = job.gang.roles
    names = ", ".join(role.name for role in roles)
    if not name and len(roles) > 1:
        raise Refusal("conflict", f"job {job.id} has several roles: say which of {names} is to be resized")
    found = next((role for role in roles if not name or role.name == name), None)
    if found is None:
        raise Refusal("conflict", f"job {job.id} has no role {name!r} (it has: {names})")
    return found
