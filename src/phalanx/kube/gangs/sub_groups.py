"""Sub-groups of Volcano: pods of one group that start and lie together, told apart by their labels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from phalanx.kube.gangs.groups import tier_of
from phalanx.kube.objects.group import PodGroup, SubGroupPolicy
from phalanx.kube.objects.meta import Labels
from phalanx.kube.objects.pod import Pod
from phalanx.kube.pods.labels import selects


@dataclass(frozen=True, slots=True)
class Placed:
    """Pods of a group that have been bound and not failed, each with its node, and the labels of a node."""

    pods: Sequence[tuple[Pod, str]] = ()
    labels_of: Callable[[str], Labels] = field(default=lambda node: {})


class SubGroup(NamedTuple):
    """One sub-group: the number of its policy, -1 for pods of none, and the values by which it is told apart."""

    policy: int = -1
    values: tuple[str, ...] = ()


class Unit(NamedTuple):
    """Pending pods that start together or not at all, and the label whose value their nodes must have alike. Those of a
    sub-group that runs in part lie where that is, on nodes with the labels `near`.
    """

    pods: tuple[Pod, ...]
    policy: int = -1
    level: str = ""
    near: tuple[tuple[str, str], ...] = ()
    is_more: bool = False
    """Whether its sub-group runs already."""


@dataclass(frozen=True, slots=True)
class Division:
    """Units, those of the oldest pods first. `waiting` are pods that are in none, with why; `whole` is how many
    sub-groups of each policy run.
    """

    units: tuple[Unit, ...] = ()
    waiting: tuple[tuple[Pod, str], ...] = ()
    whole: Mapping[int, int] = field(default_factory=dict)


def sub_group_of(pod: Pod, policies: Sequence[SubGroupPolicy]) -> SubGroup:
    """The sub-group of a pod: by the first policy that selects it, if it has all labels by which that divides."""
    labels = pod.metadata.labels or {}
    for number, policy in enumerate(policies):
        values = tuple(labels.get(key, "") for key in policy.match_label_keys or ())
        if (policy.label_selector is None or selects(policy.label_selector, labels)) and all(values):
            return SubGroup(number, values)
    return SubGroup()


def divide(group: PodGroup, ready: Sequence[Pod], placed: Placed) -> Division:
    """Divides pending pods of a group, given the oldest first, into units."""
    policies = group.spec.sub_group_policy or ()
    if not policies:
        return Division(tuple(Unit((pod,)) for pod in ready))
    there: dict[SubGroup, list[str]] = {}
    for pod, node in placed.pods:
        there.setdefault(sub_group_of(pod, policies), []).append(node)
    whole: dict[int, int] = {}
    for key, nodes in there.items():
        if key.policy >= 0 and len(nodes) >= policies[key.policy].sub_group_size:
            whole[key.policy] = whole.get(key.policy, 0) + 1
    found: dict[SubGroup, list[Pod]] = {}
    for pod in ready:
        found.setdefault(sub_group_of(pod, policies), []).append(pod)
    units: list[Unit] = []
    waiting: list[tuple[Pod, str]] = []
    for key, pods in found.items():
        if key.policy < 0:
            units += (Unit((pod,)) for pod in pods)
            continue
        policy, nodes = policies[key.policy], there.get(key, [])
        level, needed = tier_of(policy.network_topology), policy.sub_group_size - len(nodes)
        near = ((level, placed.labels_of(nodes[0]).get(level, "")),) if nodes and level else ()
        together, rest = pods[: max(needed, 0)], pods[max(needed, 0) :]
        if len(together) < needed:
            line = f"{policy.sub_group_size} pods of {_name(key, policy)} start together, and {len(nodes) + len(pods)}"
            waiting += ((pod, f"{line} are there") for pod in pods)
            continue
        if together:
            units.append(Unit(tuple(together), key.policy, level, near, is_more=bool(nodes)))
        if needed > 0:
            line = f"it starts after the {policy.sub_group_size} pods of {_name(key, policy)}"
            waiting += ((pod, line) for pod in rest)
        else:
            units += (Unit((pod,), key.policy, level, near, is_more=True) for pod in rest)
    order = {pod.metadata.key: number for number, pod in enumerate(ready)}
    return Division(tuple(sorted(units, key=lambda unit: order[unit.pods[0].metadata.key])), tuple(waiting), whole)


def _name(sub_group: SubGroup, policy: SubGroupPolicy) -> str:
    return "sub-group " + "/".join((policy.name or f"subGroupPolicy[{sub_group.policy}]", *sub_group.values))
