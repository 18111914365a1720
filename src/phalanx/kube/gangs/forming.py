"""Forming: which pending pods of a family start together now, and what the rest waits for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from phalanx.kube.gangs.bundle import Bundle, bundle_id, oldest_first
from phalanx.kube.gangs.groups import Family, GroupRef, topology_of
from phalanx.kube.objects.group import PodGroup
from phalanx.kube.objects.pod import Pod


@dataclass(frozen=True, slots=True)
class Formed:
    """Bundles to submit, and pods that wait for something beside a decision, with what that is."""

    bundles: tuple[Bundle, ...] = ()
    waiting: tuple[tuple[Pod, str], ...] = ()


def form(family: Family, group: PodGroup | None, pods: Sequence[Pod], placed: int, is_pending: bool) -> Formed:
    """Forms bundles of pods that are pending and in none so far.

    `placed` is how many of the group have been bound and not failed; `is_pending` says that a gang of it waits already.
    """
    ready = tuple(sorted((pod for pod in pods if not pod.spec.scheduling_gates), key=oldest_first))
    if not isinstance(family, GroupRef):
        return Formed(tuple(_alone(pod) for pod in ready))
    if group is None:
        return Formed(waiting=tuple((pod, f"{family} is not there yet") for pod in ready))
    if is_pending:
        return Formed(waiting=tuple((pod, f"it starts after the {group.least} pods of {family}") for pod in ready))
    needed = group.least - placed
    if needed <= 0:
        return Formed(tuple(_alone(pod, group.spec.queue) for pod in ready))
    if len(ready) < needed:
        line = f"{group.least} pods of {family} start together, and {placed + len(ready)} are there"
        return Formed(waiting=tuple((pod, line) for pod in ready))
    gang, rest = ready[:needed], ready[needed:]
    bundle = Bundle(bundle_id(family.key, gang), gang, group.spec.queue or "default", topology_of(group))
    return Formed((bundle,), tuple((pod, f"it starts after the {group.least} pods of {family}") for pod in rest))


def _alone(pod: Pod, queue: str = "") -> Bundle:
    return Bundle(bundle_id(pod.metadata.key, (pod,)), (pod,), queue or "default")
