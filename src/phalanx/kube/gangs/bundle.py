"""Bundles: the pods that are scheduled as one job, a gang or a pod alone, and that job."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from phalanx.kube.gangs.arrangement import ANYHOW, Arrangement, eligible_label
from phalanx.kube.objects.pod import Pod
from phalanx.kube.pods.demand import PODS, Demand, demand_of
from phalanx.kube.pods.saving import saving_of
from phalanx.kube.pods.selection import YES, affinity_label, limits_of, preferred_affinities
from phalanx.placement.placement import Placement, Slot
from phalanx.workload.gang import ANYWHERE, Gang, Role, Task, Topology
from phalanx.workload.job import Job, NodePreference
from phalanx.workload.toleration import Toleration

GRACE_MAX_S = 3600
GpuTypes = Mapping[str, tuple[str, ...]]
"""The GPU types of a cluster, by the resource that they are."""


class RefusedError(ValueError):
    """Pods that cannot be scheduled, whatever else happens; the text says what about them."""


class Part(NamedTuple):
    """Pods of a gang whose nodes must have a label alike."""

    pods: tuple[Pod, ...]
    level: str


class Ask(NamedTuple):
    """What a pod asks for, and what says to which nodes it may go."""

    demand: Demand
    limits: tuple[tuple[tuple[str, str], ...], tuple[Toleration, ...]]


@dataclass(frozen=True, slots=True)
class Bundle:
    """Pods that start together. `topology` is the label that their nodes must have alike, and `parts` are those of its
    pods that have to lie nearer; `near` are labels that their nodes must have, for the sake of pods that run already. A
    gang that `is_kept` may not be evicted as long as it runs. `priority` is that of their group, where it says one.
    `preferences` are what they prefer for the sake of pods that are there; what their own node affinity prefers they
    say themselves.
    """

    id: str
    pods: tuple[Pod, ...]
    queue: str = "default"
    topology: str = ""
    parts: tuple[Part, ...] = ()
    near: tuple[tuple[str, str], ...] = ()
    arrangement: Arrangement = ANYHOW
    is_kept: bool = False
    priority: int | None = None
    preferences: tuple[NodePreference, ...] = ()

    @property
    def rank(self) -> int:
        """Its priority among other bundles."""
        return self.priority if self.priority is not None else min(pod.spec.priority for pod in self.pods)

    @property
    def levels(self) -> tuple[str, ...]:
        """The labels whose values nodes of it must have alike."""
        all_levels = (self.topology, self.arrangement.level, *(part.level for part in self.parts))
        return tuple(dict.fromkeys(level for level in all_levels if level))


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
    unknown = next((label for label, value in bundle.near if not value), "")
    if unknown:
        raise RefusedError(f"it must lie beside pods that run already, on a node that has no {unknown}")
    # Where pods differ in this, it is said of the tasks of their roles.
    alike = _is_alike(bundle.pods)
    selector, tolerations = limits_of(first) if alike else ((), ())
    roles = _roles(bundle, lambda ask: _task(ask.demand, gpu_types) if alike else _limited_task(ask, gpu_types))
    selector = (*selector, *bundle.near)
    arrangement = bundle.arrangement
    if arrangement.eligible is not None:
        selector = (*selector, (eligible_label(arrangement), YES))
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
        Gang(_roles(bundle, lambda ask: _task(ask.demand, gpu_types))),
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


def _roles(bundle: Bundle, task_of: Callable[[Ask], Task]) -> tuple[Role, ...]:
    """One role for the pods that ask for the same; and for the parts that do one, whose members are such roles."""
    roles = [Role(name, len(pods), len(pods), task_of(ask)) for name, (ask, pods) in by_role(bundle).items()]
    for name, (level, parts) in _by_part(bundle).items():
        members = tuple(
            Role(_numbered("pods", i), len(pods), len(pods), task_of(ask))
            for i, (ask, pods) in enumerate(parts[0].items())
        )
        roles.append(Role(name, len(parts), len(parts), members=members, topology=Topology(required=level)))
    return tuple(roles)


def by_role(bundle: Bundle) -> dict[str, tuple[Ask, list[Pod]]]:
    """Pods of no part that ask for the same, by the name of their role."""
    of_parts = {pod.metadata.key: None for part in bundle.parts for pod in part.pods}
    alone = tuple(pod for pod in bundle.pods if pod.metadata.key not in of_parts)
    return {_numbered("pods", i): each for i, each in enumerate(_by_ask(bundle, alone).items())}


def places_of(bundle: Bundle, placement: Placement) -> Iterator[tuple[Pod, str]]:
    """Each pod of a bundle with its node: pods of one role take its slots in order, one part after the other."""
    waiting = {role: iter(pods) for role, (_, pods) in by_role(bundle).items()}
    for name, (_, parts) in _by_part(bundle).items():
        for i, ask in enumerate(parts[0]):
            waiting[f"{name}/{_numbered('pods', i)}"] = iter([pod for part in parts for pod in part[ask]])
    for slot in placement.slots:
        yield next(waiting[slot.role]), slot.node


def slots_of(
    bundle: Bundle, nodes: Mapping[str, str], devices: Callable[[str, int], tuple[int, ...]]
) -> Iterator[Slot]:
    """The slots of a bundle whose pods lie on some nodes, by their keys. `devices` are the next so many of a node."""
    placed = [(role, ask, pod) for role, (ask, pods) in by_role(bundle).items() for pod in pods]
    for name, (_, parts) in _by_part(bundle).items():
        placed += [
            (f"{name}/{_numbered('pods', i)}", ask, pod)
            for part in parts
            for i, (ask, pods) in enumerate(part.items())
            for pod in pods
        ]
    for rank, (role, ask, pod) in enumerate(placed):
        node = nodes[pod.metadata.key]
        yield Slot(rank, role, node, devices(node, ask.demand.gpus))


def _by_part(bundle: Bundle) -> dict[str, tuple[str, list[dict[Ask, list[Pod]]]]]:
    """The parts that ask for the same, by the name of their role, with their level."""
    found: dict[tuple[str, frozenset[tuple[Ask, int]]], list[dict[Ask, list[Pod]]]] = {}
    for part in bundle.parts:
        asked = _by_ask(bundle, part.pods)
        counts = frozenset((ask, len(pods)) for ask, pods in asked.items())
        found.setdefault((part.level, counts), []).append(asked)
    return {_numbered("sub-group", i): (level, parts) for i, ((level, _), parts) in enumerate(found.items())}


def _by_ask(bundle: Bundle, pods: tuple[Pod, ...]) -> dict[Ask, list[Pod]]:
    """Pods that ask for the same, and may go to the same nodes."""
    found: dict[Ask, list[Pod]] = {}
    takes = bundle.arrangement.takes
    for pod in pods:
        try:
            demand = demand_of(pod).beside(takes.get(pod.metadata.key, ""))
        except ValueError as error:
            raise RefusedError(f"pod {pod.metadata.key}: {error}") from error
        found.setdefault(Ask(demand, limits_of(pod)), []).append(pod)
    return found


def _numbered(name: str, number: int) -> str:
    return f"{name}-{number}" if number else name


def _limited_task(ask: Ask, gpu_types: GpuTypes) -> Task:
    """A task that goes to the nodes that its pods may go to."""
    selector, tolerations = ask.limits
    return replace(_task(ask.demand, gpu_types), node_selector=selector, tolerations=tolerations)


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
