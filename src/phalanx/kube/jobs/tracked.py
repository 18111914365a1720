"""Tracked bundles: what became of the pods of each job, beside what the engine's State knows of the job."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field, replace
from enum import Enum, auto

from phalanx.kube.gangs.bundle import Bundle
from phalanx.kube.gangs.groups import Family, group_of
from phalanx.kube.objects.group import PodGroup
from phalanx.kube.objects.pod import Pod
from phalanx.kube.pods.demand import Demand, demand_of
from phalanx.kube.pods.selection import limits_of
from phalanx.protocol.action import ActionId


class Step(Enum):
    """How far the pods of a job have come."""

    PENDING = auto()
    BINDING = auto()
    BOUND = auto()
    STOPPING = auto()


@dataclass(slots=True, eq=False)
class Tracked:
    """The pods of one job. `nodes` is where each was bound or is being bound; `awaits` are claims
    that need their volumes before anything is bound; `start` and `stop` are the actions that were asked for and not yet
    answered. `least` is how many the group asked for when the gang was formed, 0 for a pod by itself, and `says` all
    that it asked for. `vacant` are members that ended while the rest runs on, with what their places hold: pods of the
    group that come after them stand in for them there.
    """

    bundle: Bundle
    family: Family
    uids: dict[str, str] = field(init=False)
    step: Step = Step.PENDING
    attempt: int = 0
    nodes: dict[str, str] = field(default_factory=dict)
    awaits: tuple[str, ...] = ()
    start: ActionId | None = None
    stop: ActionId | None = None
    stop_reason: str = ""
    least: int = 0
    says: object = None
    vacant: dict[str, Demand] = field(default_factory=dict)
    stand_ins: dict[str, Demand] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.uids = {pod.metadata.key: pod.metadata.uid for pod in self.bundle.pods}

    @property
    def job(self) -> str:
        """The id of its job."""
        return self.bundle.id

    def is_of(self, group: PodGroup) -> bool:
        """Whether it is what the group asks for by now."""
        return group.says == self.says

    def vacate(self, present: Container[str], succeeded: Container[str]) -> None:
        """Takes note of the members that are gone, but for those that have done their work."""
        for pod in self.bundle.pods:
            key = pod.metadata.key
            if key in self.uids and key not in present and key not in succeeded:
                self.vacant.setdefault(key, demand_of(pod))

    def place_for(self, pod: Pod, healthy: Container[str]) -> str:
        """The member in whose place a pod can run, which asks for the same; empty if there is none."""
        wanted, limits = demand_of(pod), limits_of(pod)
        group = group_of(pod)
        alike = {
            each.metadata.key: None
            for each in self.bundle.pods
            if limits_of(each) == limits and group_of(each) == group
        }
        return next(
            (key for key, has in self.vacant.items() if has == wanted and key in alike and self.nodes[key] in healthy),
            "",
        )

    def stand_in(self, pod: Pod, member: str) -> str:
        """Has a pod take the place of a member, and says on which node that is."""
        node = self.nodes.pop(member)
        del self.uids[member]
        key = pod.metadata.key
        self.stand_ins[key] = self.vacant.pop(member)
        self.uids[key], self.nodes[key] = pod.metadata.uid, node
        others = tuple(each for each in self.bundle.pods if each.metadata.key != member)
        self.bundle = replace(self.bundle, pods=(*others, pod))
        return node

    def stands_not_in(self, key: str) -> None:
        """A pod could not be bound in the place of a member: that is vacant."""
        self.vacant[key] = self.stand_ins.pop(key)
