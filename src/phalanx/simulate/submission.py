"""Submissions: jobs of a trace as jobs of this cluster."""

from __future__ import annotations

from dataclasses import replace

from phalanx.cluster.capacity import MB_PER_GB
from phalanx.cluster.cluster import Cluster, Node, commonest_type
from phalanx.cluster.queues import unknown_queue
from phalanx.document.error import brief
from phalanx.engine.quota.quotas import Quotas
from phalanx.simulate.trace import Trace, TraceJob
from phalanx.simulate.traces.error import TraceError
from phalanx.simulate.traces.formats.gpu_names import catalogue_name
from phalanx.simulate.world.speed import GPUS_LABEL, MODEL_LABEL
from phalanx.simulate.world.training import ADAPTIVE
from phalanx.workload.footprint import LOW_LABEL, STEP_LABEL
from phalanx.workload.gang import Gang, Role, Task
from phalanx.workload.job import Checkpointing, Job, Kind
from phalanx.workload.share import fraction_ask
from phalanx.workload.throughputs import Throughputs
from phalanx.workload.tier import TIER_LABEL

POOL = "pool"
"""The one node of a cluster that is taken as a number of GPUs."""

NOWHERE = "none of this cluster"
"""The type of a job that cannot run on any type there is."""


def as_pool(cluster: Cluster) -> Cluster:
    """The cluster as one number of GPUs, as research simulators take it."""
    return Cluster((Node(POOL, (), cluster.gpus),), policy=cluster.policy, name=cluster.name, queues=cluster.queues)


def is_pool(cluster: Cluster) -> bool:
    """Whether a cluster is taken as one number of GPUs."""
    return len(cluster.nodes) == 1 and cluster.nodes[0].name == POOL


def check_queues(cluster: Cluster, trace: Trace) -> None:
    """Raises TraceError if jobs are of queues that the cluster lacks: a run would end at the first of them, maybe after
    hours.
    """
    queues = Quotas(cluster)
    of_queue: dict[str, list[str]] = {}
    for job in trace.jobs:
        if queues and job.queue not in queues.accounts:
            of_queue.setdefault(job.queue, []).append(job.id)
    if of_queue:
        queue, jobs = next(iter(of_queue.items()))
        count = sum(map(len, of_queue.values()))
        others = f"; {count:,} of {len(trace.jobs):,} jobs are of such queues" if count > 1 else ""
        raise TraceError(
            trace.name,
            f"{unknown_queue(queue, f'job {jobs[0]}', queues.leaves())}{others}. Expected the queues of the cluster "
            f"{cluster.name or 'file'}: add {brief(', '.join(of_queue))} to its `queues:`, or leave that section out",
        )


class Submitter:
    """Turns jobs of a trace into jobs of one cluster.

    A job that does not say how many of its GPUs lie on a node fills nodes of the largest kind it may use, as people
    ask for them. Its tasks may be divided by policies that do so.
    """

    def __init__(self, cluster: Cluster, throughputs: Throughputs | None = None) -> None:
        self._throughputs = throughputs
        self._pool = is_pool(cluster)
        self._has_cpus = any(node.cpus_milli for node in cluster.nodes)
        self._has_memory = any(node.memory_mb for node in cluster.nodes)
        self._has_gpu_memory = any(node.gpu_memory_gb for node in cluster.nodes)
        self._largest = {"": max((node.gpus for node in cluster.nodes), default=0)}
        for node in cluster.nodes:
            self._largest[node.gpu_type] = max(self._largest.get(node.gpu_type, 0), node.gpus)
        offered = (node.gpu_type for node in cluster.nodes if node.gpus)
        self._offered = tuple(dict.fromkeys((commonest_type(cluster), *offered)))
        self._called = {catalogue_name(name): name for name in reversed(self._largest)}
        self._gangs: dict[tuple[object, ...], Gang] = {}

    def job(self, traced: TraceJob) -> Job:
        """The job as it would be submitted here."""
        return Job(
            traced.id,
            self.gang(traced),
            kind=traced.kind,
            queue=traced.queue,
            user=traced.user,
            priority=traced.priority,
            duration_ms=_said_ms(traced),
            deadline_ms=traced.deadline_ms,
            checkpoint=Checkpointing(0, traced.checkpoint_cost_ms, saves=True),
            labels=_labels(traced),
        )

    def gang(self, traced: TraceJob) -> Gang:
        """Gangs are few and jobs are many: those of one shape share one."""
        key = (
            *(traced.gpus, traced.gpus_per_node, traced.gpu_type, traced.min_gpus, traced.max_gpus),
            *(traced.gpu_milli, traced.cpus_milli, traced.memory_mb, traced.gpu_memory_mb),
            traced.model if self._throughputs is not None else "",
        )
        gang = self._gangs.get(key)
        if gang is None:
            gang = self._gangs[key] = self._new_gang(traced)
        return gang

    def _new_gang(self, traced: TraceJob) -> Gang:
        types = self._types(traced) if not self._pool else ()
        least, most = traced.min_gpus or traced.gpus, traced.max_gpus or traced.gpus
        if least != most:
            return Gang((Role("worker", least, most, Task(1, types, self._gpu_memory_gb(traced))),))
        if self._pool:
            return Gang((Role("worker", task=Task(traced.gpus)),))
        if traced.gpu_milli:
            # Parts of several devices are asked for one by one.
            task = self._with_host(Task(1, types, share=fraction_ask(traced.gpu_milli)), traced)
            return Gang((Role("worker", traced.gpus, traced.gpus, task),))
        largest = max((self._largest.get(name, 0) for name in types or ("",)), default=0)
        each = min(traced.gpus_per_node or largest or traced.gpus, traced.gpus)
        task = self._with_host(Task(each, types, divisible=True), traced)
        full, rest = divmod(traced.gpus, each)
        roles = [Role("worker", full, full, task)]
        if rest:
            roles.append(Role("rest", task=replace(task, gpus=rest)))
        return Gang(tuple(roles))

    def _types(self, traced: TraceJob) -> tuple[str, ...]:
        """The types a job asks for, each as the cluster calls it, if it has the same under another name."""
        names = traced.gpu_type.split("|") if traced.gpu_type else ()
        asked = tuple(dict.fromkeys(map(self._as_called, names)))
        return asked if self._throughputs is None else self._able(traced, asked, self._throughputs)

    def _able(self, traced: TraceJob, asked: tuple[str, ...], throughputs: Throughputs) -> tuple[str, ...]:
        """Without types on which its model was found unable to run; if none is left, it fits nowhere.

        A job that names no types is measured on those that there are most of, so these come first.
        """
        unable = throughputs.unable(traced.model, traced.gpus, asked or self._offered)
        if not unable:
            return asked
        return tuple(name for name in asked or self._offered if name not in unable) or (NOWHERE,)

    def _as_called(self, name: str) -> str:
        return name if name in self._largest else self._called.get(catalogue_name(name), name)

    def _with_host(self, task: Task, traced: TraceJob) -> Task:
        """With its CPUs and memory, where the cluster says what it has of them."""
        return replace(
            task,
            gpu_memory_gb=self._gpu_memory_gb(traced),
            cpus_milli=traced.cpus_milli if self._has_cpus else 0,
            memory_mb=traced.memory_mb if self._has_memory else 0,
        )

    def _gpu_memory_gb(self, traced: TraceJob) -> float:
        return traced.gpu_memory_mb / MB_PER_GB if self._has_gpu_memory else 0.0


def _said_ms(traced: TraceJob) -> int | None:
    """How long a job says it takes. A service runs until it is stopped."""
    if traced.kind is Kind.SERVICE:
        return None
    return traced.duration_ms if traced.estimate_ms is None else traced.estimate_ms


def _labels(traced: TraceJob) -> tuple[tuple[str, str], ...]:
    """Model, tier, whether its batch adapts, what it says of its steps, and of an elastic job with how many GPUs its
    duration was measured.
    """
    model = ((MODEL_LABEL, traced.model),) if traced.model else ()
    elastic = (traced.min_gpus or traced.gpus) != (traced.max_gpus or traced.gpus)
    tier = ((TIER_LABEL, traced.tier),) if traced.tier else ()
    batch = (ADAPTIVE,) if traced.batch == "adaptive" else ()
    step = ((STEP_LABEL, str(traced.step_ms)),) if traced.step_ms else ()
    low = ((LOW_LABEL, str(traced.gpu_memory_low_mb / MB_PER_GB)),) if traced.gpu_memory_low_mb else ()
    return (*model, *tier, *batch, *step, *low, *(((GPUS_LABEL, str(traced.gpus)),) if elastic else ()))
