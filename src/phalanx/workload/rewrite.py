"""Rewriting: a job whose tasks ask for something else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from phalanx.workload.gang import Role, Task
from phalanx.workload.job import Job

Rewrite = Callable[[Task], Task]


def rewritten(job: Job, rewrite: Rewrite, path: str = "") -> Job:
    """The job with the task of a role rewritten, as of replica/worker; an empty path is every role."""

    def walk(role: Role, above: str) -> Role:
        name = f"{above}/{role.name}" if above else role.name
        if role.members:
            return replace(role, members=tuple(walk(member, name) for member in role.members))
        return replace(role, task=rewrite(role.task)) if path in ("", name) else role

    return replace(job, gang=replace(job.gang, roles=tuple(walk(role, "") for role in job.gang.roles)))
