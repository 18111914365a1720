"""What the routes of the overview answer with, for the API's description."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from phalanx.server.api.models.base import Answered
from phalanx.server.api.models.planning import ReservationModel


class PlaceModel(Answered):
    """A node of the map."""

    name: str
    path: list[str] = Field(description="The domains it lies in, the outermost first.")
    model: str
    devices: int = Field(description="How many GPUs it has.")
    memory_gb: float = Field(description="The memory of each.")


class DeviceMapModel(Answered):
    """Where every GPU lies. They are numbered one after another in the order of `nodes`."""

    version: int = Field(description="Changes when nodes come, go or change; X-Map-Version of a frame.")
    levels: list[str]
    devices: int
    virtual_clusters: bool = Field(description="Whether there are any, so that a frame can be coloured by them.")
    nodes: list[PlaceModel]


class LegendJobModel(Answered):
    """A job that has devices."""

    job: str
    name: str
    queue: str
    user: str


class LegendOthersModel(Answered):
    """All jobs that have no number of their own, and those that the caller may not look at."""

    others: Literal[True]


class LegendCellModel(Answered):
    """What of a virtual cluster a device is."""

    virtual_cluster: str
    use: Literal["own", "free", "opportunistic"] = Field(
        description="In one of its cells and in use, in one and free, or used by its jobs beyond its cells."
    )


class LegendModel(Answered):
    """What the numbers of a frame stand for, by number; null is no job."""

    version: int = Field(description="X-Legend-Version of the frames that it is for.")
    colour: str
    values: list[str | LegendJobModel | LegendCellModel | LegendOthersModel | None]


class DeviceJobModel(Answered):
    """A job that has or claims a device."""

    id: str
    name: str
    queue: str
    user: str
    running_since_ms: int | None


class PartModel(Answered):
    """What a task has of a device that others share. `offset` is where a MIG instance begins."""

    job: str | None = Field(description="Null for one that the caller may not look at.")
    rank: int
    mode: Literal["whole", "fraction", "mps", "mig", "turns"]
    compute_permille: int
    memory_mb: int
    profile: str
    offset: int | None


class InstanceModel(Answered):
    """A MIG instance of a device."""

    offset: int
    profile: str


class DeviceModel(Answered):
    """One GPU."""

    node: str
    index: int
    number: int = Field(description="Its place in frames.")
    model: str
    memory_gb: float
    state: str
    health: str
    utilization: int | None = Field(description="In percent, as its job says; null if it does not measure.")
    jobs: list[DeviceJobModel] = Field(description="Those that the caller may look at.")
    other_jobs: int = Field(description="How many more there are.")
    parts: list[PartModel]
    instances: list[InstanceModel]


class SharedDeviceModel(Answered):
    """A GPU that is shared, or cut into instances."""

    node: str
    index: int
    parts: list[PartModel]
    instances: list[InstanceModel]


class SharedDeviceListModel(Answered):
    """All GPUs that are shared, or cut into instances."""

    items: list[SharedDeviceModel]
    next: str | None = None


class ReasonModel(Answered):
    """Pending jobs that have the same reason."""

    code: str
    text: str
    jobs: int
    gpus: int = Field(description="GPUs that they ask for.")
    oldest_ms: int = Field(description="When the first of them was submitted.")
    example: str = Field(description="That job.")


class ReasonListModel(Answered):
    """The reasons of pending jobs, the one with the most GPUs first."""

    reasons: list[ReasonModel]


class SegmentModel(Answered):
    """What a job was doing for a time. `end_ms` is null for what it does now."""

    attempt: int = Field(description="Of one that is queued: the attempt that it waits for.")
    state: Literal["queued", "starting", "running", "suspended", "stopping", "lost_work"]
    start_ms: int
    end_ms: int | None
    nodes: list[str]
    text: str


class JobTimelineModel(Answered):
    """What a job has been doing, one segment after another. Work that was lost was running, too."""

    job: str
    now_ms: int
    segments: list[SegmentModel]


class NodeHealthModel(Answered):
    """How healthy a node was for a time."""

    health: Literal["healthy", "suspect", "draining", "failed"]
    reason: str
    start_ms: int
    end_ms: int | None


class NodeAttemptModel(Answered):
    """An attempt that had devices of a node. Without a job it is one that the caller may not look at."""

    job: str | None
    name: str
    attempt: int | None
    start_ms: int
    running_ms: int | None = Field(description="Since when it ran.")
    end_ms: int | None
    state: Literal["starting", "running", "suspended", "stopping", "ended"]
    outcome: Literal["succeeded", "failed", "lost", "stopped"] | None


class NodeTimelineModel(Answered):
    """What there was on a node."""

    node: str
    start_ms: int
    end_ms: int
    healths: list[NodeHealthModel]
    attempts: list[NodeAttemptModel]


class SeriesModel(Answered):
    """Figures over time: the mean of each over steps of `step_ms`, the first from `start_ms` on; null is unknown."""

    scope: str
    step_ms: int
    start_ms: int
    names: list[str]
    values: dict[str, list[float | None]]


class AttentionItemModel(Answered):
    """A job that needs attention, and since when."""

    kind: Literal["failing", "stuck", "idle_gpus", "deadline_at_risk", "past_max_wait", "never_fits"]
    job: str
    name: str
    queue: str
    user: str
    text: str
    since_ms: int


class AttentionModel(Answered):
    """Jobs that need attention, the most pressing first. `total` counts those beyond the limit, too."""

    items: list[AttentionItemModel]
    total: int


class FragmentLevelModel(Answered):
    """A level of the cluster; `cluster` is the whole."""

    level: str
    largest_gang_gpus: int = Field(description="GPUs of the largest gang that could start now in one domain of it.")
    free: int = Field(description="GPUs that are free in the whole cluster.")
    domain: str = Field(description="The domain that has room for it.")


class FragmentationModel(Answered):
    """How scattered the free GPUs are."""

    now_ms: int
    levels: list[FragmentLevelModel]


class BarsModel(Answered):
    """Attempts by columns: a place in each is one attempt. Without a job it is one that the caller may not look at."""

    job: list[str | None]
    name: list[str]
    queue: list[str]
    attempt: list[int]
    submitted_ms: list[int | None] = Field(description="Of the first attempt at a job.")
    created_ms: list[int]
    started_ms: list[int | None]
    ended_ms: list[int | None]
    expected_end_ms: list[int | None] = Field(description="Of those that run.")
    outcome: list[Literal["succeeded", "failed", "lost", "stopped"] | None]
    nodes: list[list[int]] = Field(description="Places in `nodes` of the timeline.")


BAR_KEYS = tuple(BarsModel.model_fields)


class WindowModel(Answered):
    """Maintenance: the nodes are out of service."""

    name: str
    nodes: list[str]
    start_ms: int
    end_ms: int


class ClusterTimelineModel(Answered):
    """What ran where in a span of time, what is reserved, and maintenance."""

    start_ms: int
    end_ms: int
    now_ms: int
    complete: bool = Field(description="Whether all attempts of that time are there.")
    bars: BarsModel
    nodes: list[str]
    reservations: list[ReservationModel]
    maintenance: list[WindowModel]


class EndingModel(Answered):
    """The end of an attempt before its work was done."""

    attempt: int
    at_ms: int
    kind: Literal["hardware", "preempted", "job", "asked", "other"] = Field(description="What caused it.")
    text: str
    node: str = Field(description="The node whose trouble it was, where that is known.")
    lost_ms: int | None = Field(description="Null where it is not known how much work was lost.")
    lost_gpu_ms: int | None


class SpentModel(Answered):
    """Time of a job that went to something, and the GPU time that was held meanwhile."""

    kind: Literal["queued", "starting", "restarting", "computing", "saving", "lost", "suspended", "stopping"]
    ms: int
    gpu_ms: int


class CheckpointIntervalModel(Answered):
    """What would have been lost, and spent on saving, had the job saved its work so often."""

    interval_ms: int
    lost_ms: int
    lost_gpu_ms: int
    saving_ms: int


class RemedyModel(Answered):
    """Something that would have saved time or work."""

    kind: Literal["checkpoint", "spare", "queue"]
    saves_ms: int
    saves_gpu_ms: int
    text: str


class PostmortemModel(Answered):
    """What became of a job's time."""

    job: dict[str, Any] = Field(description="The job, with what identifies it and its times.")
    now_ms: int
    first_cause: str
    endings: list[EndingModel]
    spent: list[SpentModel] = Field(description="All time since the submission: it adds up.")
    intervals: list[CheckpointIntervalModel] = Field(description="Empty where no work was lost.")
    remedies: list[RemedyModel] = Field(description="What saves the most time first.")
    saves: int = Field(description="How often it reported a durable step that was new.")
    save_cost_ms: int | None = Field(description="What one save costs, as its file says.")
    segments: list[SegmentModel]


class RecordModel(Answered):
    """A record of the journal."""

    seq: int
    now_ms: int
    type: str
    job: str = Field(description="The job that it is about; empty where that is none, or several.")
    body: dict[str, Any] = Field(description="What it says, as far as the caller may see it.")


class RecordListModel(Answered):
    """A page of the journal, the newest first."""

    items: list[RecordModel]
    next: str | None


class ToldGroupModel(Answered):
    """The starts that were told in a queue under a policy, and how they came."""

    queue: str
    policy: str
    told: int
    pending: int = Field(description="Those whose jobs have not started yet.")
    kept: int
    late: int
    early: int
    median_error_ms: int | None = Field(description="Between what was told and what came, whichever was first.")
    p90_error_ms: int | None


class ToldStartModel(Answered):
    """A start that a submitter was told, and the real one."""

    job: str
    name: str
    queue: str
    policy: str
    at_ms: int = Field(description="When it was told.")
    told_start_ms: int
    started_ms: int | None
    error_ms: int | None = Field(description="How much later it was than told, or earlier if negative.")
    outcome: Literal["kept", "late", "early"] | None


class ReceiptsModel(Answered):
    """The starts that were told beside the real ones; `items` are the newest hundred."""

    since_ms: int
    groups: list[ToldGroupModel]
    items: list[ToldStartModel]


class DurationsModel(Answered):
    """How often something took how long. `classes` counts by `bounds_s`; its last is what took longer."""

    count: int
    total_s: float
    classes: list[int]


class SnapshotModel(Answered):
    """The newest snapshot in the store: the state right after a record."""

    seq: int
    at_ms: int


class ProcessModel(Answered):
    """A process of the server."""

    name: str
    pid: int
    cpu_s: float = Field(description="Processor time since it was started.")
    memory_mb: int
    up_s: float
    trouble: str = Field(description="What is the matter with it; empty where nothing is known to be.")


class SchedulerModel(Answered):
    """How the scheduler itself does. Counts are since `started_ms`."""

    now_ms: int
    started_ms: int | None
    seq: int = Field(description="The newest record of the journal.")
    policy: str
    placement: str
    solver: str | None = Field(description="The solver that the policy asks.")
    advice_kept: int = Field(description="How often it had no answer, so that the last one was kept.")
    bounds_s: list[float]
    decisions: DurationsModel
    turns: DurationsModel
    commits: DurationsModel
    requests: int
    events: int
    jobs_in_line: int
    gpus_in_line: int
    attempts: int
    decisions_looked_at: int = Field(description="Decisions among the last 5,000 records, at most 1,000.")
    decisions_cut_short: int = Field(description="Those in which not every kind of pending job was looked at.")
    snapshot: SnapshotModel | None
    processes: list[ProcessModel]


_TOLD = {"queue": "research", "policy": "priority", "told_start_ms": 1790000060000}
_DURATIONS = {"count": 3, "total_s": 0.02, "classes": [0, 2, 1, 0, 0, 0, 0, 0, 0]}
_PART = {
    "job": "4821",
    "rank": 0,
    "mode": "mig",
    "compute_permille": 428,
    "memory_mb": 40_960,
    "profile": "3g.40gb",
    "offset": 4,
}
_SHARED = {"node": "n0", "index": 3, "parts": [_PART], "instances": [{"offset": 4, "profile": "3g.40gb"}]}

EXAMPLES: dict[str, Any] = {
    "DeviceMapModel": {
        "version": 2_774_631_100,
        "levels": ["pod", "rack", "node"],
        "devices": 8,
        "virtual_clusters": False,
        "nodes": [{"name": "n0", "path": ["pod0", "rack1"], "model": "H100", "devices": 8, "memory_gb": 80.0}],
    },
    "LegendModel": {"version": 91_033_122, "colour": "queue", "values": [None, "research", {"others": True}]},
    "DeviceModel": {
        **_SHARED,
        "number": 3,
        "model": "H100",
        "memory_gb": 80.0,
        "state": "busy",
        "health": "healthy",
        "utilization": 93,
        "jobs": [
            {"id": "4821", "name": "llama-70b", "queue": "research", "user": "ada", "running_since_ms": 1790000060000}
        ],
        "other_jobs": 0,
    },
    "ReasonListModel": {
        "reasons": [
            {
                "code": "gpus",
                "text": "too few GPUs are free",
                "jobs": 31,
                "gpus": 248,
                "oldest_ms": 1790000000000,
                "example": "4822",
            }
        ]
    },
    "JobTimelineModel": {
        "job": "4821",
        "now_ms": 1790000090000,
        "segments": [
            {
                "attempt": 1,
                "state": "running",
                "start_ms": 1790000060000,
                "end_ms": None,
                "nodes": ["n0"],
                "text": "",
            }
        ],
    },
    "NodeTimelineModel": {
        "node": "n0",
        "start_ms": 1789913690000,
        "end_ms": 1790000090000,
        "healths": [{"health": "healthy", "reason": "", "start_ms": 0, "end_ms": None}],
        "attempts": [
            {
                "job": "4821",
                "name": "llama-70b",
                "attempt": 1,
                "start_ms": 1790000058000,
                "running_ms": 1790000060000,
                "end_ms": None,
                "state": "running",
                "outcome": None,
            }
        ],
    },
    "SeriesModel": {
        "scope": "cluster",
        "step_ms": 10_000,
        "start_ms": 1790000000000,
        "names": ["gpus_busy"],
        "values": {"gpus_busy": [871.0, None, 872.0]},
    },
    "AttentionModel": {
        "items": [
            {
                "kind": "idle_gpus",
                "job": "4821",
                "name": "llama-70b",
                "queue": "research",
                "user": "ada",
                "text": "32 GPUs are 1 % busy for 41m",
                "since_ms": 1790000000000,
            }
        ],
        "total": 1,
    },
    "FragmentationModel": {
        "now_ms": 1790000000000,
        "levels": [
            {"level": "cluster", "largest_gang_gpus": 128, "free": 128, "domain": ""},
            {"level": "rack", "largest_gang_gpus": 24, "free": 128, "domain": "rack3"},
            {"level": "node", "largest_gang_gpus": 4, "free": 128, "domain": "n17"},
        ],
    },
    "ClusterTimelineModel": {
        "start_ms": 1789913600000,
        "end_ms": 1790000000000,
        "now_ms": 1790000000000,
        "complete": True,
        "bars": {
            "job": ["4821"],
            "name": ["llama-70b"],
            "queue": ["research"],
            "attempt": [1],
            "submitted_ms": [1789990000000],
            "created_ms": [1789990004000],
            "started_ms": [1789990010000],
            "ended_ms": [None],
            "expected_end_ms": [1790010000000],
            "outcome": [None],
            "nodes": [[0]],
        },
        "nodes": ["n0"],
        "reservations": [],
        "maintenance": [{"name": "cooling", "nodes": ["n0"], "start_ms": 1790100000000, "end_ms": 1790110000000}],
    },
    "PostmortemModel": {
        "job": {"id": "4821", "name": "llama-70b", "state": "running"},
        "now_ms": 1790003600000,
        "first_cause": "attempt 1 ended after 2h 0m: lost; node n3 became failed 4s before: xid 79",
        "endings": [
            {
                "attempt": 1,
                "at_ms": 1790000000000,
                "kind": "hardware",
                "text": "attempt 1 ended after 2h 0m: lost; node n3 became failed 4s before: xid 79",
                "node": "n3",
                "lost_ms": 3_000_000,
                "lost_gpu_ms": 24_000_000,
            }
        ],
        "spent": [{"kind": "computing", "ms": 4_200_000, "gpu_ms": 33_600_000}],
        "intervals": [{"interval_ms": 900_000, "lost_ms": 0, "lost_gpu_ms": 0, "saving_ms": 240_000}],
        "remedies": [{"kind": "spare", "saves_ms": 1_200_000, "saves_gpu_ms": 0, "text": "a spare node"}],
        "saves": 2,
        "save_cost_ms": 30_000,
        "segments": [],
    },
    "RecordListModel": {
        "items": [
            {
                "seq": 993,
                "now_ms": 1790000000000,
                "type": "JobCancelled",
                "job": "4821",
                "body": {"type": "JobCancelled", "job": "4821"},
            }
        ],
        "next": None,
    },
    "ReceiptsModel": {
        "since_ms": 1787408000000,
        "groups": [
            {
                "queue": "research",
                "policy": "priority",
                "told": 2,
                "pending": 1,
                "kept": 1,
                "late": 0,
                "early": 0,
                "median_error_ms": 4_000,
                "p90_error_ms": 4_000,
            }
        ],
        "items": [
            {
                **_TOLD,
                "job": "4821",
                "name": "llama-70b",
                "at_ms": 1790000000000,
                "started_ms": 1790000064000,
                "error_ms": 4_000,
                "outcome": "kept",
            }
        ],
    },
    "SchedulerModel": {
        "now_ms": 1790000000000,
        "started_ms": 1789990000000,
        "seq": 993,
        "policy": "priority",
        "placement": "pack",
        "solver": None,
        "advice_kept": 0,
        "bounds_s": [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0],
        "decisions": _DURATIONS,
        "turns": _DURATIONS,
        "commits": _DURATIONS,
        "requests": 31,
        "events": 120,
        "jobs_in_line": 4,
        "gpus_in_line": 32,
        "attempts": 12,
        "decisions_looked_at": 80,
        "decisions_cut_short": 0,
        "snapshot": {"seq": 900, "at_ms": 1789999000000},
        "processes": [{"name": "loop", "pid": 4711, "cpu_s": 12.5, "memory_mb": 210, "up_s": 10_000.0, "trouble": ""}],
    },
    "SharedDeviceListModel": {"items": [_SHARED], "next": None},
}
