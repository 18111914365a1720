"""`plan`: the real decision for some jobs on an idle cluster, with nothing carried out."""

from __future__ import annotations

from collections.abc import Iterable

from phalanx.cluster.cluster import Cluster
from phalanx.engine.fold.check import check_labels
from phalanx.engine.state.journal import Journal
from phalanx.engine.state.state import State
from phalanx.engine.turn import record, turn
from phalanx.placement.placement import Placement
from phalanx.protocol.event import ClusterDefined, JobSubmitted
from phalanx.workload.after import bound, by_dependency
from phalanx.workload.gang import Role, Task
from phalanx.workload.job import Job


def plan(cluster: Cluster, jobs: Iterable[Job], policy: str = "", now_ms: int = 0) -> tuple[State, Journal]:
    """Submits the jobs in order at one moment and decides. The State says which goes where and why the rest is pending.

    Jobs may wait for one another by name, also for later ones. A job or policy that the engine refuses, and jobs that
    wait for one another in a circle, raise ValueError.
    """
    state, journal = State(), Journal()
    record(state, journal, ClusterDefined(cluster, policy or cluster.policy), now_ms)
    submitted = by_dependency(bound(jobs))
    for job in submitted:
        check_labels(state.policy, job)
        _check_tasks(job.id, job.gang.roles)
    turn(state, journal, [JobSubmitted(job) for job in submitted], now_ms)
    return state, journal


def _check_tasks(job: str, roles: Iterable[Role]) -> None:
    """Raises ValueError for a role with members that has a task of its own, too: it would never be started."""
    for role in roles:
        if role.members and role.task != Task():
            raise ValueError(f"job {job}, role {role.name}: it has members, so give its task to one of them")
        _check_tasks(job, role.members)


def device_count(placement: Placement) -> int:
    """The devices that a placement takes parts of or whole, each once however many tasks share it."""
    return len({(slot.node, device): None for slot in placement.slots for device in slot.devices})
