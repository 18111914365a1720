"""What the routes for operators answer with, for the API's description: timeline, post-mortem, records, starts told."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from phalanx.server.api.models.base import Answered
from phalanx.server.api.models.planning import ReservationModel
from phalanx.server.api.overview.models import SegmentModel


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
    end_ms: int = Field(description="Where it was taken back before its end, the moment of that.")


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


class PastModel(Answered):
    """The moments that can be looked at."""

    first_ms: int = Field(description="Of the first record.")
    last_ms: int = Field(description="Now; of a journal that is shown, of the last record.")


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

EXAMPLES: dict[str, Any] = {
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
    "PastModel": {"first_ms": 1787408000000, "last_ms": 1790000000000},
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
}
