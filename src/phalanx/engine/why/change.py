"""Changes: what could be otherwise so that a pending job would start, each with its exact new values."""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass, replace
from enum import StrEnum

from phalanx.cluster.cluster import Cluster
from phalanx.cluster.queues import Queue, Quota
from phalanx.workload.gang import Gang, Role, Task, Topology
from phalanx.workload.job import Array, Job
from phalanx.workload.parallel import ParallelPlan
from phalanx.workload.rewrite import rewritten
from phalanx.workload.share import ShareAsk, ShareKind
from phalanx.workload.toleration import Toleration

BUDGET_GPU_MS = 1 << 50
"""A budget that is more than any queue has used."""


class ChangeKind(StrEnum):
    """What is changed, from what costs the pending job least to what other jobs would have to do for it."""

    RELEASE = "release"
    BEGIN = "begin"
    RETRY = "retry"
    DEPENDENCY = "dependency"
    ARRAY_LIMIT = "array_limit"
    PREEMPTIBLE = "preemptible"
    DURATION = "duration"
    CPUS = "cpus"
    MEMORY = "memory"
    NICS = "nics"
    AMOUNTS = "amounts"
    TOPOLOGY = "topology"
    SELECTOR = "selector"
    TOLERATION = "toleration"
    GPU_TYPE = "gpu_type"
    GPU_MEMORY = "gpu_memory"
    REPLICAS = "replicas"
    GPUS = "gpus"
    SHARE = "share"
    SHARE_MEMORY = "share_memory"
    PASS = "pass"
    MAINTENANCE = "maintenance"
    LIMIT = "limit"
    GUARANTEE = "guarantee"
    QUOTA = "quota"
    BUDGET = "budget"
    MIN_RUN = "min_run"
    END = "end"
    REPAIR = "repair"


@dataclass(frozen=True, slots=True)
class Other:
    """Another job, as far as it concerns the pending one. `job` is empty for users that may not know it."""

    job: str
    queue: str
    gpus: int
    expected_end_ms: int | None = None
    attempt: int = 0

    def seen_from(self, visible_queues: Container[str]) -> Other:
        """The same for a user that may know the jobs of some queues only."""
        return self if self.queue in visible_queues else replace(self, job="", attempt=0)


@dataclass(frozen=True, slots=True)
class Change:
    """One thing that is otherwise.

    `amount` is the new number of what `kind` counts (replicas, GPUs a task, thousandths of CPUs, MB, NICs, thousandths
    of a GB of GPU memory, thousandths or percent of a GPU, MB of it, milliseconds, members of an array), `amount_was`
    the present one; of CPUs and memory both are the most that a task may have, requested or not. `names` are what the
    job asks for instead of `names_was`: a level or GPU types; or jobs it does not wait for, labels it drops, taints it
    tolerates, nodes that come back, maintenance that is put off, queues that have no limit, that lend what they are
    guaranteed, whose budgets are more than the GPU time (`amount`, in milliseconds) that they have had, or that let
    their jobs be stopped so much sooner than after their least run (`amount`: that is over then). `role` is the path of
    the role that changes. `ends` are the jobs that would have to be gone. `gpus` is what the job takes then, where that
    is less.
    """

    kind: ChangeKind
    amount: int = 0
    amount_was: int = 0
    names: tuple[str, ...] = ()
    names_was: tuple[str, ...] = ()
    role: str = ""
    ends: tuple[Other, ...] = ()
    gpus: int = 0


def changed(job: Job, change: Change) -> Job:
    """The job as it would have to be asked for; as it is, where the change is not one of the job."""
    rewrite = _REWRITES.get(change.kind)
    return job if rewrite is None else _with_plan(rewrite(job, change))


def altered(cluster: Cluster, change: Change) -> Cluster:
    """The cluster as it would have to be described; as it is, where the change is not one of the cluster."""
    if change.kind is ChangeKind.MAINTENANCE:
        kept = tuple(window for window in cluster.maintenance if window.name not in change.names)
        return replace(cluster, maintenance=kept)
    allot = _ALLOTMENTS.get(change.kind)
    if allot is None:
        return cluster
    return replace(cluster, queues=tuple(allot(queue, change) for queue in cluster.queues))


def _without_limit(queue: Queue, change: Change) -> Queue:
    return replace(queue, limit=Quota()) if queue.path in change.names else queue


def _lending_all(queue: Queue, change: Change) -> Queue:
    """A queue that lends what it is guaranteed, as do those inside: they are guaranteed no more than what is around."""
    lends = any(f"{queue.path}/".startswith(f"{name}/") for name in change.names)
    return replace(queue, guaranteed=Quota(0, 0, 0)) if lends else queue


def _with_more_budget(queue: Queue, change: Change) -> Queue:
    return replace(queue, budget_gpu_ms=BUDGET_GPU_MS) if queue.path in change.names else queue


def _with_shorter_runs(queue: Queue, change: Change) -> Queue:
    """A queue that lets its jobs, and those of the queues inside, be stopped so much sooner, for any job."""
    if not any(f"{name}/".startswith(f"{queue.path}/") for name in change.names):
        return queue
    reclaim_ms = queue.min_run_reclaim_ms
    return replace(
        queue,
        min_run_ms=max(queue.min_run_ms - change.amount, 0),
        min_run_reclaim_ms=None if reclaim_ms is None else max(reclaim_ms - change.amount, 0),
    )


def _with_plan(job: Job) -> Job:
    """A parallel plan spans all GPUs of its gang: with fewer of them it has fewer replicas of the model."""
    plan = job.parallel
    if plan is None or job.gang.elastic or plan.world_size == job.gang.gpus_max:
        return job
    return replace(job, parallel=ParallelPlan(plan.tp, plan.pp, job.gang.gpus_max // (plan.tp * plan.pp)))


def _begin(job: Job, change: Change) -> Job:
    return replace(job, begin_ms=None)


def _dependency(job: Job, change: Change) -> Job:
    return replace(job, after=tuple(each for each in job.after if each.job not in change.names))


def _array_limit(job: Job, change: Change) -> Job:
    return replace(job, array=Array(job.array.indices, change.amount) if job.array is not None else None)


def _preemptible(job: Job, change: Change) -> Job:
    return replace(job, preemptible=True)


def _duration(job: Job, change: Change) -> Job:
    return replace(job, duration_ms=change.amount)


def _cpus(job: Job, change: Change) -> Job:
    def fewer(task: Task) -> Task:
        most = change.amount
        return replace(task, cpus_milli=min(task.cpus_milli, most), cpus_limit_milli=min(task.cpus_limit_milli, most))

    return rewritten(job, fewer, change.role)


def _memory(job: Job, change: Change) -> Job:
    def less(task: Task) -> Task:
        most = change.amount
        return replace(task, memory_mb=min(task.memory_mb, most), memory_limit_mb=min(task.memory_limit_mb, most))

    return rewritten(job, less, change.role)


def _nics(job: Job, change: Change) -> Job:
    return rewritten(job, lambda task: replace(task, nics=change.amount), change.role)


def _amounts(job: Job, change: Change) -> Job:
    def bare(task: Task) -> Task:
        return replace(task, cpus_milli=0, cpus_limit_milli=0, memory_mb=0, memory_limit_mb=0, nics=0, storage_gb=())

    return rewritten(job, bare)


def _topology(job: Job, change: Change) -> Job:
    """Every rule that names one of the old levels names the new one; an empty name is no rule."""
    (level,) = change.names

    def loosened(topology: Topology) -> Topology:
        return replace(topology, required=level) if topology.required in change.names_was else topology

    def walk(role: Role) -> Role:
        members = tuple(walk(member) for member in role.members)
        return replace(role, topology=loosened(role.topology), members=members)

    gang = job.gang
    return replace(job, gang=Gang(tuple(walk(role) for role in gang.roles), loosened(gang.topology)))


def _selector(job: Job, change: Change) -> Job:
    kept = tuple(label for label in job.node_selector if "=".join(label) not in change.names)
    return replace(job, node_selector=kept)


def _toleration(job: Job, change: Change) -> Job:
    more = tuple(Toleration(*name.partition("=")[::2]) for name in change.names)
    return replace(job, tolerations=(*job.tolerations, *more))


def _gpu_type(job: Job, change: Change) -> Job:
    return rewritten(
        job, lambda task: replace(task, gpu_types=change.names) if task.gpu_types == change.names_was else task
    )


def _gpu_memory(job: Job, change: Change) -> Job:
    return rewritten(job, lambda task: replace(task, gpu_memory_gb=change.amount / 1000), change.role)


def _replicas(job: Job, change: Change) -> Job:
    def fewer(role: Role) -> Role:
        if role.name != change.role:
            return role
        fixed = role.replicas_min == role.replicas_max
        return replace(role, replicas_min=change.amount, replicas_max=change.amount if fixed else role.replicas_max)

    return replace(job, gang=replace(job.gang, roles=tuple(fewer(role) for role in job.gang.roles)))


def _gpus(job: Job, change: Change) -> Job:
    return rewritten(job, lambda task: replace(task, gpus=change.amount), change.role)


def _share(job: Job, change: Change) -> Job:
    def part(task: Task) -> Task:
        memory_mb = task.share.memory_mb if task.share is not None else None
        return replace(task, share=ShareAsk(ShareKind(change.names[0]), change.amount, memory_mb=memory_mb))

    return rewritten(job, part, change.role)


def _share_memory(job: Job, change: Change) -> Job:
    def less(task: Task) -> Task:
        return replace(task, share=replace(task.share, memory_mb=change.amount) if task.share is not None else None)

    return rewritten(job, less, change.role)


_REWRITES: dict[ChangeKind, Callable[[Job, Change], Job]] = {
    ChangeKind.BEGIN: _begin,
    ChangeKind.DEPENDENCY: _dependency,
    ChangeKind.ARRAY_LIMIT: _array_limit,
    ChangeKind.PREEMPTIBLE: _preemptible,
    ChangeKind.DURATION: _duration,
    ChangeKind.CPUS: _cpus,
    ChangeKind.MEMORY: _memory,
    ChangeKind.NICS: _nics,
    ChangeKind.AMOUNTS: _amounts,
    ChangeKind.TOPOLOGY: _topology,
    ChangeKind.SELECTOR: _selector,
    ChangeKind.TOLERATION: _toleration,
    ChangeKind.GPU_TYPE: _gpu_type,
    ChangeKind.GPU_MEMORY: _gpu_memory,
    ChangeKind.REPLICAS: _replicas,
    ChangeKind.GPUS: _gpus,
    ChangeKind.SHARE: _share,
    ChangeKind.SHARE_MEMORY: _share_memory,
}
"""What changes the job itself. The rest changes what is around it."""

_ALLOTMENTS: dict[ChangeKind, Callable[[Queue, Change], Queue]] = {
    ChangeKind.LIMIT: _without_limit,
    ChangeKind.GUARANTEE: _lending_all,
    ChangeKind.BUDGET: _with_more_budget,
    ChangeKind.MIN_RUN: _with_shorter_runs,
}

CLUSTER_CHANGES = (ChangeKind.MAINTENANCE, *_ALLOTMENTS)
"""What changes the description of the cluster."""
