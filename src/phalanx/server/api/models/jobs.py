"""Jobs and their attempts, as the API answers with them."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import ConfigDict, Field

from phalanx.server.api.models.base import Answered

JobStateName = Literal["waiting", "starting", "running", "suspended", "stopping", "succeeded", "failed", "cancelled"]


JOB_EXAMPLE: dict[str, Any] = {
    "id": "4821",
    "name": "llama-70b",
    "queue": "research/llm",
    "user": "ada",
    "kind": "training",
    "priority": 100,
    "state": "running",
    "reason": None,
    "held": False,
    "gpus": 32,
    "nodes": ["n0", "n1", "n2", "n3"],
    "submitted_ms": 1790000000000,
    "told_start_ms": 1790000090000,
    "started_ms": 1790000060000,
    "running_since_ms": 1790000060000,
    "executed_before_ms": 0,
    "executed_before_gpu_ms": 0,
    "ended_ms": None,
    "expected_end_ms": 1790014460000,
    "attempts": 1,
    "preemptions": 0,
    "lost_gpu_ms": 0,
    "exit_code": None,
    "end_reason": "",
    "array_of": "",
    "labels": {"team": "llm"},
    "version": 993,
}


class JobModel(Answered):
    """A job as lists show it."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"example": JOB_EXAMPLE})
    id: str
    name: str
    queue: str
    user: str
    kind: Literal["training", "service", "interactive"]
    priority: int
    state: JobStateName
    reason: str | None = Field(description="Why it is pending; null if it is not.")
    held: bool
    gpus: int = Field(description="GPUs it holds; those it asks for while it is pending.")
    nodes: list[str]
    submitted_ms: int
    told_start_ms: int | None = Field(
        description="The start that its submitter was told to expect; null if none was told: it was not "
        "asked for, the job started at once, or it could not be foreseen in time."
    )
    started_ms: int | None = Field(description="When it first ran.")
    running_since_ms: int | None = Field(description="Since when its present attempt runs; null if it does not.")
    executed_before_ms: int = Field(description="How long its earlier attempts ran, together.")
    executed_before_gpu_ms: int = Field(description="The same in GPU time, at the sizes they had.")
    ended_ms: int | None
    expected_end_ms: int | None
    attempts: int
    preemptions: int
    lost_gpu_ms: int = Field(description="GPU time lost to preemptions, as far as it is known; see its attempts.")
    exit_code: int | None
    end_reason: str
    array_of: str
    labels: dict[str, str]
    version: int = Field(description="The journal record that changed it last; its ETag.")


class OtherJobModel(Answered):
    """What is shown of a job of another tenant."""

    queue: str
    gpus: int
    expected_end_ms: int | None
    redacted: Literal[True]


class SlotModel(Answered):
    """Where one task runs."""

    rank: int
    role: str
    node: str
    devices: list[int]


class FindingModel(Answered):
    """What a launcher has found out about one of its tasks while it ran."""

    at_ms: int
    job: str
    attempt: int
    kind: Literal["slow", "recovered", "hang", "lost", "failed", "failing"]
    task: int
    node: str
    rank: int | None
    device: int | None = Field(description="The node's number of the rank's device, where each rank has one.")
    text: str


class AttemptModel(Answered):
    """One try at running a job."""

    job: str
    number: int
    phase: str
    created_ms: int
    started_ms: int | None
    ended_ms: int | None
    outcome: Literal["succeeded", "failed", "lost", "stopped"] | None
    exit_code: int | None
    reason: str
    nodes: list[str]
    slots: list[SlotModel]
    step: int | None = Field(description="Of one that has ended: the step it had come to, where it said so.")
    durable_step: int | None = Field(description="Of one that has ended: the last step that it had saved, if any.")
    lost_ms: int | None = Field(
        description="Of one that ended before its job was done: the time it ran since its last durable step, or since "
        "its start if it reported none, plus stopping and coming back. At most the interval at which the job says that "
        "it saves; null if it saves and tells neither."
    )
    lost_gpu_ms: int | None = Field(description="The same in GPU time, at the sizes it had.")
    findings: list[FindingModel] = Field(description="What its launcher found about its tasks, the newest 50.")


class SaidProgressModel(Answered):
    """What an attempt said of itself last, and when."""

    at_ms: int
    attempt: int
    step: int
    samples_per_s: float
    durable_step: int = Field(description="The step that would survive if it ended now.")
    stop_cost_ms: int
    gpu_busy: float
    memory_gb: float
    metrics: dict[str, float]


class SaveModel(Answered):
    """A save that an attempt was asked for, and what became of it."""

    attempt: int
    asked_ms: int
    until_ms: int = Field(description="When it is asked for no more.")
    from_step: int | None = Field(description="The step that the attempt had come to by its first report afterwards.")
    durable_step: int | None = Field(description="The first at or after that step that it reported to be durable.")


class ScaleModel(Answered):
    """How a service follows its load, and how it stands to it now."""

    metric: Literal["requests_per_s", "gpu_busy", "queue_length", "query"]
    query: str
    target: float = Field(description="What each replica is to have of it.")
    min: int
    max: int
    cool_down_ms: int
    since_ms: int | None = Field(description="When its size was last changed by its load or by hand; null if never.")
    replicas: int = Field(description="How many it is to have.")
    running: int = Field(description="How many it has.")
    wanted: int | None = Field(description="How many its load asks for; null where that is not known.")
    value: float | None = Field(description="The load as it was last measured.")
    value_at_ms: int | None
    standing: Literal[
        "steady", "grows", "shrinks", "cools_down", "at_max", "unknown", "stale", "nonsense", "not_running"
    ]
    problem: str = Field(description="Why its load is not known, or its size not changed; or empty.")
    says: str = Field(description="All of it in one line.")


class JobDetailModel(JobModel):
    """A job with what was asked for, its present attempt, its progress if it has reported any, and the save that the
    present attempt was last asked for."""

    spec: dict[str, Any]
    attempt: AttemptModel | None
    progress: SaidProgressModel | None
    save: SaveModel | None
    scale: ScaleModel | None
    found: str = Field(description="What the launcher of its newest attempt found about its tasks; or empty.")
    lost: str = Field(description="How often it was preempted and how much work was lost by that; or empty.")


class SubmittedModel(JobModel):
    """A job that was taken. An array is shown by its first member; `members` are the ids of all."""

    members: list[str]


class ChangedModel(JobModel):
    """A job as it is after a change. An array is shown by its first member; `members` are the ids of all changed."""

    members: list[str]


class JobListModel(Answered):
    """A page of jobs. `next` is the cursor of the next page."""

    items: list[JobModel | OtherJobModel]
    next: str | None


class UsageModel(Answered):
    """The GPU time of a user, a queue or a job. How busy it was is known of `reported_gpu_ms` of it."""

    key: str = Field(description="The name of the user, the path of the queue, or the id of the job.")
    name: str = Field(description="The name of the job; this, `user` and `queue` only by job.")
    user: str
    queue: str
    jobs: int
    attempts: int
    gpu_ms: int = Field(description="GPU time held.")
    lost_gpu_ms: int = Field(description="GPU time lost by stops before the work was durable, as far as it is known.")
    reported_gpu_ms: int = Field(description="GPU time held by attempts that reported `gpu_busy`.")
    busy_gpu_ms: int = Field(description="What of that was busy, by the mean of the reports.")


class UsageListModel(Answered):
    """GPU time, the most first."""

    items: list[UsageModel]
    next: str | None


class AttemptListModel(Answered):
    """All attempts at a job."""

    items: list[AttemptModel]
    next: str | None = None


class IdsModel(Answered):
    """The ids of the jobs that were taken, in order; arrays by their members."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"example": {"ids": ["4821", "4822.0", "4822.1"]}})
    ids: list[str]


class UntilModel(Answered):
    """Until when a job was asked to save its work."""

    until_ms: int


class NoticeModel(Answered):
    """What a running job is told when it reports: save your work until then; you will be stopped then."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"example": {"checkpoint_until_ms": 1790000090000, "stop_at_ms": None}}
    )
    checkpoint_until_ms: int | None
    stop_at_ms: int | None
