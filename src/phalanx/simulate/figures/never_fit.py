"""Jobs that never fit: what is too small for them, and why, in figures and in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from phalanx.cluster.cluster import CLUSTER
from phalanx.engine.state.records import JobRecord
from phalanx.engine.state.state import State
from phalanx.placement.place import refusal
from phalanx.placement.refusals.misfit import Misfit, misfit
from phalanx.protocol.reason import Reason
from phalanx.simulate.figures.result import JobResult
from phalanx.simulate.run import Run
from phalanx.simulate.submission import is_pool

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


BESIDE = {"cpus": "CPUs", "nics": "NICs", "cpus_limit": "limit of CPUs", "memory_limit": "limit of memory"}
"""What lies beside GPUs, where its name is not the word for it."""


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
    """The jobs of a run that can never start: those that wait for what there is not, and those that were refused."""
    state = run.state
    found: dict[str, NeverFit] = {}
    for waiting in state.classes.values():
        if waiting.verdict is Reason.NEVER_FITS:
            cause = ""
            for _, job in waiting.jobs:
                cause = cause or _cause(state, state.jobs[job])
                found[job] = NeverFit(TooSmall.CLUSTER, f"job {job} {cause}")
    place = TooSmall.QUEUE if state.cells is None else TooSmall.VIRTUAL_CLUSTER
    found.update((job, NeverFit(place, refused.why)) for job, refused in run.refused.items())
    return found


def _cause(state: State, record: JobRecord) -> str:
    """Why a job does not fit, as what follows its name."""
    too_small = misfit(state.fit, record.asked)
    if too_small is not None:
        return misfit_words(too_small, len(state.cluster.nodes))
    asks = f"asks for {_number(record.job.gang.gpus_max, 'GPU')}"
    if is_pool(state.cluster):
        return f"{asks}, and the cluster has {state.cluster.gpus}"
    found = refusal(state.fit, record.asked)
    if not found.ruled_out:
        return asks
    name, nodes = max(found.ruled_out, key=lambda each: each[1])
    return f"{asks}, {WANTING.get(name, f'and {nodes} of {found.nodes} nodes are ruled out by {name}')}"


def misfit_words(misfit: Misfit, nodes: int) -> str:
    """What is asked for and the most there is of it, in a cluster of so many nodes; as what follows a job's name."""
    by_gpus = misfit.gpus > misfit.gpus_most
    asked = _number(misfit.gpus, "GPU") if by_gpus else _tasks(misfit)
    one = "" if misfit.level == CLUSTER else f" in one {misfit.level}"
    each = f" for each {misfit.role}" if misfit.role else ""
    if misfit.domains > 1:
        found = f"{_part(CLUSTER, misfit, nodes)} has room for {misfit.domains_most}"
        return f"asks for {asked}{one}{each}, {misfit.domains} times, and {found}"
    largest = _part(misfit.level, misfit, nodes)
    most = f"has {misfit.gpus_most}" if by_gpus else f"holds {misfit.tasks_most} of them{_beside(misfit)}"
    return f"asks for {asked}{one}{each}, and {largest} {most}"


def _tasks(misfit: Misfit) -> str:
    size = f" of {_number(misfit.task_gpus, 'GPU')}" if misfit.task_gpus else ""
    return _number(misfit.tasks, "task") + size


def _part(level: str, misfit: Misfit, nodes: int) -> str:
    """The cluster or the largest domain of a level, as far as the job may use it."""
    if misfit.among == nodes:
        return "the cluster" if level == CLUSTER else f"the largest {level} of the cluster"
    what = "what" if level == CLUSTER else f"the largest {level} that"
    return f"{what} its other rules allow of the cluster"


def _beside(misfit: Misfit) -> str:
    """What there is too little of beside GPUs."""
    return f", by {BESIDE.get(misfit.short_of, misfit.short_of)}" if misfit.short_of else ""


def _number(count: int, thing: str) -> str:
    return f"{count} {thing}" if count == 1 else f"{count} {thing}s"


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
