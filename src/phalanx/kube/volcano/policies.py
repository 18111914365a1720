"""Policies: what is done when pods of a job fail, are evicted, or have done the work of their task."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from phalanx.kube.volcano.job import Policy, TaskSpec, VolcanoJob, Worker

ACTIONS = ("AbortJob", "RestartJob", "RestartTask", "RestartPod", "TerminateJob", "CompleteJob", "SyncJob")
EVENTS = ("PodFailed", "PodEvicted", "TaskCompleted", "TaskFailed", "Unknown", "*")
SYNC = "SyncJob"


@dataclass(frozen=True, slots=True)
class Happened:
    """What happened to a task, or to one pod of it."""

    event: str
    task: str
    pod: str = ""
    exit_code: int = 0

    def __str__(self) -> str:
        code = f" with exit code {self.exit_code}" if self.exit_code else ""
        return f"{self.event} of {f'pod {self.pod}' if self.pod else f'task {self.task}'}{code}"


def action_for(job: VolcanoJob, workers: Iterable[Worker]) -> tuple[str, Happened] | None:
    """The first thing that happened for which the job, or one of its tasks, has something done; None if there is none.

    It is told by how the pods are, and by the status in which those are counted that were there: so that a controller
    that starts again finds the same.
    """
    there = list(workers)
    for happened in _happened(job, there):
        action = _action(job, happened)
        if action not in ("", SYNC):
            return action, happened
    return None


def _happened(job: VolcanoJob, workers: list[Worker]) -> Iterator[Happened]:
    for pod in workers:
        if pod.status.phase == "Failed":
            yield Happened("PodFailed", pod.task, pod.metadata.name, pod.exit_code)
    for task in job.tasks:
        of_task = [pod for pod in workers if pod.task == task.name]
        if len(of_task) < min(_counted(job, task), task.replicas):
            yield Happened("PodEvicted", task.name)
        if 0 <= task.max_retry <= sum(pod.restarts for pod in of_task) and any(pod.restarts for pod in of_task):
            yield Happened("TaskFailed", task.name)
        if task.replicas and sum(pod.status.phase == "Succeeded" for pod in of_task) >= task.replicas:
            yield Happened("TaskCompleted", task.name)


def _counted(job: VolcanoJob, task: TaskSpec) -> int:
    """How many pods of a task there were when the status was last written."""
    count = (job.status.task_status_count or {}).get(task.name)
    return sum((count.phase or {}).values()) if count is not None else 0


def _action(job: VolcanoJob, happened: Happened) -> str:
    """What is done: policies of the task go before those of the job."""
    of_task = next((task.policies or [] for task in job.tasks if task.name == happened.task), [])
    policies = [*of_task, *(job.spec.policies or [])]
    return next((policy.action for policy in policies if _is_about(policy, happened)), "")


def _is_about(policy: Policy, happened: Happened) -> bool:
    if happened.event in policy.all_events or "*" in policy.all_events:
        return True
    return bool(policy.exit_code) and policy.exit_code == happened.exit_code
