"""Surroundings: the pods that are placed, or are being bound, kept from turn to turn as others mind them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping
from typing import Any

from phalanx.kube.arrange.arranger import kind_of
from phalanx.kube.jobs.roster import Roster
from phalanx.kube.mirror import Mirror
from phalanx.kube.objects.node import KubeNode
from phalanx.kube.objects.pod import Pod
from phalanx.kube.pods.neighbours import WRITTEN_MAX, Neighbours

Place = tuple[Pod, KubeNode]

CROWDS_MAX = 32
"""Kinds of pods that are told apart by a resource."""


class Surroundings:
    """Follows mirror and roster. `one_each` is one of something for every node; `crowds` are the kinds of pods of which
    a node takes one and the most wait: each of these is a resource of every node, so that they are no more than a few.
    """

    def __init__(self, mirror: Mirror, roster: Roster) -> None:
        self._mirror = mirror
        self._roster = roster
        self._neighbours: Neighbours | None = None
        self._there: dict[str, tuple[Pod, KubeNode, int]] = {}
        self._ground: Any = None
        self._is_old = True
        self._kinds: dict[tuple[str, str], bytes] = {}
        self.one_each: Mapping[str, int] = {}
        self.crowds: Container[bytes] = ()

    def renew(self) -> None:
        """Has what changed since be looked at when they are asked for."""
        self._is_old = True

    def neighbours(self) -> Neighbours:
        """The pods as they are. Nothing may be added to them that stays, but by `put`."""
        ground = _ground(self._mirror) if self._is_old else self._ground
        if self._neighbours is None or ground != self._ground:
            self._ground = ground
            # The objects are of this moment: only what has been compared above of a node matters here.
            nodes = dict(self._mirror.nodes)
            self._neighbours = Neighbours(nodes, dict(self._mirror.namespaces), self._mirror.storage)
            self._there.clear()
            self.one_each = dict.fromkeys(nodes, 1)
            self._is_old = True
        if self._is_old:
            self._is_old = False
            self._neighbours.forget()
            self._follow(self._neighbours)
            self.crowds = self._crowds()
        return self._neighbours

    def put(self, places: Iterable[tuple[Pod, str]]) -> None:
        """Takes note of pods that are being bound."""
        if self._is_old or self._neighbours is None:
            return
        for pod, name in places:
            if name in self._mirror.nodes and pod.metadata.key not in self._there:
                self._put(self._neighbours, pod, self._mirror.nodes[name])

    def placed(self) -> Iterator[Place]:
        """Each pod that is placed, with its node."""
        mirror, owner = self._mirror, self._roster.owner
        for key, pod in mirror.pods.items():
            tracked = owner.get(key)
            name = pod.spec.node_name or (tracked.nodes.get(key, "") if tracked is not None else "")
            if name in mirror.nodes and not pod.is_over:
                yield pod, mirror.nodes[name]

    def _follow(self, neighbours: Neighbours) -> None:
        now = {pod.metadata.key: (pod, node) for pod, node in self.placed()}
        for key, (pod, node, number) in list(self._there.items()):
            place = now.get(key)
            if place is None or place[0] is not pod or place[1].metadata.name != node.metadata.name:
                neighbours.remove(number)
                del self._there[key]
        for key, (pod, node) in now.items():
            if key not in self._there:
                self._put(neighbours, pod, node)

    def _crowds(self) -> dict[bytes, None]:
        if len(self._kinds) > WRITTEN_MAX:
            self._kinds.clear()
        counts: Counter[bytes] = Counter()
        for key in self._mirror.minding:
            pod = self._mirror.pods[key]
            if not pod.spec.node_name and self._mirror.is_ours(pod):
                counts[self._kind(pod)] += 1
        counts.pop(b"", None)
        several = sorted((-count, kind) for kind, count in counts.items() if count > 1)
        return {kind: None for _, kind in several[:CROWDS_MAX]}

    def _kind(self, pod: Pod) -> bytes:
        version = pod.metadata.uid, pod.metadata.resource_version
        kind = self._kinds.get(version)
        if kind is None:
            kind = self._kinds[version] = kind_of(pod, self._mirror.namespaces)
        return kind

    def _put(self, neighbours: Neighbours, pod: Pod, node: KubeNode) -> None:
        self._there[pod.metadata.key] = pod, node, neighbours.add(pod, node)


def _ground(mirror: Mirror) -> Any:
    """What decides beside pods: labels and taints of nodes, labels of namespaces, and volumes."""
    nodes = {name: (node.metadata.labels, node.spec.taints) for name, node in mirror.nodes.items()}
    return nodes, dict(mirror.namespaces)
