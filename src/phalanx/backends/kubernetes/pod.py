"""Pods of ours as the API server tells of them: how their one task is."""

from __future__ import annotations

from datetime import datetime

import msgspec

from phalanx.kube.objects.meta import Condition, Stored, Wire

SERVER, JOB, ATTEMPT, RANK = (f"phalanx.dev/{name}" for name in ("server", "job", "attempt", "rank"))
"""Labels of all that is made for an attempt; the true id of its job is an annotation of that name."""

TASK = "task"
"""The container of a pod that is the task. Others may be put beside it by the cluster's own webhooks."""

EVICTED = ("Evicted", "NodeShutdown", "NodeLost", "Terminated", "Preempting", "Shutdown")
"""Why a kubelet or a controller ended a pod for the node's sake."""

REFUSED = ("OutOf", "UnexpectedAdmissionError", "NodeAffinity", "Admission", "TopologyAffinityError", "PodOS")
"""Why a kubelet did not take a pod in: how such reasons begin."""


class Waiting(Wire, frozen=True):
    """Why a container does not run yet."""

    reason: str = ""
    message: str = ""


class Running(Wire, frozen=True):
    """Since when a container runs."""

    started_at: str | None = None


class Terminated(Wire, frozen=True):
    """How a container ended."""

    exit_code: int = 0
    reason: str = ""
    message: str = ""
    finished_at: str | None = None


class ContainerState(Wire, frozen=True):
    """One of the three."""

    waiting: Waiting | None = None
    running: Running | None = None
    terminated: Terminated | None = None


class ContainerStatus(Wire, frozen=True):
    """How one container is."""

    name: str = ""
    state: ContainerState = ContainerState()


class TaskPodSpec(Wire, frozen=True):
    """Where a pod is bound to."""

    node_name: str = ""


class TaskPodStatus(Wire, frozen=True):
    """How a pod is."""

    phase: str = ""
    reason: str = ""
    message: str = ""
    conditions: list[Condition] | None = None
    container_statuses: list[ContainerStatus] | None = None


class TaskPod(Stored, frozen=True):
    """A pod that has one task."""

    spec: TaskPodSpec = TaskPodSpec()
    status: TaskPodStatus = TaskPodStatus()

    @property
    def state(self) -> ContainerState:
        """How its task is."""
        found = (each.state for each in self.status.container_statuses or () if each.name == TASK)
        return next(found, ContainerState())

    @property
    def is_over(self) -> bool:
        """Whether its task uses nothing of its node, and never will again."""
        return self.state.terminated is not None or self.status.phase in ("Succeeded", "Failed")

    @property
    def has_run(self) -> bool:
        """Whether its task runs or has run."""
        ended = self.state.terminated
        return self.state.running is not None or (ended is not None and not is_unstarted(ended))

    @property
    def key(self) -> tuple[str, int, int] | None:
        """Job, attempt and rank; None where somebody has changed its labels."""
        labels, notes = self.metadata.labels or {}, self.metadata.annotations or {}
        try:
            return notes[JOB], int(labels[ATTEMPT]), int(labels[RANK])
        except (KeyError, ValueError):
            return None

    @property
    def disruption(self) -> str:
        """Why the cluster ends it; empty if it does not say so."""
        if self.status.reason.startswith(EVICTED):
            return f"{self.status.reason}: {self.status.message}".rstrip(": ")
        for condition in self.status.conditions or ():
            if condition.type == "DisruptionTarget" and condition.status == "True":
                return f"{condition.reason}: {condition.message}".rstrip(": ")
        return ""

    @property
    def refusal(self) -> str:
        """Why its kubelet did not take it in; empty if it did."""
        if self.status.phase == "Failed" and self.status.reason.startswith(REFUSED):
            return f"{self.status.reason}: {self.status.message}".rstrip(": ")
        return ""


def is_unstarted(ended: Terminated) -> bool:
    """Whether a container never came to run."""
    return ended.reason in ("StartError", "ContainerCannotRun")


def moment_ms(written: str | None) -> int:
    """A moment as Kubernetes writes it, in milliseconds since 1970; 0 for none."""
    try:
        return int(datetime.fromisoformat(written).timestamp() * 1000) if written else 0
    except ValueError:
        return 0


def read_pod(written: bytes) -> TaskPod:
    """A pod from an answer of the API server."""
    return msgspec.json.decode(written, type=TaskPod)
