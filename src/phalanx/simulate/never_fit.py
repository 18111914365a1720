"""Jobs that never fit: what is too small for them, and why, in figures and in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from phalanx.engine.plan import Reason
from phalanx.engine.records import JobRecord
from phalanx.engine.state import State
from phalanx.placement.place import refusal
from phalanx.simulate.result import JobResult
from phalanx.simulate.run import Run

WANTING = {
    "gpu_type": "and no node has GPUs of its type",
    "gpu_memory": "with more memory than a GPU has",
    "node_gpus": "and a task of it for more than a node has",
    "node_cpus": "with more CPUs than a node has",
    "node_cpus_limit": "with more CPUs than a node allows",
    "node_memory": "with more memory than a node has",
    "node_memory_limit": "with more memory than a node allows",
    "node_nics": "with more NICs than a node has",
}
"""What a cluster is wanting, by the predicate that rules out the most of its nodes."""


class TooSmall(StrEnum):
    """What could never hold a job."""

    CLUSTER = "cluster"
    QUEUE = "queue"
    VIRTUAL_CLUSTER = "virtual_cluster"


class NeverFit(NamedTuple):
    """What is too small for a job, and why in a sentence."""

    of: TooSmall
    why: str


def never_fit(run: Run) -> dict[str, NeverFit]:
    """The jobs of a run that can never start: those who wait for what there is not, and those who were refused."""
    state = run.state
    found: dict[str, NeverFit] = {}
    for waiting in state.classes.values():
        if waiting.verdict is Reason.NEVER_FITS:
            cause = ""
            for _, job in waiting.jobs:
                record = state.jobs[job]
                cause = cause or _cause(state, record)
                gpus = record.job.gang.gpus_max
                asks = f"job {job} asks for {gpus} GPU{'' if gpus == 1 else 's'}"
                found[job] = NeverFit(TooSmall.CLUSTER, asks + cause)
    place = TooSmall.QUEUE if state.cells is None else TooSmall.VIRTUAL_CLUSTER
    found.update((job, NeverFit(place, refused.why)) for job, refused in run.refused.items())
    return found


def _cause(state: State, record: JobRecord) -> str:
    """Why a job does not fit that asks for no more GPUs than there are."""
    if record.job.gang.gpus_min > state.cluster.gpus:
        return f", and the cluster has {state.cluster.gpus}"
    found = refusal(state.fit, record.asked)
    if not found.ruled_out:
        level = record.asked.gang.topology.required
        return f", and no {level} of the cluster could hold them" if level else ""
    name, nodes = max(found.ruled_out, key=lambda each: each[1])
    return f", {WANTING.get(name, f'and {nodes} of {found.nodes} nodes are ruled out by {name}')}"


def never_fit_figures(jobs: Sequence[JobResult], never_fit: Mapping[str, NeverFit]) -> dict[str, dict[str, Any]]:
    """By what is too small: how many jobs, and the largest of them with why."""
    figures: dict[str, dict[str, Any]] = {}
    for place in TooSmall:
        own = [job for job in jobs if job.job_id in never_fit and never_fit[job.job_id].of is place]
        if own:
            largest = max(own, key=lambda job: job.gpus)
            why = never_fit[largest.job_id].why
            figures[place] = {"jobs": len(own), "largest": largest.job_id, "gpus": largest.gpus, "why": why}
    return figures


def never_fit_notes(summary: Mapping[str, Any]) -> Iterator[str]:
    """Why jobs of a summary never fit, a sentence for each thing that is too small."""
    for place, figures in summary.get("never_fit", {}).items():
        one = figures["jobs"] == 1
        jobs = "1 job never fits its" if one else f"{figures['jobs']:,} jobs never fit their"
        yield f"{jobs} {place.replace('_', ' ')}{'' if one else '; the largest'}: {figures['why']}"
