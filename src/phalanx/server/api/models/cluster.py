"""Nodes, queues, the cluster and its policy, as the API answers with them."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import ConfigDict, Field

from phalanx.server.api.models.base import Answered
from phalanx.server.api.models.jobs import FindingModel


class GpuOutModel(Answered):
    """A GPU that takes no new work of itself, whatever becomes of its node."""

    gpu: int = Field(description="Its number on the node.")
    health: Literal["suspect", "draining", "failed"]


class NodeModel(Answered):
    """A node, and what happens on it."""

    name: str
    health: Literal["healthy", "spare", "suspect", "draining", "failed"]
    reason: str
    gpus: int
    gpus_used: int
    gpus_out: list[GpuOutModel]
    gpu_type: str
    gpu_memory_gb: float
    cpus_milli: int
    memory_mb: int
    path: list[str]
    labels: dict[str, str]
    spot: bool
    jobs: list[str] = Field(description="Jobs there that you may see.")
    simulated: bool = Field(description="No machine of that name is behind it: its GPUs are simulated.")


class NodeDetailModel(NodeModel):
    """A node, with what launchers found about tasks there."""

    findings: list[FindingModel] = Field(description="Of jobs that you may see; the newest 50.")


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
    """A queue, with its pending and running jobs and those of the queues below it."""

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


class QueueFileModel(Answered):
    """The queues as a cluster file says them."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {"text": "queues:\n- name: research\n  deserved: {gpus: 64}\n", "edition": "0f1d22a9c3b4e5d6"}
        },
    )
    text: str = Field(description="YAML; empty where the cluster has no queues.")
    edition: str = Field(description="The ETag, without its quotes.")


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
    """The policy and the placement in force."""

    policy: str
    placement: str


class DifferenceModel(Answered):
    """What a change of the cluster does, the attempts it stops, and the pending jobs that could never start then."""

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
        description="Pending jobs that ask for more than their queues could ever have then.",
    )
    warnings: list[str] = Field(
        default_factory=list,
        description="Queues that are left with none of a resource, and limits above what the cluster has.",
    )


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
