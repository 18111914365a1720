"""Forming: which pending pods of a family start together now, and what the rest waits for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from phalanx.kube.api.quantity import quantity
from phalanx.kube.gangs.bundle import Bundle, bundle_id, oldest_first
from phalanx.kube.gangs.groups import Family, GroupRef, missing, topology_of
from phalanx.kube.objects.group import PodGroup, PodGroupSpec
from phalanx.kube.objects.pod import Pod
from phalanx.kube.pods.demand import PODS, ZERO, requests_of

TASK = "volcano.sh/task-spec"
"""The annotation, or label, that says of which task of a Volcano job a pod is."""

RAY_NODE_TYPE = "ray.io/node-type"
"""The label that says whether a pod is the head of its RayCluster or a worker."""

UNSAID = PodGroupSpec()


@dataclass(frozen=True, slots=True)
class Formed:
    """Bundles to submit, and pods that wait for something beside a decision, with what that is."""

    bundles: tuple[Bundle, ...] = ()
    waiting: tuple[tuple[Pod, str], ...] = ()


def form(family: Family, group: PodGroup | None, pods: Sequence[Pod], placed: int, is_pending: bool) -> Formed:
    """Forms bundles of pods that are pending and in none so far.

    `placed` is how many of the group have been bound and not failed; `is_pending` says that a gang of it waits already.
    """
    ready = tuple(sorted((pod for pod in pods if not pod.spec.scheduling_gates), key=_head_first))
    if not isinstance(family, GroupRef):
        return Formed(tuple(_alone(pod) for pod in ready))
    if group is None:
        return Formed(waiting=tuple((pod, missing(family, pod)) for pod in ready))
    if group.unsupported:
        line = f"{family}: phalanx does not look at spec.{group.unsupported} yet"
        return Formed(waiting=tuple((pod, line) for pod in ready))
    if is_pending:
        return Formed(waiting=tuple((pod, f"it starts after the {group.least} pods of {family}") for pod in ready))
    needed = group.least - placed
    if needed <= 0:
        return Formed(tuple(_alone(pod, group.spec) for pod in ready))
    if len(ready) < needed:
        line = f"{group.least} pods of {family} start together, and {placed + len(ready)} are there"
        return Formed(waiting=tuple((pod, line) for pod in ready))
    gang = _chosen(ready, needed, group.spec.min_task_member or {} if not placed else {})
    if len(gang) < needed:
        line = f"{family} needs more pods of one of its tasks: {_tasks_line(ready, group)}"
        return Formed(waiting=tuple((pod, line) for pod in ready))
    if not placed and (beyond := _beyond(gang, group)):
        line = f"{family}: spec.minResources asks for {beyond}; phalanx starts a gang with what its pods ask for"
        return Formed(waiting=tuple((pod, line) for pod in ready))
    rest = tuple(pod for pod in ready if pod not in gang)
    queue, priority = group.spec.queue or "default", group.spec.priority
    bundle = Bundle(bundle_id(family.key, gang), gang, queue, topology_of(group), priority=priority)
    return Formed((bundle,), tuple((pod, f"it starts after the {group.least} pods of {family}") for pod in rest))


def _head_first(pod: Pod) -> tuple[bool, str, str]:
    """The oldest first, but for the head of a RayCluster, without which its workers do nothing."""
    return (pod.metadata.labels or {}).get(RAY_NODE_TYPE) != "head", *oldest_first(pod)


def _chosen(ready: tuple[Pod, ...], needed: int, tasks: Mapping[str, int]) -> tuple[Pod, ...]:
    """The oldest pods, and of each task at least as many as it needs; none if there are not so many of a task."""
    first: dict[str, Pod] = {}
    for task, least in tasks.items():
        of_task = [pod for pod in ready if _task(pod) == task][:least]
        if len(of_task) < least:
            return ()
        first.update((pod.metadata.key, pod) for pod in of_task)
    others = [pod for pod in ready if pod.metadata.key not in first]
    return tuple(sorted((*first.values(), *others[: max(needed - len(first), 0)]), key=_head_first))


def _beyond(gang: tuple[Pod, ...], group: PodGroup) -> str:
    """What a group asks for at least that is more than its gang does; empty if that asks for as much."""
    for name, said in sorted((group.spec.min_resources or {}).items()):
        try:
            asked, wanted = sum(requests_of(pod).get(name, ZERO) for pod in gang), quantity(said)
        except ValueError as error:
            return f"{name}: {error}"
        if wanted > asked and name not in (PODS, f"count/{PODS}"):
            return f"{said} of {name}, and its {len(gang)} pods for {asked}"
    return ""


def _task(pod: Pod) -> str:
    return (pod.metadata.annotations or {}).get(TASK, "") or (pod.metadata.labels or {}).get(TASK, "")


def _tasks_line(ready: tuple[Pod, ...], group: PodGroup) -> str:
    tasks = sorted((group.spec.min_task_member or {}).items())
    return ", ".join(f"{sum(1 for pod in ready if _task(pod) == task)} of {least} of {task}" for task, least in tasks)


def _alone(pod: Pod, of: PodGroupSpec = UNSAID) -> Bundle:
    return Bundle(bundle_id(pod.metadata.key, (pod,)), (pod,), of.queue or "default", priority=of.priority)
