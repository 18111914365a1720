"""How high a priority each role may give to jobs of a queue, by the cluster file."""

from __future__ import annotations

from collections.abc import Iterable

from phalanx.cluster.queues import priority_caps
from phalanx.engine.state.state import State
from phalanx.server.accounts.roles import Role
from phalanx.server.refusal import Refusal
from phalanx.workload.job import Job


def need_priorities(state: State, jobs: Iterable[Job], roles: Iterable[str]) -> None:
    """Refuses jobs of higher priorities than the caller, with one of the roles in the queue of each, may give."""
    for index, (job, role) in enumerate(zip(jobs, roles, strict=True)):
        need_priority(state, job, Role(role), index)


def need_priority(state: State, job: Job, role: Role, index: int) -> None:
    """Refuses a job of a higher priority than a caller of that role in its queue may give; the `index` is told."""
    if not state.cluster.queues or role is Role.ADMIN:
        return
    caps = priority_caps(job.queue, state.queue)
    is_operator = role is Role.OPERATOR
    cap = caps.operators if is_operator else caps.members
    if cap is None or job.priority <= cap:
        return
    above, key = ("an admin", "operators") if is_operator else ("an operator or admin", "members")
    raise Refusal(
        "forbidden",
        f"priority {job.priority} is above {cap}, the highest that the role {role.value} may give in the queue "
        f"{job.queue!r}: take {cap} or less, have {above} of the queue submit the job, "
        f"or have an admin raise job_priority.{key} of the queue in the cluster file",
        {"index": index, "priority": job.priority, "cap": cap, "role": role.value, "queue": job.queue},
    )
