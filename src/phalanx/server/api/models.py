"""What the API answers with, for its description. Requests are in `bodies`."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

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


class Answered(BaseModel):
    """What everything the API answers with has in common: it has these keys and no others."""

    model_config = ConfigDict(extra="forbid")


class ErrorModel(Answered):
    """Every error. `code` is for programs, `message` for people."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"example": {"code": "not_found", "message": "there is no job '7'", "detail": None}},
    )
    code: str
    message: str
    detail: dict[str, Any] | None


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
    reason: str | None = Field(description="Why it waits; null if it does not.")
    held: bool
    gpus: int = Field(description="GPUs it holds; those it asks for while it waits.")
    nodes: list[str]
    submitted_ms: int
    told_start_ms: int | None = Field(
        description="The start that its submitter was told to expect; null if none was told: nobody asked, it started "
        "at once, or it could not be foreseen in time."
    )
    started_ms: int | None = Field(description="When it first ran.")
    running_since_ms: int | None = Field(description="Since when its present attempt runs; null if it does not.")
    executed_before_ms: int = Field(description="How long its earlier attempts ran, together.")
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


class NodeModel(Answered):
    """A node, and what happens on it."""

    name: str
    health: Literal["healthy", "suspect", "draining", "failed"]
    reason: str
    gpus: int
    gpus_used: int
    gpu_type: str
    gpu_memory_gb: float
    cpus_milli: int
    memory_mb: int
    path: list[str]
    labels: dict[str, str]
    spot: bool
    jobs: list[str] = Field(description="Jobs there that you may see.")
    simulated: bool = Field(description="No machine of that name is behind it: its GPUs are simulated.")


class NodeListModel(Answered):
    """A page of nodes."""

    items: list[NodeModel]
    next: str | None


class OwnedCellsModel(Answered):
    """Cells of one type that a virtual cluster owns."""

    type: str
    gpus: int = Field(description="GPUs of each.")
    count: int
    free: int = Field(description="How many of them no job that is guaranteed its place is on.")


class VirtualClusterModel(Answered):
    """What a queue that is a virtual cluster owns, and what its jobs have."""

    cells: list[OwnedCellsModel]
    gpus: int = Field(description="GPUs it owns: it can always have them back.")
    gpus_used: int = Field(description="GPUs of its own cells that its jobs have.")
    gpus_free: int = Field(description="GPUs of its own cells that its jobs do not have; others may be on them.")
    gpus_opportunistic: int = Field(description="GPUs that its jobs have beside its own cells, until they are wanted.")


class QueueModel(Answered):
    """A queue, and what waits and runs in it and in those that lie in it."""

    name: str
    waiting: int
    running: int
    gpus_used: int
    gpus_waiting: int
    quota: dict[str, Any] | None = Field(
        description="What the cluster file allots to it, and to those inside where it does not say; else null."
    )
    quota_used: dict[str, Any] | None = Field(
        description="What its jobs, and those inside, have of it; parts of GPUs count as what they are. Null without."
    )
    budget_spent_gpu_ms: int | None = Field(
        description="GPU time that it has had of its budget (budget_gpu_ms of quota); null where it has none."
    )
    virtual_cluster: VirtualClusterModel | None = Field(description="What it owns; null where it owns no cells.")


class QueueListModel(Answered):
    """All queues that have a job, a quota or cells."""

    items: list[QueueModel]
    next: str | None = None


class ClusterModel(Answered):
    """The cluster as a whole."""

    name: str
    levels: list[str]
    nodes: int
    gpus: int
    gpus_used: int
    simulated_nodes: int = Field(description="How many nodes no machine is behind.")
    gpu_types: list[str]
    storage_tiers: list[str] = Field(description="Those that jobs may name, of nodes and shared.")
    policy: str
    placement: str
    term: int


class PolicyModel(Answered):
    """What decides who goes next, and where."""

    policy: str
    placement: str


class DifferenceModel(Answered):
    """What a change of the cluster does, the attempts it stops, and the waiting jobs that could never start then."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {"changes": ["Nodes removed: n3"], "stops": ["4821/1"], "strands": [], "warnings": []}
        },
    )
    changes: list[str]
    stops: list[str]
    strands: list[str] = Field(
        default_factory=list,
        description="Waiting jobs that ask for more than their queues could ever have then.",
    )
    warnings: list[str] = Field(
        default_factory=list,
        description="Queues that are left with none of a resource, and limits above what the cluster has.",
    )


class ReservationModel(Answered):
    """Devices a job will have from a moment on."""

    job: str
    at_ms: int | None = Field(description="Null where it waits for jobs that do not say when they end.")
    nodes: list[str]


class ReservationListModel(Answered):
    """All reservations."""

    items: list[ReservationModel]
    next: str | None = None


class ReplicaPriceModel(Answered):
    """What replicas of a service that follows its load would cost other jobs now."""

    replicas: int
    had: Literal["free", "preemption", "max", "quota", "no_room"] = Field(
        description="How they would be had, or why not."
    )
    gives_way: list[dict[str, Any]] = Field(
        description="Jobs that would be stopped, each with its queue, gpus and lost_gpu_ms, or shrunk by so many GPUs; "
        "job is empty for others' jobs."
    )
    lost_gpu_ms: int = Field(description="GPU time that all of them would lose.")
    says: str


class WhyModel(Answered):
    """Why a job is where it is: one dominant reason and the counts behind it."""

    job: str
    state: JobStateName
    reason: str | None
    why: str
    sooner: str = Field(description="The change that asks least and would start it now, each really tried; or empty.")
    ways: list[str] = Field(description="All changes that would, in words, in the order of `explanation.changes`.")
    evidence: dict[str, str] = Field(description="What stands behind the reason, a line each; only what there is.")
    preempted: str = Field(description="How often it made room for others, and for whom last; or empty.")
    lost: str = Field(description="How much work was lost by that, as far as it is known; or empty.")
    deadline: str = Field(
        description="Whether it can meet its deadline, by when its shape is free and the GPU time there is; else empty."
    )
    next_replica: ReplicaPriceModel | None = Field(
        description="Of a running service that follows its load: what one more replica would cost other jobs."
    )
    ruled_out: dict[str, int]
    gpus_free: int | None
    gpus_needed: int | None
    behind: dict[str, Any] | None = Field(description="The job before it that lets nobody pass.")
    waits_for: list[dict[str, Any]] = Field(description="Jobs that must leave or end first.")
    not_before_ms: int | None
    fits_now: bool
    expected_start_ms: int | None = Field(
        description="If all take as long as they say, or as is usual; null if nobody can tell. Where there is a "
        "forecast that is not over yet, believe that: it knows how far what jobs say is off."
    )
    expected_not_before_ms: int | None = Field(
        description="Where it is not known when it will start, since too many others start before: not before this."
    )
    forecast: dict[str, int | None] | None = Field(
        description="In eight of ten cases it starts between early_ms and late_ms (null: beyond the horizon, or nobody "
        "can tell how late), in half before middle_ms, by so many runs of the state ahead, made at at_ms; null if none "
        "has been made since it came."
    )
    expected_by: Literal["said", "usual"] | None = Field(
        description="Whether all take as long as they say then, or as long as is usual for such jobs."
    )
    starts_when: str = Field(description="What its start depends on, where that says more than a moment; or empty.")
    no_forecast: str = Field(
        description="Why nobody can tell when it starts: it waits for jobs of whose lengths nothing is known, or "
        "looking ahead failed; or empty. What `forecast` tells besides is only before which moment it does not start."
    )
    explanation: dict[str, Any] = Field(
        description="All there is: who holds what, quotas, and what would let it start."
    )


class PlannedDeadlineModel(Answered):
    """Whether a job that is planned can meet its deadline."""

    deadline_ms: int
    can_be_met: bool | None = Field(description="Null if the job does not say how long it takes.")
    expected_end_ms: int | None = Field(description="If it starts as planned and takes as long as it says.")
    says: str


class PlannedModel(Answered):
    """What would become of a job that was submitted now."""

    job: str
    name: str
    state: str
    gpus: int
    nodes: list[str]
    slots: list[SlotModel]
    victims: list[str] = Field(description="The attempts that are stopped for it, as far as the caller may know them.")
    makes_room: list[dict[str, Any]] = Field(
        description="All of these, each with its queue, gpus, expected_end_ms and lost_gpu_ms; job is empty for "
        "others' jobs."
    )
    lost_gpu_ms: int = Field(description="GPU time of work that all of these would lose.")
    deadline: PlannedDeadlineModel | None = Field(description="Null for a job without one.")
    expected_start_ms: int | None
    communication_ms: float | None
    all_replicas: ReplicaPriceModel | None = Field(
        description="Of a service that follows its load: what all replicas that it may have would cost other jobs."
    )
    why: str


class PlanModel(Answered):
    """The real decision on the live state, with nothing changed."""

    items: list[PlannedModel]
    next: str | None = None


class FateModel(Answered):
    """What becomes of a job that is submitted now."""

    job: str
    name: str
    start_ms: int | None
    end_ms: int | None
    why: str = Field(description="Why it does not start, if it does not.")


class FutureModel(Answered):
    """One future of the live state, in virtual time, until all that waits and runs now is over."""

    policy: str
    jobs: int
    finished: int
    unfinished: int
    makespan_s: float | None
    mean_jct_s: float | None
    mean_wait_s: float | None
    gpu_allocated: float | None
    submitted: list[FateModel]


class WhatIfModel(Answered):
    """Two futures: as it is, and what if."""

    base: FutureModel
    changed: FutureModel


class GrantModel(Answered):
    """A role in a queue and everything below it; the empty queue is the root."""

    queue: str
    role: Literal["viewer", "member", "operator", "admin"]


class MeModel(Answered):
    """Who you are to the server."""

    user: str
    roles: list[GrantModel]
    scopes: list[str]


class SessionModel(Answered):
    """The session of a browser; every key is null, or empty, where there is none."""

    user: str | None
    role: Literal["viewer", "member", "operator", "admin"] | None = Field(
        description="The highest role that the user has in any queue; what holds where is in `roles`."
    )
    roles: list[GrantModel]
    scopes: list[str]
    csrf: str | None = Field(description="What every change by the cookie sends as the header X-CSRF-Token.")
    expires_ms: int | None = Field(description="When it ends if nothing more is asked for.")
    until_ms: int | None = Field(description="When it ends at the latest.")


class TemplateModel(Answered):
    """A job file that works as it is, and a line that says what it is for."""

    name: str
    summary: str
    text: str


class TemplateListModel(Answered):
    """All templates, by name."""

    items: list[TemplateModel]
    next: str | None = None


class UserModel(Answered):
    """A user."""

    name: str
    disabled: bool
    has_password: bool
    created_ms: int
    unix_user: str = Field(description="The Unix user that their tasks run as; empty: none of their own.")
    roles: list[GrantModel]


class UserListModel(Answered):
    """All users."""

    items: list[UserModel]
    next: str | None = None


class TokenModel(Answered):
    """A token, without its secret."""

    id: str
    user: str
    name: str
    scopes: list[str]
    created_ms: int
    expires_ms: int | None
    revoked_ms: int | None
    parent: str | None
    session_until_ms: int | None = Field(
        description="Of a session of a browser: when it ends at the latest; null for a token."
    )


class TokenListModel(Answered):
    """Tokens."""

    items: list[TokenModel]
    next: str | None = None


class NewTokenModel(Answered):
    """A new token. The secret is shown once."""

    id: str
    token: str
    user: str
    name: str
    scopes: list[str]
    expires_ms: int | None
    parent: str | None


class RevokedModel(Answered):
    """A token that was revoked, and how many were with it: itself, and those that were made with it."""

    id: str
    revoked: int


class SecretGrantModel(Answered):
    """Jobs of this queue, with all below it, and of this user may use a secret. Empty is every queue, or every user."""

    queue: str
    user: str


class SecretModel(Answered):
    """A secret, without its value."""

    name: str
    grants: list[SecretGrantModel]
    has_value: bool = Field(description="Whether its file is there.")
    created_ms: int | None = Field(description="Null for one that was put into the folder by hand.")
    updated_ms: int | None


class SecretListModel(Answered):
    """Secrets."""

    items: list[SecretModel]
    next: str | None = None


class AuditModel(Answered):
    """Who did what to what, when and from where."""

    number: int
    at_ms: int
    user: str
    token: str
    origin: str
    verb: str
    target: str
    detail: str
    outcome: str


class AuditListModel(Answered):
    """A page of the audit log, the newest first."""

    items: list[AuditModel]
    next: str | None


class FoundModel(Answered):
    """An attempt that the store, restored from a backup, does not know. `ran` says whether it had to be ended."""

    id: str
    job: str
    attempt: int
    incarnation: str
    queue: str
    user: str
    found_ms: int
    found_by: str
    ran: bool
    outcome: str
    reason: str
    path: str


class FoundListModel(Answered):
    """Attempts that were found after a restore, the newest first."""

    items: list[FoundModel]
    next: str | None = None


class AlertModel(Answered):
    """A rule that is true of a job or a node, since when, and the figure behind it."""

    rule: str
    subject: str
    since_ms: int
    value: float
    action: Literal["notify", "stop", "drain"]


class AlertListModel(Answered):
    """The alerts that fire now."""

    items: list[AlertModel]
    next: str | None = None


class BackendModel(Answered):
    """What carries out plans, and what it can do."""

    name: str
    summary: str
    can: list[str]
    lacks: dict[str, str]
    real_nodes: list[str] | None = Field(None, description="Nodes that are machines and not simulated; null: all.")
    simulated: dict[str, str] = Field(
        default_factory=dict, description="What of `can` jobs may ask for and nothing enforces, with the reason."
    )


class BackendListModel(Answered):
    """The backends."""

    items: list[BackendModel]
    next: str | None = None
