"""Jobs of Volcano (batch.volcano.sh/v1alpha1) and the pods that they have."""

from __future__ import annotations

from typing import Any

import msgspec

from phalanx.kube.objects.meta import Condition, Stored, Wire

JOB_NAME = "volcano.sh/job-name"
JOB_NAMESPACE = "volcano.sh/job-namespace"
JOB_VERSION = "volcano.sh/job-version"
QUEUE_NAME = "volcano.sh/queue-name"
TASK_SPEC = "volcano.sh/task-spec"
TASK_INDEX = "volcano.sh/task-index"
PARTITION = "volcano.sh/partition-id"

RETRIES = 3


class Policy(Wire, frozen=True):
    """What is done when something happens to a pod or a task."""

    action: str = ""
    event: str = ""
    events: list[str] | None = None
    exit_code: int | None = None
    timeout: str | None = None

    @property
    def all_events(self) -> tuple[str, ...]:
        """Every event that it is about."""
        return (*((self.event,) if self.event else ()), *(self.events or ()))


class DependsOn(Wire, frozen=True):
    """The tasks that must run before the pods of another are made: all of them, or with `iteration` any, one."""

    name: list[str] | None = None
    iteration: str = ""


class PartitionPolicy(Wire, frozen=True):
    """How the pods of a task are divided into partitions, each of which lies together."""

    total_partitions: int = 0
    partition_size: int = 0
    min_partitions: int = 0
    network_topology: dict[str, Any] | None = None


class TaskSpec(Wire, frozen=True):
    """Pods of a job that are alike."""

    name: str = ""
    replicas: int = 1
    min_available: int | None = None
    template: dict[str, Any] = msgspec.field(default_factory=dict)
    policies: list[Policy] | None = None
    depends_on: DependsOn | None = None
    partition_policy: PartitionPolicy | None = None
    max_retry: int = RETRIES

    @property
    def least(self) -> int:
        """How many pods of it are needed."""
        if self.min_available is not None:
            return self.min_available
        of_partitions = self.partition_policy
        if of_partitions is not None and of_partitions.min_partitions:
            return of_partitions.min_partitions * of_partitions.partition_size
        return self.replicas


class JobVolume(Wire, frozen=True):
    """A claim that all pods of a job mount."""

    mount_path: str = ""
    volume_claim_name: str = ""
    volume_claim: dict[str, Any] | None = None


class JobSpec(Wire, frozen=True):
    """What a job asks for."""

    scheduler_name: str = ""
    min_available: int | None = None
    min_success: int | None = None
    tasks: list[TaskSpec] | None = None
    policies: list[Policy] | None = None
    plugins: dict[str, list[str] | None] | None = None
    volumes: list[JobVolume] | None = None
    queue: str = ""
    max_retry: int = RETRIES
    ttl_seconds_after_finished: int | None = None
    priority_class_name: str = ""
    network_topology: dict[str, Any] | None = None


class JobState(Wire, frozen=True):
    """The phase of a job, and since when and why it has it."""

    phase: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


class PhaseCount(Wire, frozen=True):
    """How many pods of a task are in each phase."""

    phase: dict[str, int] | None = None


class PhaseCondition(Wire, frozen=True):
    """A phase that a job once had, and since when."""

    status: str = ""
    last_transition_time: str | None = None


class JobStatus(Wire, frozen=True):
    """How far a job has come. `version` counts how often all its pods were made anew."""

    state: JobState = JobState()
    min_available: int = 0
    task_status_count: dict[str, PhaseCount] | None = None
    pending: int = 0
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    terminating: int = 0
    unknown: int = 0
    version: int = 0
    retry_count: int = 0
    running_duration: str | None = None
    conditions: list[PhaseCondition] | None = None


class VolcanoJob(Stored, frozen=True):
    """A job of Volcano."""

    spec: JobSpec = JobSpec()
    status: JobStatus = JobStatus()

    @property
    def tasks(self) -> list[TaskSpec]:
        """Its tasks."""
        return self.spec.tasks or []

    @property
    def replicas(self) -> int:
        """How many pods it has in all."""
        return sum(task.replicas for task in self.tasks)

    @property
    def least(self) -> int:
        """How many pods it needs to run."""
        if self.spec.min_available is not None:
            return self.spec.min_available
        return sum(task.least for task in self.tasks)

    @property
    def group(self) -> str:
        """The name of its PodGroup."""
        return f"{self.metadata.name}-{self.metadata.uid}"


class Terminated(Wire, frozen=True):
    """How a container ended."""

    exit_code: int = 0


class ContainerState(Wire, frozen=True):
    """How a container is."""

    terminated: Terminated | None = None


class ContainerStatus(Wire, frozen=True):
    """What became of a container."""

    ready: bool = False
    restart_count: int = 0
    state: ContainerState = ContainerState()


class WorkerStatus(Wire, frozen=True):
    """How far a pod of a job has come."""

    phase: str = ""
    conditions: list[Condition] | None = None
    container_statuses: list[ContainerStatus] | None = None
    init_container_statuses: list[ContainerStatus] | None = None


class Worker(Stored, frozen=True):
    """A pod of a job."""

    status: WorkerStatus = WorkerStatus()

    @property
    def task(self) -> str:
        """The task that it is of."""
        return (self.metadata.labels or {}).get(TASK_SPEC, "")

    @property
    def version(self) -> str:
        """The version of the job that it was made for."""
        return (self.metadata.annotations or {}).get(JOB_VERSION, "")

    @property
    def index(self) -> int:
        """Its number in its task; -1 if that cannot be read."""
        said = (self.metadata.labels or {}).get(TASK_INDEX, "")
        return int(said) if said.isdecimal() and said.isascii() else -1

    @property
    def is_leaving(self) -> bool:
        """Whether it was asked to end."""
        return self.metadata.deletion_timestamp is not None

    @property
    def is_over(self) -> bool:
        """Whether it has ended."""
        return self.status.phase in ("Succeeded", "Failed")

    @property
    def is_up(self) -> bool:
        """Whether it runs with all its containers ready, or has done its work."""
        if self.status.phase == "Succeeded":
            return True
        ready = all(each.ready for each in self.status.container_statuses or ())
        return self.status.phase == "Running" and not self.is_leaving and ready

    @property
    def exit_code(self) -> int:
        """The exit code of its first container, 0 as long as it runs."""
        statuses = self.status.container_statuses
        ended = statuses[0].state.terminated if statuses else None
        return ended.exit_code if ended is not None else 0

    @property
    def restarts(self) -> int:
        """How often its containers were started again on its node."""
        statuses = (*(self.status.container_statuses or ()), *(self.status.init_container_statuses or ()))
        return sum(each.restart_count for each in statuses)
