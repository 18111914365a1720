"""Forming: which pending pods of a family start together now, and what the rest waits for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from phalanx.kube.api.quantity import quantity
from phalanx.kube.gangs.bundle import Bundle, Part, bundle_id, oldest_first
from phalanx.kube.gangs.groups import Family, GroupRef, are_at_odds, missing, topology_of
from phalanx.kube.gangs.sub_groups import Division, Placed, Unit, divide
from phalanx.kube.gangs.trees import GroupOfGroups, Tree, divide_tree
from phalanx.kube.objects.group import PodGroup, PodGroupSpec
from phalanx.kube.objects.pod import Pod
from phalanx.kube.pods.demand import PODS, ZERO, requests_of

TASK = "volcano.sh/task-spec"
"""The annotation, or label, that says of which task of a Volcano job a pod is."""

RAY_NODE_TYPE = "ray.io/node-type"
"""The label that says whether a pod is the head of its RayCluster or a worker."""


PRODUCT_LABEL = "nvidia.com/gpu.product"
"""The label of nodes that says which GPUs they have."""


@dataclass(frozen=True, slots=True)
class Formed:
    """Bundles to submit, and pods that wait for something beside a decision, with what that is."""

    bundles: tuple[Bundle, ...] = ()
    waiting: tuple[tuple[Pod, str], ...] = ()


def form(family: Family, group: PodGroup | None, pods: Sequence[Pod], placed: Placed, is_pending: bool) -> Formed:
    """Forms bundles of pods that are pending and in none so far. `is_pending` says that a gang of theirs waits."""
    ready = tuple(sorted((pod for pod in pods if not pod.spec.scheduling_gates), key=_head_first))
    if not isinstance(family, GroupRef):
        return Formed(tuple(_alone(pod) for pod in ready))
    if group is None:
        return Formed(waiting=tuple((pod, missing(family, pod)) for pod in ready))
    if are_at_odds(family, ready):
        return Formed(waiting=tuple((pod, f"pods of {family} say different things of it") for pod in ready))
    if isinstance(group, GroupOfGroups) and group.waits_for:
        return Formed(waiting=tuple((pod, f"{family}: {group.waits_for}") for pod in ready))
    if group.unsupported:
        line = f"{family}: phalanx does not look at spec.{group.unsupported} yet"
        return Formed(waiting=tuple((pod, line) for pod in ready))
    if is_pending:
        return Formed(waiting=tuple((pod, f"it starts after the {group.least} pods of {family}") for pod in ready))
    if isinstance(group, GroupOfGroups) and group.tree is not None:
        return _form_tree(family, group, group.tree, ready, placed)
    division = divide(group, ready, placed)
    more = tuple(_bundle(family, group, (unit,), placed) for unit in division.units if unit.is_more)
    units = [unit for unit in division.units if not unit.is_more]
    needed = group.least - len(placed.pods) - sum(len(bundle.pods) for bundle in more)
    if needed <= 0:
        return Formed((*more, *(_bundle(family, group, (unit,), placed) for unit in units)), division.waiting)
    there = len(placed.pods) + len(ready)
    if there < group.least:
        line = f"{group.least} pods of {family} start together, and {there} are there"
        return Formed(more, tuple((pod, line) for pod in _but(ready, more)))
    gang = _chosen(units, needed, division.whole, group.spec, is_first=not placed.pods)
    if not gang:
        line = f"{family} needs more pods{_lacking(ready, group, division)}"
        return Formed(more, tuple((pod, line) for pod in _but(ready, more)))
    bundle = _bundle(family, group, gang, placed)
    if not placed.pods and (beyond := _beyond(bundle.pods, group)):
        line = f"{family}: spec.minResources asks for {beyond}; phalanx starts a gang with what its pods ask for"
        return Formed(waiting=tuple((pod, line) for pod in ready))
    rest = tuple((pod, f"it starts after the {group.least} pods of {family}") for pod in _but(ready, (*more, bundle)))
    return Formed((*more, bundle), rest)


def _form_tree(family: GroupRef, group: PodGroup, tree: Tree, ready: tuple[Pod, ...], placed: Placed) -> Formed:
    """The bundles of a group of groups: one for all that must start together, or those beside what runs."""
    division = divide_tree(tree, ready, placed)
    gang = [unit for unit in division.units if not unit.is_more]
    together = (_bundle(family, group, gang, placed),) if gang else ()
    more = (_bundle(family, group, (unit,), placed) for unit in division.units if unit.is_more)
    return Formed((*more, *together), division.waiting)


def _but(pods: Iterable[Pod], bundles: Iterable[Bundle]) -> list[Pod]:
    formed = {pod.metadata.key: None for bundle in bundles for pod in bundle.pods}
    return [pod for pod in pods if pod.metadata.key not in formed]


def _bundle(family: GroupRef, group: PodGroup, units: Sequence[Unit], placed: Placed) -> Bundle:
    """The bundle of some units. Where pods of the group run already, it lies beside them."""
    pods = tuple(sorted((pod for unit in units for pod in unit.pods), key=_head_first))
    topology = topology_of(group)
    near = ((topology, placed.labels_of(placed.pods[0][1]).get(topology, "")),) if topology and placed.pods else ()
    if group.spec.gpu_product:
        near = (*near, (PRODUCT_LABEL, group.spec.gpu_product))
    name = family.key if len(pods) > 1 else pods[0].metadata.key
    return Bundle(
        bundle_id(name, pods),
        pods,
        group.spec.queue or "default",
        topology,
        parts=tuple(Part(unit.pods, unit.level) for unit in units if unit.level),
        near=(*near, *(each for unit in units for each in unit.near)),
        is_kept=group.spec.is_kept,
        priority=group.spec.priority,
    )


def _head_first(pod: Pod) -> tuple[bool, str, str]:
    """The oldest first, but for the head of a RayCluster, without which its workers do nothing."""
    return (pod.metadata.labels or {}).get(RAY_NODE_TYPE) != "head", *oldest_first(pod)


def _chosen(
    units: Sequence[Unit], needed: int, whole: Mapping[int, int], spec: PodGroupSpec, is_first: bool
) -> list[Unit]:
    """The oldest units: so many of each policy for sub-groups, with so many pods of each task as it needs, and so many
    pods in all; none if there are not enough.
    """
    chosen: dict[int, Unit] = {}

    def take(least: int, count: Callable[[Unit], int]) -> bool:
        taken = sum(map(count, chosen.values()))
        for number, unit in enumerate(units):
            if taken < least and number not in chosen and count(unit):
                chosen[number] = unit
                taken += count(unit)
        return taken >= least

    wanted: list[tuple[int, Callable[[Unit], int]]] = [
        (each.min_sub_groups - whole.get(policy, 0), partial(_is_of, policy))
        for policy, each in enumerate(spec.sub_group_policy or ())
    ]
    if is_first:
        wanted += ((least, partial(_count_of, task)) for task, least in (spec.min_task_member or {}).items())
    wanted.append((needed, lambda unit: len(unit.pods)))
    return [chosen[number] for number in sorted(chosen)] if all(take(*each) for each in wanted) else []


def _is_of(policy: int, unit: Unit) -> int:
    return int(unit.policy == policy)


def _count_of(task: str, unit: Unit) -> int:
    return sum(_task(pod) == task for pod in unit.pods)


def _lacking(ready: Sequence[Pod], group: PodGroup, division: Division) -> str:
    """What of a group is not there yet, beside pods in all."""
    if tasks := group.spec.min_task_member:
        there = {task: sum(_task(pod) == task for pod in ready) for task in tasks}
        if any(there[task] < least for task, least in tasks.items()):
            counts = ", ".join(f"{there[task]} of {least} of {task}" for task, least in sorted(tasks.items()))
            return f" of one of its tasks: {counts}"
    if division.waiting:
        return f" of its sub-groups: {division.waiting[0][1]}"
    policies = enumerate(group.spec.sub_group_policy or ())
    there_of = {number: sum(_is_of(number, unit) for unit in division.units) for number, _ in policies}
    counts = ", ".join(
        f"{there_of[number]} of {each.min_sub_groups} of {each.name}"
        for number, each in enumerate(group.spec.sub_group_policy or ())
    )
    return f" or other ones, since these are in too few sub-groups: {counts}"


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


def _alone(pod: Pod) -> Bundle:
    return Bundle(bundle_id(pod.metadata.key, (pod,)), (pod,))
