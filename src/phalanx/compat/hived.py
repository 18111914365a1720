"""HiveD's pod interface on the engine of phalanx.

`HivedScheduler` takes pods one by one, as HiveD does from Kubernetes. A group of pods is a job, an ask is a turn of the
engine in which no other job is pending, and the caller is the world: it deletes the pods that the engine stops. Nothing
is decided here: this keeps which pod sits on which seat of its group.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from phalanx.cluster.cell_cluster import cluster_of
from phalanx.cluster.cells import CellSite
from phalanx.cluster.cluster import Cluster, Health
from phalanx.cluster.formats.hived import CONFIG_LIMITS, read_hived
from phalanx.document import read_document
from phalanx.engine.fold import snapshot
from phalanx.engine.state.cells import Tenancy
from phalanx.engine.state.journal import Count
from phalanx.engine.state.state import State
from phalanx.engine.turn import record, turn
from phalanx.errors import PhalanxError
from phalanx.placement.cells.ask import LAZY_LABEL, PINNED_LABEL, QUOTA_LABEL, SUGGESTED_LABEL
from phalanx.placement.cells.cells import Cells
from phalanx.placement.cells.group import Group, GroupState
from phalanx.placement.cells.preempt import users_of
from phalanx.placement.cells.request import Member, Quota, Request, Suggestion
from phalanx.placement.cells.status import ClusterStatus, GroupStatus, cluster_status, group_status
from phalanx.protocol.action import Start
from phalanx.protocol.event import (
    AttemptEnded,
    ClusterChanged,
    ClusterDefined,
    Done,
    Event,
    JobCancelled,
    JobChanged,
    JobHeld,
    JobReleased,
    JobSubmitted,
    NodeHealthChanged,
    Outcome,
)
from phalanx.workload.formats.hived import PodSpec, read_pod
from phalanx.workload.gang import Gang, Role, Task
from phalanx.workload.job import Job

OWN_KEYS = ("name", "suggested_nodes")

POLICY = "fifo:skip=true"
"""The order does not matter: never more than one group is pending."""

NOW_MS = 0
"""HiveD knows no time, and neither do the turns that are taken for it."""


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


class World:
    """The engine as the pods of HiveD see it: groups are jobs, and one is asked for at a time.

    A job stays held but for its own ask, so that no decision gives anything to a group that has not asked for it.
    """

    def __init__(self, cluster: Cluster, old: World | None = None) -> None:
        if old is None:
            self.state, self.journal = State(), Count()
            self._jobs: dict[str, str] = {}
            self._tell(ClusterDefined(cluster, POLICY))
        else:
            self.state, self.journal = snapshot.load(snapshot.dump(old.state)), Count(old.journal.length)
            self._jobs = dict(old._jobs)
            self._tell(ClusterChanged(cluster))

    @property
    def tenancy(self) -> Tenancy:
        assert self.state.cells is not None, "a HiveD configuration has cells"
        return self.state.cells

    def group(self, name: str) -> Group | None:
        """The cells of a group; None if it has none."""
        key = self._key(name)
        return self.tenancy.cells.group(key) if key and self.tenancy.cells.has(key) else None

    def name_of(self, key: str) -> str:
        """The group of an attempt; what is no attempt is its own name."""
        job = key.rpartition("/")[0]
        return job.partition(":")[2] if job in self.state.jobs else key

    def ask(self, name: str, job: Job) -> None:
        """Has the engine decide on a group that has nothing yet."""
        known = self._jobs.get(name)
        if known is None:
            job = replace(job, id=f"{len(self.state.jobs)}:{name}")
            try:
                self._turn(JobSubmitted(job))
            except ValueError as error:
                # Callers know the group, not the number of the job that stands for it.
                raise ValueError(str(error).replace(f"job {job.id}", f"group '{name}'")) from None
            self._jobs[name] = known = job.id
        else:
            self._turn(JobChanged(replace(job, id=known)), JobReleased(known))
        self._tell(JobHeld(known))

    def proceed(self) -> None:
        """Has the engine start the groups whose victims have gone."""
        self._turn()

    def end(self, name: str) -> None:
        """A group has gone, or is not wanted any more."""
        job = self._jobs.pop(name, None)
        if job is None:
            return
        attempt = self.state.jobs[job].attempt
        if attempt is None or attempt.waits:
            self._tell(JobCancelled(job))
        else:
            self._tell(AttemptEnded(job, attempt.number, Outcome.SUCCEEDED))

    def set_health(self, node: str, healthy: bool) -> None:
        """What runs on a broken node runs on; nothing new goes there."""
        health = Health.HEALTHY if healthy else Health.SUSPECT
        for name in [name for name, known in self.tenancy.name_of.items() if known == node]:
            self._tell(NodeHealthChanged(name, health))

    def _key(self, name: str) -> str:
        job = self._jobs.get(name)
        attempt = self.state.jobs[job].attempt if job is not None else None
        return attempt.key if attempt is not None else ""

    def _turn(self, *events: Event) -> None:
        for action in turn(self.state, self.journal, events, NOW_MS).actions:
            if isinstance(action, Start):
                self._tell(Done(action.id))

    def _tell(self, event: Event) -> None:
        record(self.state, self.journal, event, NOW_MS)


class HivedScheduler:
    """Schedules pods on a HiveD configuration: a path, the text of one, or a dict. All nodes start healthy.

    With `restore` the running pods of another scheduler are taken over: they keep their places, and their guarantees
    where these fit the new configuration. Whatever is refused raises ValueError with the reason and changes nothing.
    """

    def __init__(self, config: str | Path | Mapping[str, Any], restore: HivedScheduler | None = None) -> None:
        self._pods: dict[str, _Pod] = {}
        self._groups: dict[str, dict[str, _Pod]] = {}
        try:
            cluster = cluster_of(_site(config)).cluster
            self._world: World = World(cluster, restore._world if restore is not None else None)
        except (PhalanxError, TypeError) as error:
            raise ValueError(str(error)) from None
        for name, pod in restore._pods.items() if restore is not None else ():
            self._remember(_Pod(name, pod.spec, pod.seat))

    @property
    def cells(self) -> Cells:
        """The cells of the engine's State."""
        return self._world.tenancy.cells

    @property
    def state(self) -> State:
        """The State of the engine."""
        return self._world.state

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
        group = self._world.group(pod.spec.group)
        if group is None:
            if not self._members(pod.spec.group):
                self._world.end(pod.spec.group)
            return
        held = pod.seat is not None or pod.is_preempting
        if held and not any(self._holds(other, group) for other in self._members(pod.spec.group)):
            self._world.end(pod.spec.group)

    def set_node_health(self, node: str, healthy: bool) -> None:
        """A node has broken, or works again."""
        if node not in self.cells.estate.nodes:
            raise ValueError(f"there is no node '{node}'")
        self._world.set_health(node, healthy)

    def group(self, name: str) -> GroupStatus | None:
        """An affinity group that is allocated, preempting or being preempted; None for any other."""
        group = self._world.group(name)
        if group is None:
            return None
        bound = tuple(pod.name for pod in self._members(name) if pod.seat is not None)
        waiting = tuple(pod.name for pod in self._members(name) if pod.is_preempting)
        status = group_status(group, bound, waiting)
        return replace(status, name=name, lazily_preempted_by=self._world.name_of(group.lazily_preempted_by))

    def groups(self) -> tuple[str, ...]:
        """The names of all groups that have cells, by age."""
        return tuple(self._world.name_of(group.name) for group in self.cells.groups())

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
        group = self._world.group(name)
        if group is None:
            return self._schedule_new(pod, suggestion)
        self._refuse_stranger(pod)
        if group.state is GroupState.BEING_PREEMPTED:
            self._remember(pod)
            return Result("wait", reason=f"group '{name}' is being preempted")
        if group.state is GroupState.ALLOCATED:
            return self._take_seat(pod)
        if all(leaf.is_healthy and _is_suggested(leaf.node_name, pod.spec, suggestion) for leaf in group.leaves()):
            return self._proceed(pod)
        # Its place has broken or is not suggested any more: it looks for another.
        self._forget_preemption(name)
        self._world.end(name)
        return self._schedule_new(pod, suggestion)

    def _schedule_new(self, pod: _Pod, suggestion: Suggestion) -> Result:
        name = pod.spec.group
        self._world.ask(name, _job(pod.spec, suggestion))
        for other in self._groups:
            if self._world.group(other) is None:
                self._forget_preemption(other)
        self._remember(pod)
        group = self._world.group(name)
        if group is None:
            return Result("wait", reason=self._reason(pod.spec, suggestion))
        return self._take_seat(pod) if group.state is GroupState.ALLOCATED else self._proceed(pod)

    def _reason(self, spec: PodSpec, suggestion: Suggestion) -> str:
        """Why a group waits."""
        with self.cells.trial():
            return self.cells.schedule(_request(spec), suggestion).reason or "there are too few free leaves"

    def _proceed(self, pod: _Pod) -> Result:
        """A pod of a preempting group: it is bound once no group is in the way."""
        self._world.proceed()
        group = self._world.group(pod.spec.group)
        assert group is not None, f"group '{pod.spec.group}' was preempting a moment ago"
        if group.state is not GroupState.PREEMPTING:
            for member in self._members(pod.spec.group):
                member.is_preempting = False
            return self._take_seat(pod)
        self._refuse_crowd(pod, [other for other in self._members(pod.spec.group) if other.is_preempting])
        pod.is_preempting = True
        self._remember(pod)
        victims = [self._world.name_of(victim.name) for victim in users_of(group.leaves())]
        names = (other.name for victim in victims for other in self._members(victim) if other.seat is not None)
        return Result("preempt", victims=sorted(names), reason=f"it waits for these to leave: {', '.join(victims)}")

    def _take_seat(self, pod: _Pod) -> Result:
        group = self._world.group(pod.spec.group)
        assert group is not None, f"group '{pod.spec.group}' has its cells"
        seated = [other for other in self._members(pod.spec.group) if other.seat is not None]
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
        group = self._world.group(pod.spec.group)
        assert group is not None, f"pod '{pod.name}' sits in a group"
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

    def _refuse_stranger(self, pod: _Pod) -> None:
        """A pod asks for what its group was placed for, and for nothing else."""
        others = [other for other in self._members(pod.spec.group) if other is not pod]
        if others:
            _refuse_difference(pod, _request(others[0].spec))


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


def _is_suggested(node: str, spec: PodSpec, suggestion: Suggestion) -> bool:
    return spec.ignores_suggestions or suggestion.has(node)


def _job(spec: PodSpec, suggestion: Suggestion) -> Job:
    """A group as a job: all its members, and what else it says of cells as labels."""
    types = (spec.leaf_type,) if spec.leaf_type else ()
    roles = tuple(
        Role(f"member-{i}", pods, pods, Task(gpus=leaves, gpu_types=types))
        for i, (pods, leaves) in enumerate(spec.members)
    )
    labels = {PINNED_LABEL: spec.pinned_id, LAZY_LABEL: "true" if spec.lazy_preemption else ""}
    if spec.quota is not None:
        labels[QUOTA_LABEL] = f"{spec.quota[0]}={spec.quota[1]}"
    told = tuple((name, value) for name, value in labels.items() if value)
    if not spec.ignores_suggestions and not suggestion.are_all:
        told += ((SUGGESTED_LABEL, ",".join(sorted(suggestion.nodes))),)
    return Job("", Gang(roles), queue=spec.virtual_cluster, priority=spec.priority, labels=told)


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


def _refuse_difference(pod: _Pod, request: Request) -> None:
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
