"""Adoption: pods that are bound already when the scheduler starts become jobs that run where they are.

The engine is asked for a place for each and then told where it really is, so that its journal tells the same story.
What it finds no place for counts as used by other schedulers. A gang of which only a part was bound is released whole.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace

from phalanx.kube.binder import JOB_ANNOTATION
from phalanx.kube.engine import Engine
from phalanx.kube.gangs.bundle import Bundle, GpuTypes, RefusedError, bundle_id, by_role, oldest_first, running_job_of
from phalanx.kube.gangs.groups import Family, GroupRef
from phalanx.kube.jobs.tracked import Step, Tracked
from phalanx.kube.mirror import Mirror
from phalanx.kube.objects.group import PodGroupSpec
from phalanx.kube.objects.pod import Pod
from phalanx.kube.pods.budgets import keeps_always
from phalanx.placement.placement import Placement, Slot
from phalanx.protocol.action import Start
from phalanx.protocol.event import DevicesAssigned, Done, Failed, JobCancelled, JobSubmitted

JOB_REST = re.compile(r"[0-9A-Za-z-]{1,8}(\.[0-9]{1,6})?(~[0-9]{1,6})?")
"""What comes after the name in the id of a job: part of a uid, and numbers of the attempts at the same pods."""

NO_PLACE = "it runs where there is no place for it"


class Adoption:
    """Has an engine know of every gang that is bound. `released` are pods of gangs that were bound in part."""

    def __init__(self, engine: Engine, mirror: Mirror, gpu_types: GpuTypes, now: int) -> None:
        self.released: tuple[Pod, ...] = ()
        self._engine = engine
        self._mirror = mirror
        self._gpu_types = gpu_types
        self._now = now
        self._used: dict[str, int] = {}

    def adopted(self) -> Iterator[Tracked]:
        """Adopts one gang after the other."""
        for family, pods in _bound_families(self._mirror):
            if _is_half_bound(self._mirror, family, pods):
                self.released += pods
                continue
            group = self._mirror.group(family)
            spec = group.spec if group is not None else PodGroupSpec()
            for bundle in _bundles(family, pods, spec, self._mirror.queue_by_label):
                tracked = self._adopt(bundle, family)
                if tracked is not None:
                    yield tracked

    def _adopt(self, bundle: Bundle, family: Family) -> Tracked | None:
        engine, now = self._engine, self._now
        bundle = replace(bundle, is_kept=bundle.is_kept or keeps_always(self._mirror.budgets.values(), bundle.pods))
        try:
            job = running_job_of(bundle, self._gpu_types)
        except RefusedError:
            return None
        if engine.take((JobSubmitted(job),), now):
            return None
        start = next((each for each in engine.decide(now)[0].actions if isinstance(each, Start)), None)
        if start is None:
            engine.take((JobCancelled(job.id, NO_PLACE),), now)
            return None
        slots = _real_slots(bundle, start.placement, self._used)
        refused = engine.take((DevicesAssigned(job.id, start.id.attempt, slots),), now)
        if refused or f"{job.id}/{start.id.attempt}" in engine.state.to_stop:
            engine.take((JobCancelled(job.id, NO_PLACE), Failed(start.id, NO_PLACE)), now)
            return None
        engine.take((Done(start.id),), now)
        for slot in slots:
            self._used[slot.node] = self._used.get(slot.node, 0) + len(slot.devices)
        nodes = {pod.metadata.key: pod.spec.node_name for pod in bundle.pods}
        return Tracked(bundle, family, step=Step.BOUND, attempt=start.id.attempt, nodes=nodes)


def _bound_families(mirror: Mirror) -> Iterator[tuple[Family, tuple[Pod, ...]]]:
    found: dict[Family, list[Pod]] = {}
    for pod in sorted(mirror.pods.values(), key=oldest_first):
        if mirror.is_ours(pod) and pod.spec.node_name in mirror.nodes and not pod.is_over:
            found.setdefault(mirror.family(pod), []).append(pod)
    return ((family, tuple(pods)) for family, pods in found.items())


def _is_half_bound(mirror: Mirror, family: Family, bound: tuple[Pod, ...]) -> bool:
    """Whether fewer pods are bound than start together, and the rest waits since before that: the scheduler was killed
    between two of them. A pod that came later stands in for one that ended.
    """
    group = mirror.group(family)
    if group is None or len(bound) >= group.least:
        return False
    latest = max(pod.bound_at for pod in bound)
    waiting = [
        pod
        for pod in (mirror.pods[key] for key in mirror.members(family))
        if not pod.spec.node_name and pod.metadata.creation_timestamp <= latest
    ]
    return len(bound) + len(waiting) >= group.least


def _bundles(
    family: Family, pods: tuple[Pod, ...], of: PodGroupSpec, queue_of: Callable[[Pod], str]
) -> Iterator[Bundle]:
    """The pods that were bound for one job, as they themselves say."""
    found: dict[str, list[Pod]] = {}
    for pod in pods:
        found.setdefault(_job_of(pod, family), []).append(pod)
    name = family.key if isinstance(family, GroupRef) else family
    for job, members in found.items():
        together = tuple(members)
        yield Bundle(
            job or bundle_id(name, together),
            together,
            of.queue or queue_of(together[0]),
            is_kept=of.is_kept,
            priority=of.priority,
        )


def _job_of(pod: Pod, family: Family) -> str:
    """The job that a pod was bound for; empty where the annotation is none of ours. Users may write it, too: the name
    of another's job, or one that is no name, would keep pods from being known.
    """
    job = (pod.metadata.annotations or {}).get(JOB_ANNOTATION, "")
    name, _, rest = job.partition("@")
    names = (pod.metadata.key, family.key if isinstance(family, GroupRef) else family)
    return job if name in names and JOB_REST.fullmatch(rest) else ""


def _real_slots(bundle: Bundle, planned: Placement, used: dict[str, int]) -> tuple[Slot, ...]:
    """The slots on the nodes where the pods are. Kubernetes does not say which devices they have: the next ones."""
    waiting = {role: iter(pods) for role, (_, pods) in by_role(bundle).items()}
    taken = dict(used)
    slots = []
    for slot in planned.slots:
        node = next(waiting[slot.role]).spec.node_name
        first = taken.get(node, 0)
        taken[node] = first + len(slot.devices)
        slots.append(Slot(slot.rank, slot.role, node, tuple(range(first, taken[node]))))
    return tuple(slots)
