"""Bundles: the pods that are scheduled as one job, a gang or a pod alone, and that job."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from phalanx.kube.gangs.arrangement import ANYHOW, Arrangement, eligible_label
from phalanx.kube.objects.pod import Pod
from phalanx.kube.pods.demand import PODS, Demand, demand_of
from phalanx.kube.pods.saving import saving_of
from phalanx.kube.pods.selection import YES, affinity_label, limits_of, preferred_affinities
from phalanx.placement.placement import Placement
from phalanx.workload.gang import ANYWHERE, Gang, Role, Task, Topology
from phalanx.workload.job import Job, NodePreference
from phalanx.workload.toleration import Toleration

GRACE_MAX_S = 3600
GpuTypes = Mapping[str, tuple[str, ...]]
"""The GPU types of a cluster, by the resource that they are."""


class RefusedError(ValueError):
    """Pods that cannot be scheduled, whatever else happens; the text says what about them."""


@dataclass(frozen=True, slots=True)
class Bundle:
    """Pods that start together. `topology` is the label that their nodes must have alike; a gang that `is_kept` may not
    be evicted as long as it runs. `priority` is that of their group, where it says one. `preferences` are what they
    prefer for the sake of pods that are there; what their own node affinity prefers they say themselves.
    """

    id: str
    pods: tuple[Pod, ...]
    queue: str = "default"
    topology: str = ""
    arrangement: Arrangement = ANYHOW
    is_kept: bool = False
    priority: int | None = None
    preferences: tuple[NodePreference, ...] = ()

    @property
    def rank(self) -> int:
        """Its priority among other bundles."""
        return self.priority if self.priority is not None else min(pod.spec.priority for pod in self.pods)


def oldest_first(pod: Pod) -> tuple[str, str]:
    """Orders pods by when they were created, then by name."""
    return pod.metadata.creation_timestamp, pod.metadata.name


def bundle_id(name: str, pods: tuple[Pod, ...]) -> str:
    """A name for a job that no other pods have: those that come after a preemption are another job."""
    return f"{name}@{pods[0].metadata.uid[:8]}"


def check_supported(pod: Pod) -> None:
    """Raises RefusedError for a pod that asks for what phalanx does not look at, and so might place wrongly."""
    if pod.spec.resource_claims:
        raise RefusedError("phalanx does not schedule pods with resourceClaims yet: use another schedulerName")
    try:
        saving_of(pod)
    except ValueError as error:
        raise RefusedError(str(error)) from error


def job_of(bundle: Bundle, gpu_types: GpuTypes) -> Job:
    """The job of a bundle. Pods that cannot be scheduled together raise RefusedError."""
    first = bundle.pods[0]
    if bundle.arrangement.refused:
        raise RefusedError(bundle.arrangement.refused)
    for pod in bundle.pods:
        check_supported(pod)
    # Where pods differ in this, it is said of the tasks of their roles.
    roles, (selector, tolerations) = roles_of(bundle, gpu_types), limits_of(first)
    if not _is_alike(bundle.pods):
        members = (pods for _, pods in by_role(bundle).values())
        roles = tuple(_limited(role, pods) for role, pods in zip(roles, members, strict=True))
        selector, tolerations = (), ()
    arrangement = bundle.arrangement
    if arrangement.eligible is not None:
        selector = (*selector, (eligible_label(bundle.id), YES))
    if arrangement.level and bundle.topology not in ("", arrangement.level):
        raise RefusedError(
            f"its pod affinity is by {arrangement.level} and the topology of its group by {bundle.topology}; phalanx "
            "needs one"
        )
    level = arrangement.level or bundle.topology
    gang = Gang(roles, Topology(required=level) if level else ANYWHERE)
    return Job(
        bundle.id,
        gang,
        name=bundle.id.rpartition("@")[0],
        queue=bundle.queue,
        user=first.metadata.namespace,
        priority=bundle.rank,
        node_selector=selector,
        tolerations=tolerations,
        grace_ms=1000 * grace_s(bundle.pods),
        preemptible=not bundle.is_kept,
        movable=False,
        preferences=(*_preferred_by(bundle.pods), *bundle.preferences),
    )


def _is_alike(pods: tuple[Pod, ...]) -> bool:
    """Whether pods may go to the same nodes."""
    limits = limits_of(pods[0])
    return all(limits_of(pod) == limits for pod in pods[1:])


def _preferred_by(pods: tuple[Pod, ...]) -> tuple[NodePreference, ...]:
    """What the node affinity of some pods prefers: what several say alike counts once."""
    found = {(affinity_label(affinity), weight): None for pod in pods for affinity, weight in preferred_affinities(pod)}
    return tuple(NodePreference(label, YES, weight) for label, weight in found)


def running_job_of(bundle: Bundle, gpu_types: GpuTypes) -> Job:
    """The job of pods that are bound already: wherever they are, they are allowed to be there."""
    return Job(
        bundle.id,
        Gang(roles_of(bundle, gpu_types)),
        name=bundle.id.rpartition("@")[0],
        queue=bundle.queue,
        user=bundle.pods[0].metadata.namespace,
        priority=bundle.rank,
        tolerations=(Toleration(),),
        grace_ms=1000 * grace_s(bundle.pods),
        preemptible=not bundle.is_kept,
        movable=False,
    )


def grace_s(pods: tuple[Pod, ...]) -> int:
    """How long the slowest of some pods may take to save their work and to end."""
    return min(max(pod.spec.termination_grace_period_seconds for pod in pods) + _save_s(pods), GRACE_MAX_S)


def _save_s(pods: tuple[Pod, ...]) -> int:
    try:
        return max((saving.within_s for saving in map(saving_of, pods) if saving is not None), default=0)
    except ValueError:
        # Of pods that run already, what cannot be read is not asked for.
        return 0


def roles_of(bundle: Bundle, gpu_types: GpuTypes) -> tuple[Role, ...]:
    """One role for the pods that ask for the same."""
    return tuple(
        Role(name, len(members), len(members), _task(demand, gpu_types))
        for name, (demand, members) in by_role(bundle).items()
    )


def _limited(role: Role, pods: list[Pod]) -> Role:
    """A role whose task goes to the nodes that its pods may go to."""
    selector, tolerations = limits_of(pods[0])
    return replace(role, task=replace(role.task, node_selector=selector, tolerations=tolerations))


def by_role(bundle: Bundle) -> dict[str, tuple[Demand, list[Pod]]]:
    """Pods that ask for the same, and may go to the same nodes, by the name of their role."""
    found: dict[tuple[Demand, object], tuple[Demand, list[Pod]]] = {}
    takes = bundle.arrangement.takes
    for pod in bundle.pods:
        try:
            demand = demand_of(pod).beside(takes.get(pod.metadata.key, ""))
        except ValueError as error:
            raise RefusedError(f"pod {pod.metadata.key}: {error}") from error
        found.setdefault((demand, limits_of(pod)), (demand, []))[1].append(pod)
    return {f"pods-{i}" if i else "pods": each for i, each in enumerate(found.values())}


def places_of(bundle: Bundle, placement: Placement) -> Iterator[tuple[Pod, str]]:
    """Each pod of a bundle with its node: pods of one role take its slots in order."""
    waiting = {role: iter(pods) for role, (_, pods) in by_role(bundle).items()}
    for slot in placement.slots:
        yield next(waiting[slot.role]), slot.node


def _task(demand: Demand, gpu_types: GpuTypes) -> Task:
    if demand.gpus and not gpu_types.get(demand.gpu_resource):
        raise RefusedError(f"no node has {demand.gpu_resource}")
    return Task(
        demand.gpus,
        # Where all GPUs are of one resource, any of them will do.
        gpu_types=gpu_types[demand.gpu_resource] if demand.gpus and len(gpu_types) > 1 else (),
        cpus_milli=demand.cpus_milli,
        memory_mb=demand.memory_mb,
        storage_gb=(*demand.others, (PODS, 1)),
    )
