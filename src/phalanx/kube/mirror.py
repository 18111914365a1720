"""The mirror: what the API server says there is, and what of it has changed since it was last looked at."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable
from dataclasses import dataclass
from typing import Any

import msgspec

from phalanx.kube.api.quantity import quantity
from phalanx.kube.api.reflector import Changed, Listed
from phalanx.kube.gangs.discovery import HYPER_NODES, QUEUES
from phalanx.kube.gangs.groups import (
    COMPOSITE,
    LEADER_WORKER_SET,
    LEADER_WORKER_SET_LABEL,
    SAID_BY_PODS,
    Family,
    GroupRef,
    Groups,
    family_of,
    said_by,
)
from phalanx.kube.gangs.trees import Hierarchy
from phalanx.kube.objects.budget import DisruptionBudget
from phalanx.kube.objects.composite import CompositePodGroup
from phalanx.kube.objects.group import PodGroup, PodGroupSpec
from phalanx.kube.objects.hyper_node import HyperNode
from phalanx.kube.objects.kubeflow import KubeflowJob
from phalanx.kube.objects.meta import Labels, Metadata, Stored
from phalanx.kube.objects.node import KubeNode
from phalanx.kube.objects.owner import BatchJob, JobSet, LeaderWorkerSet, RayCluster
from phalanx.kube.objects.pod import NodeSelector, Pod
from phalanx.kube.objects.queue import PriorityClass, VolcanoQueue
from phalanx.kube.objects.volume import PersistentVolume, StorageClass, VolumeClaim
from phalanx.kube.pods.demand import PODS as POD_COUNT
from phalanx.kube.pods.demand import Demand, demand_of
from phalanx.kube.pods.neighbours import minds
from phalanx.kube.pods.particulars import Particulars
from phalanx.kube.pods.preferences import has_preferences
from phalanx.kube.pods.selection import affinity_label, affinity_of, preferred_affinities
from phalanx.kube.pods.terms import apart_terms, preferred_terms
from phalanx.kube.pods.volumes import Volumes, claims_of
from phalanx.kube.pods.words import WORDS_MAX, too_wordy, without_words, words_of
from phalanx.kube.queues import DEFAULT, queue_path

PODS, NODES, NAMESPACES = "pods", "nodes", "namespaces"
CLAIMS, VOLUMES, CLASSES = "persistentvolumeclaims", "persistentvolumes", "storageclasses"
BUDGETS = "poddisruptionbudgets"
PRIORITIES = "priorityclasses"

MIRROR_POD = "kubernetes.io/config.mirror"
"""The annotation of a pod that a kubelet runs by itself."""

EXACT_BELOW = 16
PREFERRED_MAX = 256
"""Preferred node affinities of all pending pods that are told apart: a bound on work."""


@dataclass(frozen=True, slots=True)
class Uses:
    """What some pods use of a node."""

    gpus: int = 0
    cpus_milli: int = 0
    memory_mb: int = 0
    others: tuple[tuple[str, int], ...] = ()


class Mirror:
    """Nodes, pods, groups and the labels of namespaces. `families` and `nodes_used` are those to look at again;
    `nodes_changed` whether nodes, or what is required of them, are others than before. `others_changed` whether
    volumes or budgets are. `asked` are the resources by
    name that our pods ask for. `minding` are the pods for whose sake it matters where others are: ours that mind that,
    and all that others must be apart from. `with_preferences` are those for whose sake some domains are better.
    `others` are the bound pods of other schedulers that may be evicted: those of a priority below `others_below`.
    `queue_label` is the label of pods that names the queue of those whose group names none; empty for none.
    `wordy` are pods of which too much is said to look through, with a line that says so; `particulars` what pods of
    ours say that every node is told of.
    """

    def __init__(self, scheduler: str, others_below: int | None = None) -> None:
        self.scheduler = scheduler
        self.queue_label = ""
        self._others_below = others_below
        self.others: dict[str, None] = {}
        self.nodes: dict[str, KubeNode] = {}
        self.pods: dict[str, Pod] = {}
        self.groups: Groups = {}
        self.by_family: dict[Family, dict[str, None]] = defaultdict(dict)
        self.by_node: dict[str, dict[str, None]] = defaultdict(dict)
        self.families: dict[Family, None] = {}
        self.nodes_used: dict[str, None] = {}
        self.nodes_changed = False
        self.others_changed = False
        self.asked: dict[str, None] = {}
        self.minding: dict[str, None] = {}
        self.with_preferences: dict[str, None] = {}
        self.wordy: dict[str, str] = {}
        self.particulars = Particulars()
        self.namespaces: dict[str, Labels] = {}
        self._claims: dict[str, VolumeClaim] = {}
        self._volumes: dict[str, PersistentVolume] = {}
        self._classes: dict[str, StorageClass] = {}
        self.budgets: dict[str, DisruptionBudget] = {}
        self.hyper_nodes: dict[str, HyperNode] = {}
        self.queues: dict[str, VolcanoQueue] = {}
        self._hierarchy = Hierarchy(self.groups)
        self._priorities: dict[str, PriorityClass] = {}
        self._leading: dict[str, LeaderWorkerSet] = {}
        self.storage = Volumes(self._claims, self._volumes, self._classes)
        self.listed: set[str] = set()

    def take(self, news: Listed[Any] | Changed[Any]) -> None:
        """Takes in what a reflector tells."""
        if isinstance(news, Changed):
            self._put(news.kind, news.object, gone=news.gone)
            return
        self.listed.add(news.kind)
        there = {each.metadata.key for each in news.objects}
        for old in list(self._of_kind(news.kind)):
            if old.metadata.key not in there:
                self._put(news.kind, old, gone=True)
        for each in news.objects:
            self._put(news.kind, each, gone=False)

    def is_ours(self, pod: Pod) -> bool:
        """Whether a pod asks for this scheduler."""
        return pod.spec.scheduler_name == self.scheduler

    def makes_way(self, pod: Pod) -> bool:
        """Whether a bound pod of another scheduler may be evicted. One of a DaemonSet would be back at once."""
        if self._others_below is None or self.is_ours(pod) or not pod.spec.node_name:
            return False
        owners = pod.metadata.owner_references or ()
        is_bound_to_node = MIRROR_POD in (pod.metadata.annotations or {}) or any(
            each.kind in ("DaemonSet", "Node") for each in owners
        )
        return pod.spec.priority < self._others_below and not is_bound_to_node and _demand(pod).gpus > 0

    def affinities(self) -> Iterable[NodeSelector]:
        """The affinities that our pending pods require, and the first few that they prefer."""
        yield from self.particulars.affinities()
        preferred: dict[str, None] = {}
        for pod in self.pods.values():
            if not self.is_ours(pod) or pod.spec.node_name:
                continue
            for wished, _ in preferred_affinities(pod):
                preferred[affinity_label(wished)] = None
                if len(preferred) > PREFERRED_MAX:
                    break
                yield wished

    def uses(self, node: str, besides: Container[str]) -> Uses:
        """What pods use of a node, but for those that are known otherwise."""
        gpus = cpus_milli = memory_mb = count = 0
        others: dict[str, int] = {}
        for key in self.by_node.get(node, ()):
            pod = self.pods[key]
            if key in besides or pod.is_over:
                continue
            demand = _demand(pod)
            count += 1
            gpus += demand.gpus
            cpus_milli += demand.cpus_milli
            memory_mb += demand.memory_mb
            for name, amount in demand.others:
                if name in self.asked:
                    others[name] = others.get(name, 0) + amount
        if limit := self._pods_max(node):
            others[POD_COUNT] = coarse(count, limit)
        return Uses(gpus, cpus_milli, memory_mb, tuple(sorted(others.items())))

    def group(self, family: Family) -> PodGroup | None:
        """The group of some pods; None for a pod alone, and for a group that is not there."""
        if not isinstance(family, GroupRef):
            return None
        if family.dialect not in SAID_BY_PODS:
            group = self._hierarchy.group(family)
            return self._resolved(group) if group is not None else None
        pod = next((self.pods[key] for key in self.by_family.get(family, ())), None)
        if pod is None:
            return None
        leaders = f"{family.namespace}/{(pod.metadata.labels or {}).get(LEADER_WORKER_SET_LABEL, '')}"
        # Workers that are made once their leader is ready cannot start with it.
        return PodGroup() if leaders in self._leading else said_by(pod, family.dialect)

    def family(self, pod: Pod) -> Family:
        """The pods with which a pod is looked at: those of its group, or of the groups that this starts with."""
        family = family_of(pod)
        return self._hierarchy.family(family) if isinstance(family, GroupRef) else family

    def object_of(self, family: Family) -> PodGroup | None:
        """The object that says that pods are a group; None if there is none."""
        if isinstance(family, GroupRef) and family.dialect == COMPOSITE:
            return self._hierarchy.group(family)
        return self.groups.get(family) if isinstance(family, GroupRef) else None

    def members(self, family: Family) -> Iterable[str]:
        """The pods of a family: those of a group that starts with others are of the family of these."""
        if not isinstance(family, GroupRef):
            return self.by_family.get(family, ())
        if self._hierarchy.family(family) != family:
            return ()
        return [key for leaf in self._hierarchy.leaves(family) for key in self.by_family.get(leaf, ())]

    def _resolved(self, group: PodGroup) -> PodGroup:
        """A group with what it names looked up: its priority class, and where its queue lies."""
        spec = group.spec
        path, named = queue_path(spec.queue, self.queues), self._priorities.get(spec.priority_class_name)
        priority = named.value if named is not None else spec.priority
        if (path, priority) == (spec.queue, spec.priority):
            return group
        return msgspec.structs.replace(group, spec=msgspec.structs.replace(spec, queue=path, priority=priority))

    def queue_by_label(self, pod: Pod) -> str:
        """Where the queue lies that a pod names by a label, or the default queue."""
        named = (pod.metadata.labels or {}).get(self.queue_label, "") if self.queue_label else ""
        return queue_path(named, self.queues) if named else DEFAULT

    def ports(self) -> Iterable[str]:
        """The ports of nodes that our pods ask for."""
        return self.particulars.ports()

    def _pods_max(self, node: str) -> int:
        status = self.nodes[node].status if node in self.nodes else None
        try:
            return int(quantity((status.allocatable or {}).get(POD_COUNT, 0))) if status is not None else 0
        except ValueError:
            return 0

    def _ask(self, pod: Pod) -> None:
        """Takes note of the resources by name that a pod of ours asks for: no other is counted."""
        asked = [name for name, _ in _demand(pod).others if name not in self.asked]
        if asked:
            self.asked.update(dict.fromkeys(asked))
            self.nodes_changed = True
            self.nodes_used.update(dict.fromkeys(self.nodes))

    def _of_kind(self, kind: str) -> Iterable[Stored]:
        if kind == PODS:
            return self.pods.values()
        if kind == NODES:
            return self.nodes.values()
        if kind in self._stores:
            return self._stores[kind].values()
        if kind == HYPER_NODES:
            return list(self.hyper_nodes.values())
        if kind == LEADER_WORKER_SET:
            return list(self._leading.values())
        if kind == NAMESPACES:
            return [Stored(metadata=Metadata(name=name)) for name in self.namespaces]
        if kind == COMPOSITE:
            return self._hierarchy.all()
        return [group for ref, group in self.groups.items() if ref.dialect == kind]

    def _put(self, kind: str, it: Stored, gone: bool) -> None:
        if isinstance(it, Pod):
            self._put_pod(it, gone)
        elif isinstance(it, KubeNode):
            self._put_node(it, gone)
        elif kind in self._stores:
            self._put_other(kind, it, gone)
        elif kind == NAMESPACES:
            self._put_namespace(it.metadata, gone)
        elif isinstance(it, HyperNode):
            self._put_hyper_node(it, gone)
        elif isinstance(it, LeaderWorkerSet):
            self._put_leaders(it, gone)
        elif isinstance(it, KubeflowJob):
            self._put_group(kind, PodGroup(metadata=it.metadata, spec=it.asks), gone)
        elif isinstance(it, BatchJob | JobSet | RayCluster):
            spec = PodGroupSpec(min_member=it.least)
            self._put_group(kind, PodGroup(metadata=it.metadata, spec=spec), gone)
        elif isinstance(it, CompositePodGroup):
            self._put_composite(it, gone)
        elif isinstance(it, PodGroup):
            self._put_group(kind, it, gone)

    def _put_pod(self, pod: Pod, gone: bool) -> None:
        key = pod.metadata.key
        old = self.pods.get(key)
        if old is not None:
            self._forget(key, old)
        if not gone:
            if (size := words_of(pod)) > WORDS_MAX:
                self.wordy[key] = too_wordy(size)
                pod = without_words(pod)
            self.pods[key] = pod
            if apart_terms(pod) or (self.is_ours(pod) and (minds(pod) or any(claims_of(pod)))):
                self.minding[key] = None
            if preferred_terms(pod) or (self.is_ours(pod) and has_preferences(pod)):
                self.with_preferences[key] = None
            if self.makes_way(pod) and not (pod.is_over or pod.is_leaving):
                self.others[key] = None
                self._ask(pod)
            if pod.spec.node_name:
                self.by_node[pod.spec.node_name][key] = None
            if self.is_ours(pod):
                self.by_family[family_of(pod)][key] = None
                self._ask(pod)
                self.nodes_changed |= self.particulars.change(pod, 1)
        for each in (old, pod):
            if each is None:
                continue
            if each.spec.node_name:
                self.nodes_used[each.spec.node_name] = None
            if self.is_ours(each):
                self.families[self.family(each)] = None
            elif self.makes_way(each):
                self.families[key] = None
        if self.is_ours(pod) and old is None and (affinity_of(pod) is not None or preferred_affinities(pod)):
            self.nodes_changed = True

    def _forget(self, key: str, pod: Pod) -> None:
        del self.pods[key]
        self.minding.pop(key, None)
        self.with_preferences.pop(key, None)
        self.wordy.pop(key, None)
        self.others.pop(key, None)
        if pod.spec.node_name:
            self.by_node[pod.spec.node_name].pop(key, None)
        if self.is_ours(pod):
            family = family_of(pod)
            self.nodes_changed |= self.particulars.change(pod, -1)
            self.by_family[family].pop(key, None)
            if not self.by_family[family]:
                del self.by_family[family]

    def _put_node(self, node: KubeNode, gone: bool) -> None:
        name = node.metadata.name
        if gone:
            self.nodes.pop(name, None)
        else:
            self.nodes[name] = node
        self.nodes_changed = True
        self.nodes_used[name] = None

    def _put_namespace(self, metadata: Metadata, gone: bool) -> None:
        if gone:
            self.namespaces.pop(metadata.name, None)
        else:
            self.namespaces[metadata.name] = metadata.labels or {}

    @property
    def _stores(self) -> dict[str, dict[str, Any]]:
        return {
            CLAIMS: self._claims,
            VOLUMES: self._volumes,
            CLASSES: self._classes,
            BUDGETS: self.budgets,
            QUEUES: self.queues,
            PRIORITIES: self._priorities,
        }

    def _put_other(self, kind: str, it: Stored, gone: bool) -> None:
        key = it.metadata.key
        if gone:
            self._stores[kind].pop(key, None)
        else:
            self._stores[kind][key] = it
        self.others_changed = True
        if kind in (QUEUES, PRIORITIES):
            self.nodes_changed = True
            self.families.update(dict.fromkeys(self.groups))

    def _put_hyper_node(self, hyper_node: HyperNode, gone: bool) -> None:
        if gone:
            self.hyper_nodes.pop(hyper_node.metadata.name, None)
        else:
            self.hyper_nodes[hyper_node.metadata.name] = hyper_node
        self.nodes_changed = True

    def _put_leaders(self, leaders: LeaderWorkerSet, gone: bool) -> None:
        key = leaders.metadata.key
        if not gone and leaders.spec.startup_policy == "LeaderReady":
            self._leading[key] = leaders
        else:
            self._leading.pop(key, None)
        of_it = (family for family in self.by_family if isinstance(family, GroupRef))
        self.families.update(dict.fromkeys(each for each in of_it if each.dialect == LEADER_WORKER_SET))

    def _put_group(self, kind: str, group: PodGroup, gone: bool) -> None:
        ref = GroupRef(kind, group.metadata.namespace, group.metadata.name)
        if gone:
            self.groups.pop(ref, None)
        else:
            self.groups[ref] = group
        self._hierarchy.lie(ref, group.spec.parent_composite_pod_group_name, gone)
        self.families.update(dict.fromkeys((ref, self._hierarchy.family(ref))))

    def _put_composite(self, composite: CompositePodGroup, gone: bool) -> None:
        ref = self._hierarchy.put(composite, gone)
        leaves = tuple(self._hierarchy.leaves(ref))
        self.families.update(dict.fromkeys((ref, *leaves, *map(self._hierarchy.family, leaves))))


def coarse(count: int, limit: int) -> int:
    """How many of the pods that a node may have count as used by `count` foreign ones: so that not every one of them
    makes another cluster, numbers are exact only where few are left.
    """
    left = max(limit - count, 0)
    return limit - (left if left < EXACT_BELOW else left - left % EXACT_BELOW)


def _demand(pod: Pod) -> Demand:
    try:
        return demand_of(pod)
    except ValueError:
        # Of a pod that another scheduler bound, what cannot be read counts as nothing.
        return Demand()
