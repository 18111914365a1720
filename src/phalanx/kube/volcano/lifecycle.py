"""The life of a job: what it and its pods are by now says which phase comes next, and which pods are made and deleted.

All that has to be remembered is in the status of the job. It is written before any pod is touched, so that a controller
that ends in between goes on from there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice

import msgspec

from phalanx.kube.volcano.counting import counted
from phalanx.kube.volcano.job import (
    JobState,
    JobStatus,
    PhaseCondition,
    TaskSpec,
    VolcanoJob,
    Worker,
)
from phalanx.kube.volcano.policies import Happened, action_for

PENDING, RUNNING, RESTARTING = "Pending", "Running", "Restarting"
COMPLETED, FAILED, TERMINATED, ABORTED = "Completed", "Failed", "Terminated", "Aborted"
ENDING = {"Aborting": ABORTED, "Completing": COMPLETED, "Terminating": TERMINATED}
"""Phases in which pods are ended, and what comes after that."""

KILLS = {"AbortJob": "Aborting", "CompleteJob": "Completing", "TerminateJob": "Terminating"}
FINISHED = (COMPLETED, FAILED, TERMINATED)
OVER = (*FINISHED, ABORTED)
CONDITIONS_MAX = 20
WAVE_MAX = 200
"""Pods of one job that are made before other jobs have their turn. What is told of them has the next ones made."""

TIME = "%Y-%m-%dT%H:%M:%SZ"


@dataclass(frozen=True, slots=True)
class Step:
    """The status to write, then the pods to delete and to create, a task with the number of the pod in it. `expires` is
    when the job itself is to be deleted.
    """

    status: JobStatus
    delete: tuple[Worker, ...] = ()
    create: tuple[tuple[TaskSpec, int], ...] = ()
    expires: datetime | None = None


@dataclass(frozen=True, slots=True)
class Turn:
    """The phase of a job by now, its version and how often it was restarted; why, and the pods that are made anew."""

    phase: str
    version: int
    retries: int
    why: str = ""
    anew: tuple[Worker, ...] = ()


def step(job: VolcanoJob, pods: Iterable[Worker], now: datetime) -> Step:
    """What is to be done for a job that has these pods."""
    there = sorted(pods, key=lambda pod: pod.metadata.name)
    turn = _turn(job, there)
    doomed = [
        pod
        for pod in there
        if pod in turn.anew or pod.version != str(turn.version) or _is_surplus(job, pod) or _is_killed(turn.phase, pod)
    ]
    status = counted(job, there, doomed, JobStatus(version=turn.version, retry_count=turn.retries))
    status = _in_phase(status, job.status, turn, now)
    return Step(
        status,
        tuple(pod for pod in doomed if not pod.is_leaving),
        tuple(islice(_missing(job, there), WAVE_MAX)) if turn.phase in (PENDING, RUNNING) else (),
        _expires(job, status),
    )


def _turn(job: VolcanoJob, there: list[Worker]) -> Turn:
    status = job.status
    phase, version, retries = status.state.phase or PENDING, status.version, status.retry_count
    current = [pod for pod in there if pod.version == str(version) and not pod.is_leaving]
    asked = action_for(job, current) if phase in (PENDING, RUNNING) else None
    if asked is None:
        phase, why = _next_phase(job, there, current)
        return Turn(phase, version, retries, why)
    action, happened = asked
    why = f"{action} on {happened}"
    if action in KILLS:
        return Turn(KILLS[action], version, retries, why)
    if action == "RestartJob":
        return Turn(RESTARTING, version + 1, retries + 1, why)
    if retries + 1 >= job.spec.max_retry:
        return Turn(FAILED, version, retries + 1, f"{why}: spec.maxRetry is {job.spec.max_retry}")
    return Turn(phase, version, retries + 1, why, _anew(action, happened, current))


def refused(job: VolcanoJob, why: str, now: datetime) -> JobStatus:
    """The status of a job that is not run."""
    state = JobState(phase=PENDING, reason="Refused", message=why, last_transition_time=now.strftime(TIME))
    was = job.status.state
    return (
        job.status
        if (was.reason, was.message) == ("Refused", why)
        else msgspec.structs.replace(job.status, state=state)
    )


def _anew(action: str, happened: Happened, current: list[Worker]) -> tuple[Worker, ...]:
    """The pods that are made anew: those of a task, or one alone. One that was evicted is gone already."""
    if action == "RestartTask":
        return tuple(pod for pod in current if pod.task == happened.task)
    return tuple(pod for pod in current if pod.metadata.name == happened.pod)


def _is_killed(phase: str, pod: Worker) -> bool:
    """Whether a pod is ended with its job; those that have ended by themselves are kept to be looked at."""
    return phase in (*ENDING, *OVER) and not pod.is_over


def _next_phase(job: VolcanoJob, there: list[Worker], current: list[Worker]) -> tuple[str, str]:
    """The phase of a job to which nothing happened that a policy is about, and why it is another if it is."""
    status = job.status
    phase = status.state.phase or PENDING
    if phase in ENDING:
        return (phase, "") if any(not pod.is_over for pod in there) else (ENDING[phase], "all pods have ended")
    if phase == RESTARTING:
        if status.retry_count >= job.spec.max_retry:
            return FAILED, f"spec.maxRetry is {job.spec.max_retry}"
        left = len(there) - len(current)
        return (PENDING, "") if job.replicas - left >= job.least else (RESTARTING, "")
    if phase == PENDING:
        started = sum(pod.status.phase in ("Running", "Succeeded", "Failed") for pod in current)
        phase = RUNNING if started >= job.least and job.replicas else PENDING
    return _ended(job, current) if phase == RUNNING else (phase, "")


def _ended(job: VolcanoJob, current: list[Worker]) -> tuple[str, str]:
    """Whether a job that runs has done its work, or cannot any more."""
    succeeded = [pod for pod in current if pod.status.phase == "Succeeded"]
    wanted = job.spec.min_success
    if wanted is not None and len(succeeded) >= wanted:
        return COMPLETED, f"{len(succeeded)} pods succeeded, and spec.minSuccess is {wanted}"
    if not job.replicas or sum(pod.is_over for pod in current) < job.replicas:
        return RUNNING, ""
    line = f"{len(succeeded)} of {job.replicas} pods succeeded"
    if job.least >= sum(task.least for task in job.tasks):
        for task in job.tasks:
            done = sum(pod.task == task.name for pod in succeeded)
            if task.min_available is not None and done < task.min_available:
                return FAILED, f"{line}; of task {task.name} {done}, and its minAvailable is {task.min_available}"
    is_done = wanted is None and len(succeeded) >= job.least
    return (COMPLETED if is_done else FAILED), line


def _is_surplus(job: VolcanoJob, pod: Worker) -> bool:
    """Whether a pod is one more than the job, which was made smaller, has by now."""
    replicas = next((task.replicas for task in job.tasks if task.name == pod.task), 0)
    return not 0 <= pod.index < replicas


def _missing(job: VolcanoJob, there: list[Worker]) -> Iterable[tuple[TaskSpec, int]]:
    """The pods that are to be made: one that still leaves has the name of the one after it."""
    taken: dict[str, set[int]] = {task.name: set() for task in job.tasks}
    for pod in there:
        taken.setdefault(pod.task, set()).add(pod.index)
    up = Counter(pod.task for pod in there if pod.is_up)
    started = {task.name: up[task.name] >= task.least for task in job.tasks}
    for task in job.tasks:
        if len(taken[task.name]) < task.replicas and _may_start(task, started):
            yield from ((task, index) for index in range(task.replicas) if index not in taken[task.name])


def _may_start(task: TaskSpec, started: Mapping[str, bool]) -> bool:
    """Whether the tasks that a task depends on are up."""
    names = (task.depends_on.name or ()) if task.depends_on is not None else ()
    is_up = [started[name] for name in names]
    is_any = task.depends_on is not None and task.depends_on.iteration == "any"
    return not is_up or (any(is_up) if is_any else all(is_up))


def _in_phase(status: JobStatus, before: JobStatus, turn: Turn, now: datetime) -> JobStatus:
    """A status with its phase, and the phases that the job has had."""
    phase, why = turn.phase, turn.why
    if before.state.phase == phase and not before.state.reason and not why:
        return msgspec.structs.replace(
            status, state=before.state, conditions=before.conditions, running_duration=before.running_duration
        )
    at = now.strftime(TIME)
    if before.state.phase == phase:
        at = before.state.last_transition_time or at
    conditions = before.conditions or []
    if not conditions or conditions[-1].status != phase:
        conditions = [*conditions, PhaseCondition(status=phase, last_transition_time=at)][-CONDITIONS_MAX:]
    began = next((each.last_transition_time for each in conditions if each.status == RUNNING), None)
    took = f"{(now - parsed(began)).total_seconds():.0f}s" if began and phase in OVER else None
    state = JobState(phase=phase, message=why, last_transition_time=at)
    return msgspec.structs.replace(status, state=state, conditions=conditions, running_duration=took)


def _expires(job: VolcanoJob, status: JobStatus) -> datetime | None:
    ttl, since = job.spec.ttl_seconds_after_finished, status.state.last_transition_time
    if ttl is None or status.state.phase not in FINISHED or since is None:
        return None
    return parsed(since) + timedelta(seconds=ttl)


def parsed(written: str) -> datetime:
    """A moment as Kubernetes writes it."""
    return datetime.fromisoformat(written.replace("Z", "+00:00"))
