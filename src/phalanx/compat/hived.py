"""HiveD's pod interface on the cells of phalanx.

`HivedScheduler` takes pods one by one, as HiveD does from Kubernetes, and drives `placement.cells`, which thinks in
groups. Nothing is decided here: this keeps which pod sits on which seat of its group.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from phalanx.document import read_document
from phalanx.errors import PhalanxError
from phalanx.placement.cells.cells import Cells
from phalanx.placement.cells.group import Group, GroupState
from phalanx.placement.cells.request import Member, Quota, Request, Suggestion
from phalanx.placement.cells.status import ClusterStatus, GroupStatus, cluster_status, group_status
from phalanx.workload.cells import CellSite
from phalanx.workload.formats.hived import CONFIG_LIMITS, PodSpec, read_hived, read_pod

OWN_KEYS = ("name", "suggested_nodes")


@dataclass(frozen=True, slots=True)
class Result:
    """The answer to a pod: `kind` is "bind" (node and gpus), "preempt" (victims) or "wait" (reason)."""

    kind: str
    node: str | None = None
    gpus: list[int] = field(default_factory=list)
    victims: list[str] = field(default_factory=list)
    reason: str = ""
    leaf_type: str = ""


@dataclass(slots=True)
class _Pod:
    """A pod that has been seen. `seat` is its number within the group, once it is bound."""

    name: str
    spec: PodSpec
    seat: int | None = None
    is_preempting: bool = False


class HivedScheduler:
    """Schedules pods on a HiveD configuration: a path, the text of one, or a dict. All nodes start healthy.

    With `restore` the running pods of another scheduler are taken over: they keep their places, and their guarantees
    where these fit the new configuration. Whatever is refused raises ValueError with the reason and changes nothing.
    """

    def __init__(self, config: str | Path | Mapping[str, Any], restore: HivedScheduler | None = None) -> None:
        self._pods: dict[str, _Pod] = {}
        self._groups: dict[str, dict[str, _Pod]] = {}
        try:
            self.cells = Cells(_site(config))
            if restore is not None:
                self._restore(restore)
        except (PhalanxError, TypeError) as error:
            raise ValueError(str(error)) from None

    def schedule(self, pod: Mapping[str, Any]) -> Result:
        """Schedules one pod: a pod-scheduling-spec with `name` and, if the pod minds them, `suggested_nodes`.

        A bind is allocated at once. After a preempt the caller deletes the victims and asks again, or deletes the pod.
        """
        try:
            name, spec, suggestion = _read(pod)
            return self._schedule(self._known(name, spec), suggestion)
        except PhalanxError as error:
            raise ValueError(str(error)) from None

    def delete(self, name: str) -> None:
        """A pod has ended, was preempted or is no longer wanted. Nothing happens for one that has nothing."""
        pod = self._pods.pop(name, None)
        if pod is None:
            return
        del self._groups[pod.spec.group][name]
        if not self.cells.has(pod.spec.group):
            return
        held = pod.seat is not None or pod.is_preempting
        group = self.cells.group(pod.spec.group)
        if held and not any(self._holds(other, group) for other in self._members(group.name)):
            self.cells.remove(group.name)

    def set_node_health(self, node: str, healthy: bool) -> None:
        """A node has broken, or works again."""
        try:
            self.cells.set_health(node, healthy)
        except PhalanxError as error:
            raise ValueError(str(error)) from None

    def group(self, name: str) -> GroupStatus | None:
        """An affinity group that is allocated, preempting or being preempted; None for any other."""
        if not self.cells.has(name):
            return None
        group = self.cells.group(name)
        bound = tuple(pod.name for pod in self._members(name) if pod.seat is not None)
        waiting = tuple(pod.name for pod in self._members(name) if pod.is_preempting)
        return group_status(group, bound, waiting)

    def groups(self) -> tuple[str, ...]:
        """The names of all groups that have cells, by age."""
        return tuple(group.name for group in self.cells.groups())

    def virtual_cluster(self, name: str) -> ClusterStatus:
        """A virtual cluster: the cells it owns, the leaves that its opportunistic pods use, and what is bad of them."""
        try:
            return cluster_status(self.cells.estate, name)
        except PhalanxError as error:
            raise ValueError(str(error)) from None

    def virtual_clusters(self) -> tuple[str, ...]:
        """The names of the virtual clusters."""
        return tuple(self.cells.estate.clusters)

    def _known(self, name: str, spec: PodSpec) -> _Pod:
        """The pod of that name, or a new one. A pod that has nothing yet may change its mind."""
        known = self._pods.get(name)
        if known is None or known.spec == spec:
            return known or _Pod(name, spec)
        if known.seat is not None or known.is_preempting:
            raise PhalanxError(f"pod '{name}' asks for {_difference(known.spec, spec)}; delete it first")
        self.delete(name)
        return _Pod(name, spec)

    def _schedule(self, pod: _Pod, suggestion: Suggestion) -> Result:
        if pod.seat is not None:
            return self._bound(pod)
        name = pod.spec.group
        if self.cells.has(name):
            group = self.cells.group(name)
            _refuse_stranger(pod, group.request)
            if group.state is GroupState.BEING_PREEMPTED:
                self._remember(pod)
                return Result("wait", reason=f"group '{name}' is being preempted")
            if group.state is GroupState.ALLOCATED:
                return self._take_seat(pod)
            if self.cells.is_placeable(name, suggestion):
                return self._proceed(pod)
            # Its place has broken or is not suggested any more: it looks for another.
            self._forget_preemption(name)
            self.cells.remove(name)
        return self._schedule_new(pod, suggestion)

    def _schedule_new(self, pod: _Pod, suggestion: Suggestion) -> Result:
        outcome = self.cells.schedule(_request(pod.spec), suggestion)
        for cancelled in outcome.cancelled:
            self._forget_preemption(cancelled)
        self._remember(pod)
        if outcome.group is None:
            return Result("wait", reason=outcome.reason)
        return self._take_seat(pod) if not outcome.victims else self._proceed(pod)

    def _proceed(self, pod: _Pod) -> Result:
        """A pod of a preempting group: it is bound once nobody is in the way."""
        victims = self.cells.proceed(pod.spec.group)
        if not victims:
            for member in self._members(pod.spec.group):
                member.is_preempting = False
            return self._take_seat(pod)
        self._refuse_crowd(pod, [other for other in self._members(pod.spec.group) if other.is_preempting])
        pod.is_preempting = True
        self._remember(pod)
        names = (other.name for victim in victims for other in self._members(victim.name) if other.seat is not None)
        return Result("preempt", victims=sorted(names), reason=f"preempts {len(victims)} group(s)")

    def _take_seat(self, pod: _Pod) -> Result:
        group = self.cells.group(pod.spec.group)
        seated = [other for other in self._members(group.name) if other.seat is not None]
        self._refuse_crowd(pod, seated)
        taken = [other.seat for other in seated]
        pod.seat = next(i for i, seat in enumerate(group.seats) if seat.size == pod.spec.leaves and i not in taken)
        self._remember(pod)
        return self._bound(pod)

    def _refuse_crowd(self, pod: _Pod, others: Iterable[_Pod]) -> None:
        there = sum(pods for pods, leaves in pod.spec.members if leaves == pod.spec.leaves)
        same = [other.name for other in others if other.spec.leaves == pod.spec.leaves and other is not pod]
        if len(same) >= there:
            raise PhalanxError(
                f"pod '{pod.name}': group '{pod.spec.group}' has {there} pod(s) of {pod.spec.leaves} leaves, "
                f"and {', '.join(same)} are these"
            )

    def _bound(self, pod: _Pod) -> Result:
        assert pod.seat is not None
        group = self.cells.group(pod.spec.group)
        seat = group.seats[pod.seat]
        leaf = next((leaf for leaf in seat.leaves if leaf is not None), None)
        leaf_type = leaf.chain.leaf_type if leaf is not None else ""
        return Result("bind", seat.node, list(seat.indices), leaf_type=leaf_type)

    def _members(self, group: str) -> list[_Pod]:
        return list(self._groups.get(group, {}).values())

    def _remember(self, pod: _Pod) -> None:
        self._pods[pod.name] = pod
        self._groups.setdefault(pod.spec.group, {})[pod.name] = pod

    def _holds(self, pod: _Pod, group: Group) -> bool:
        return pod.is_preempting if group.state is GroupState.PREEMPTING else pod.seat is not None

    def _forget_preemption(self, group: str) -> None:
        for pod in self._members(group):
            pod.is_preempting = False

    def _restore(self, old: HivedScheduler) -> None:
        self.cells.adopt(old.cells)
        for name, pod in old._pods.items():
            self._remember(_Pod(name, pod.spec, pod.seat))


def _site(config: str | Path | Mapping[str, Any]) -> CellSite:
    if isinstance(config, Mapping):
        return read_hived(json.dumps(config), "config")
    if isinstance(config, Path) or not ("\n" in config or config.lstrip().startswith("{")):
        try:
            return read_hived(Path(config).read_text(encoding="utf-8"), str(config))
        except OSError as error:
            raise PhalanxError(f"{config}: {error.strerror}") from None
    return read_hived(config, "config")


def _read(pod: Mapping[str, Any]) -> tuple[str, PodSpec, Suggestion]:
    name = pod.get("name")
    if not isinstance(name, str) or not name:
        raise PhalanxError(f"a pod needs a name, got {name!r}")
    spec = {key: value for key, value in pod.items() if key not in OWN_KEYS and value is not None}
    try:
        text = json.dumps(spec)
    except TypeError as error:
        raise PhalanxError(f"pod '{name}': {error}") from None
    nodes = pod.get("suggested_nodes")
    suggestion = Suggestion() if nodes is None else Suggestion(frozenset(nodes), are_all=False)
    return name, read_pod(read_document(text, f"pod '{name}'", CONFIG_LIMITS), name), suggestion


def _request(spec: PodSpec) -> Request:
    return Request(
        spec.group,
        spec.virtual_cluster,
        tuple(Member(pods, leaves) for pods, leaves in spec.members),
        spec.priority,
        spec.leaf_type,
        spec.pinned_id,
        spec.lazy_preemption,
        spec.ignores_suggestions,
        Quota(*spec.quota) if spec.quota is not None else None,
    )


def _refuse_stranger(pod: _Pod, request: Request) -> None:
    """A pod asks for what its group was placed for, and for nothing else."""
    asked = _request(pod.spec)
    for name in Request.__dataclass_fields__:
        ours, theirs = getattr(request, name), getattr(asked, name)
        if ours != theirs:
            raise PhalanxError(
                f"pod '{pod.name}' is of group '{request.group}', which has {name} {_shown(ours)}, "
                f"and asks for {_shown(theirs)}"
            )


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        return " + ".join(f"{member.pods} × {member.leaves}" for member in value)
    return repr(value)


def _difference(old: PodSpec, new: PodSpec) -> str:
    names = [name for name in PodSpec.__dataclass_fields__ if getattr(old, name) != getattr(new, name)]
    return ", ".join(f"{name} {getattr(new, name)!r} and asked for {getattr(old, name)!r} before" for name in names)
