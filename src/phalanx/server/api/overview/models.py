"""What the routes of the overview answer with, for the API's description."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from phalanx.server.api.models.base import Answered


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
    "SharedDeviceListModel": {"items": [_SHARED], "next": None},
}
