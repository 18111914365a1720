"""Seats: pods of one gang take nodes one after the other, each where it may beside those before it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from phalanx.kube.objects.node import KubeNode
from phalanx.kube.objects.pod import Pod
from phalanx.kube.pods.demand import demand_of
from phalanx.kube.pods.neighbours import Neighbours
from phalanx.kube.pods.selection import admits, tolerates

NO_ROOM = "a lack of GPUs"
NOT_ADMITTED = "its node selector, node affinity or tolerations"


class Seats:
    """`of` is the node of each pod by its key; `refusals` are what kept the last pod off how many nodes."""

    def __init__(self, nodes: Mapping[str, KubeNode], gpus: Mapping[str, int], neighbours: Neighbours) -> None:
        self.of: dict[str, str] = {}
        self.refusals: Counter[str] = Counter()
        self._nodes = nodes
        self._left = dict(gpus)
        self._neighbours = neighbours

    def take(self, pods: tuple[Pod, ...]) -> bool:
        """Seats all pods; False if one finds no seat."""
        return all(self._seat(pod) for pod in pods)

    def _seat(self, pod: Pod) -> bool:
        try:
            gpus = demand_of(pod).gpus
        except ValueError:
            # What it asks for is refused where that is looked at.
            gpus = 0
        self.refusals.clear()
        open_ = []
        for name, node in self._nodes.items():
            refusal = self._refusal(pod, gpus, node)
            if refusal:
                self.refusals[refusal] += 1
            else:
                open_.append(name)
        if not open_:
            return False
        # Where fewest pods are that it is spread with, and then where least is left over.
        best = min(
            open_, key=lambda name: (self._neighbours.crowd(pod, self._nodes[name]), self._left.get(name, 0), name)
        )
        self._left[best] = self._left.get(best, 0) - gpus
        self._neighbours.add(pod, self._nodes[best])
        self.of[pod.metadata.key] = best
        return True

    def _refusal(self, pod: Pod, gpus: int, node: KubeNode) -> str:
        if not (admits(pod, node) and tolerates(pod, node)):
            return NOT_ADMITTED
        if gpus > self._left.get(node.metadata.name, 0):
            return NO_ROOM
        return self._neighbours.refusal(pod, node)
