"""Results: what a run in virtual time came to. Plain data that goes from process to process and into files."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import msgspec

from phalanx.errors import PhalanxError


class FrameError(PhalanxError):
    """A table of jobs that cannot be made."""


class JobResult(msgspec.Struct, frozen=True):
    """What became of one job: a row of `--per-job`. Times are seconds since the run began; None has not happened."""

    job_id: str
    queue: str
    state: str
    submit_s: float
    start_s: float | None
    end_s: float | None
    wait_s: float | None
    queued_s: float
    jct_s: float | None
    gpus: int
    attempts: int
    preemptions: int
    lost_gpu_s: float
    nodes: tuple[str, ...] = ()


class Timeline(msgspec.Struct, frozen=True):
    """The cluster over time: the i-th values are means from `at_s[i]` up to the next, and the last up to `end_s`.

    Shares are 0 to 1. Without `end_s` it is not known how long the last ones hold.
    """

    at_s: list[float]
    allocated: list[float]
    waiting_jobs: list[float]
    waiting_gpus: list[float]
    fragmentation: list[float]
    end_s: float | None = None


class QuotaTrack(msgspec.Struct, frozen=True):
    """GPUs of a queue over the stretches of a timeline: what it deserves, what it has, and which share of what it
    deserved and asked for it had. That share is None while it asks for nothing.
    """

    deserved: list[float]
    used: list[float]
    attained: list[float | None]


class Stay(msgspec.Struct, frozen=True):
    """An attempt of a job on one node, from its start to when the devices were free again."""

    job_id: str
    attempt: int
    node: str
    gpus: int
    start_s: float
    end_s: float


class Outage(msgspec.Struct, frozen=True):
    """A time in which a node took no new work, and why: `failed`, `draining` or `suspect`."""

    node: str
    health: str
    start_s: float
    end_s: float


class NodeUse(msgspec.Struct, frozen=True):
    """What a node was held for in all: by how many stays, and how much GPU time."""

    stays: int
    gpu_s: float


class Result(msgspec.Struct, frozen=True):
    """One run. `summary` is what `simulate -o json` prints; `setup` is what would repeat the run.

    `stays` are those that took the most GPU time; `stays_left_out` counts the rest, which `nodes` has as well.
    `served` is for each queue the GPU time its jobs had ÷ what they asked for: what Jain's index is of. `quotas` has
    the queues that deserve GPUs.
    """

    summary: dict[str, Any]
    setup: dict[str, Any]
    jobs: list[JobResult]
    timeline: Timeline
    stays: list[Stay]
    nodes: dict[str, NodeUse] = {}
    stays_left_out: int = 0
    served: dict[str, float] = {}
    outages: list[Outage] = []
    quotas: dict[str, QuotaTrack] = {}

    def __repr__(self) -> str:
        """A line for an interactive session; all there is would fill its screen."""
        counts, policy = self.summary["jobs"], self.summary["policy"]
        told = [f"{counts['completed']:,} of {counts['submitted']:,} completed"]
        for name, key in (("mean JCT", "jct_s"), ("mean queued", "queued_s")):
            mean = self.summary[key]["mean"]
            told += [f"{name} {mean:,.0f} s"] if mean is not None else []
        return f"<Result {policy}: {', '.join(told)}>"

    def to_polars(self) -> Any:
        """A row for each job, as a polars DataFrame."""
        return _library("polars", "polars").DataFrame(self._columns())

    def to_pandas(self) -> Any:
        """A row for each job, as a pandas DataFrame."""
        return _library("pandas", "pandas").DataFrame(self._columns())

    def _columns(self) -> dict[str, list[Any]]:
        names = JobResult.__struct_fields__
        return {name: [getattr(job, name) for job in self.jobs] if name != "nodes" else self._nodes() for name in names}

    def _nodes(self) -> list[list[str]]:
        return [list(job.nodes) for job in self.jobs]


def _library(name: str, package: str) -> Any:
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        raise FrameError(f"this needs {name}: pip install '{package}'") from error
