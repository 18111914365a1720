"""Real traces in a suite: files that a user has downloaded, in place of workloads that are made like them."""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass, field, replace
from random import Random

from phalanx.cluster.capacity import Capacity
from phalanx.cluster.cluster import Cluster, Node
from phalanx.cluster.topology import Topology
from phalanx.placement.fit import Fit
from phalanx.placement.place import ever
from phalanx.simulate.studies.suite import SuiteError, Workload, racks
from phalanx.simulate.submission import Submitter
from phalanx.simulate.trace import Trace, TraceJob
from phalanx.simulate.traces.load import at_load, moved, offered_load
from phalanx.simulate.traces.open import read_trace, read_trace_cluster

PHILLY_NODES = 4
OPENB_GPUS = 48
"""About as many GPUs as are taken of a list of nodes: so few that some hundred jobs keep them full."""
POD_MAX_MS = 7 * 86_400_000
"""The longest of openb's pods: what ran when the trace was taken was ended then, after months, and one such pod would
be most of the load of some hundred.
"""


@dataclass(frozen=True, slots=True)
class Sampled:
    """Some jobs of a trace, different ones for every seed. `digest` tells the trace from all other traces."""

    jobs: int
    digest: str
    trace: Trace = field(repr=False)

    def at(self, gpus: int, load: float | None, seed: int, first_seed: int) -> Trace:
        """Jobs drawn evenly from the whole trace, in their order, from the first submission on, at the load."""
        numbers = sorted(Random(seed).sample(range(len(self.trace.jobs)), self.jobs))
        drawn = [self.trace.jobs[number] for number in numbers]
        first_ms = drawn[0].submit_ms
        trace = replace(self.trace, jobs=tuple(moved(job, job.submit_ms - first_ms) for job in drawn))
        return trace if load is None else at_load(trace, gpus, load)

    def load(self, gpus: int) -> float:
        """The offered load of the whole trace on so many GPUs."""
        return offered_load(self.trace, gpus)


def philly(path: str, jobs: int, skip_bad_rows: bool = False) -> Workload:
    """The workload `philly` on a trace of Philly, or any other that is given for it."""
    cluster = racks(PHILLY_NODES)
    trace = read_trace(path, skip_bad_rows)
    return Workload("philly", _about(trace, jobs), cluster, _sampled(trace, jobs, cluster, path))


def openb(pods: str, nodes: str, jobs: int, skip_bad_rows: bool = False) -> Workload:
    """The workload `openb` on lists of pods and nodes."""
    cluster = fewer(read_trace_cluster(nodes))
    trace = read_trace(pods, skip_bad_rows)
    shorter = tuple(replace(job, duration_ms=min(job.duration_ms, POD_MAX_MS)) for job in trace.jobs)
    trace = replace(trace, jobs=shorter)
    return Workload("openb", _about(trace, jobs), cluster, _sampled(trace, jobs, cluster, pods))


def halves(workload: Workload) -> tuple[Workload, Workload]:
    """The earlier half of the jobs of a recorded workload, and the later."""
    source = workload.source
    if not isinstance(source, Sampled):
        raise SuiteError(f"{workload.name}: it is made from seeds; only a recorded trace can be cut in two")
    jobs = source.trace.jobs
    middle = len(jobs) // 2
    if middle < source.jobs:
        raise SuiteError(
            f"{workload.name}: expected at least {2 * source.jobs:,} jobs, {source.jobs:,} to draw from in each half, "
            f"and got {len(jobs):,}; take fewer with --jobs"
        )
    earlier, later = (
        replace(source, digest=_digest(part), trace=replace(source.trace, jobs=part))
        for part in (jobs[:middle], jobs[middle:])
    )
    return (
        replace(workload, about=f"{workload.about}, of its earlier half", source=earlier),
        replace(workload, about=f"{workload.about}, of its later half", source=later),
    )


def fewer(cluster: Cluster, gpus: int = OPENB_GPUS) -> Cluster:
    """A small cluster like a large one: of every GPU model its commonest kind of node, by its share of all GPUs.

    Every model has one node at least.
    """
    here = [node for node in cluster.nodes if node.gpus]
    of_model: Counter[str] = Counter()
    for node in here:
        of_model[node.gpu_type] += node.gpus
    chosen: list[Node] = []
    for model, count in of_model.items():
        kinds = Counter(_kind(node) for node in here if node.gpu_type == model)
        kind, _ = kinds.most_common(1)[0]
        alike = [node for node in here if node.gpu_type == model and _kind(node) == kind]
        wanted = round(gpus * count / cluster.gpus / alike[0].gpus)
        chosen += alike[: max(wanted, 1)]
    return replace(cluster, nodes=tuple(chosen), name=f"{cluster.name}-{sum(node.gpus for node in chosen)}-gpus")


def _kind(node: Node) -> tuple[int, int, int]:
    return (node.gpus, node.cpus_milli, node.memory_mb)


def _about(trace: Trace, jobs: int) -> str:
    return f"{jobs:,} jobs of the real trace {trace.name}, drawn by the seed"


def _sampled(trace: Trace, jobs: int, cluster: Cluster, path: str) -> Sampled:
    fitting = _fitting(trace, cluster)
    if len(fitting) < jobs:
        found = f"{len(fitting):,} of its {len(trace.jobs):,} jobs could ever run on {cluster.name}"
        raise SuiteError(f"{path}: expected at least {jobs:,} jobs to draw from, and {found}; take fewer with --jobs")
    left_out = len(trace.jobs) - len(fitting)
    told = (f"jobs that {cluster.name} could never hold, left out: {left_out:,}",) if left_out else ()
    return Sampled(jobs, _digest(fitting), replace(trace, jobs=fitting, notes=(*trace.notes, *told)))


def _digest(jobs: tuple[TraceJob, ...]) -> str:
    return hashlib.sha256("\n".join(map(repr, jobs)).encode()).hexdigest()[:16]


def _fitting(trace: Trace, cluster: Cluster) -> tuple[TraceJob, ...]:
    """Jobs that could run if the cluster were idle."""
    fit, submitter = Fit(Capacity(Topology(cluster))), Submitter(cluster)
    return tuple(job for job in trace.jobs if ever(fit, submitter.job(job)))
