"""Traces: jobs as they once arrived, whatever the file they come from."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from phalanx.workload.job import Kind


class Ending(StrEnum):
    """How a job of a trace ends once it has run for its duration."""

    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class TraceJob:
    """One job of a trace. Times are milliseconds since the trace begins.

    `duration_ms` is how long it runs with all its GPUs, well placed, on the hardware it was measured on. One that ends
    `cancelled` is cancelled by its user after it has run so long; `cancel_ms`, where given, is when its user cancels
    it, whether it runs or not. `gpus_per_node` is the size of its tasks, each on one node; 0 leaves it to the cluster.
    A job whose `min_gpus` or `max_gpus` differ from `gpus` is elastic. `gpu_type` may name several, as `A|B`. With
    `gpu_milli` it asks for so many thousandths of each of its GPUs; `cpus_milli`, `memory_mb` are those of each task.
    `gpu_memory_mb` is the most that it has on each GPU within a step, of `step_ms`; `gpu_memory_low_mb` the least.
    `estimate_ms` is how long it says it takes, which is all that policies know; None: its duration.
    """

    id: str
    submit_ms: int
    duration_ms: int
    gpus: int
    queue: str = "default"
    user: str = ""
    priority: int = 0
    gpus_per_node: int = 0
    gpu_type: str = ""
    model: str = ""
    ending: Ending = Ending.COMPLETED
    min_gpus: int = 0
    max_gpus: int = 0
    deadline_ms: int | None = None
    checkpoint_cost_ms: int = 0
    cancel_ms: int | None = None
    kind: Kind = Kind.TRAINING
    tier: str = ""
    gpu_milli: int = 0
    cpus_milli: int = 0
    memory_mb: int = 0
    batch: str = ""
    gpu_memory_mb: int = 0
    gpu_memory_low_mb: int = 0
    step_ms: int = 0
    estimate_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Trace:
    """Jobs in the order of their submission.

    `dropped` counts bad rows left out, `bad_rows` names the first of these, `notes` say what reading changed.
    """

    name: str
    jobs: tuple[TraceJob, ...]
    dropped: int = 0
    notes: tuple[str, ...] = ()
    bad_rows: tuple[str, ...] = ()
