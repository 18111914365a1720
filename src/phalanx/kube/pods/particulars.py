"""Particulars: the node affinities that pods require and the ports of nodes that they ask for.

The engine compares labels and amounts: every node is told of each of these. So those of the pending pods of one
namespace are bounded, and none can have the scheduler do nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from phalanx.kube.objects.pod import NodeSelector, Pod
from phalanx.kube.pods.demand import host_ports
from phalanx.kube.pods.selection import affinity_label, affinity_of

AFFINITIES_MAX = 128
PORTS_MAX = 128
"""Different ones of the pending pods of a namespace that are looked at, the first that came."""


class Particulars:
    """Counts those of pods that are pending, by namespace, and the ports of those that are bound."""

    def __init__(self) -> None:
        self._affinities: dict[str, dict[str, int]] = {}
        self._ports: dict[str, dict[str, int]] = {}
        self._bound_ports: dict[str, int] = {}
        self._selectors: dict[str, NodeSelector] = {}

    def change(self, pod: Pod, by: int) -> bool:
        """Takes note of a pod, or with -1 that it is there no more; whether nodes are to be told of more."""
        ports, affinity = dict.fromkeys(host_ports(pod)), affinity_of(pod)
        if pod.spec.node_name:
            return _count(self._bound_ports, ports, by, len(self._bound_ports))
        namespace, is_other = pod.metadata.namespace, False
        if ports:
            is_other = _count(self._ports.setdefault(namespace, {}), ports, by, PORTS_MAX)
        if affinity is not None:
            label = affinity_label(affinity)
            self._selectors.setdefault(label, affinity)
            is_other |= _count(self._affinities.setdefault(namespace, {}), (label,), by, AFFINITIES_MAX)
            if not any(label in each for each in self._affinities.values()):
                del self._selectors[label]
        return is_other

    def affinities(self) -> Iterator[NodeSelector]:
        """Those that are looked at."""
        labels = (label for each in self._affinities.values() for label in _first(each, AFFINITIES_MAX))
        return (self._selectors[label] for label in dict.fromkeys(labels))

    def ports(self) -> Iterable[str]:
        """The ports that are looked at."""
        pending = (port for each in self._ports.values() for port in _first(each, PORTS_MAX))
        return dict.fromkeys((*self._bound_ports, *pending))

    def refusal(self, pod: Pod) -> str:
        """Why a pod is not looked at for now; empty if it is."""
        namespace, affinity = pod.metadata.namespace, affinity_of(pod)
        if affinity is not None and affinity_label(affinity) not in _first(
            self._affinities.get(namespace, {}), AFFINITIES_MAX
        ):
            what = f"{AFFINITIES_MAX} different required node affinities"
        elif not set(host_ports(pod)) <= _first(self._ports.get(namespace, {}), PORTS_MAX).keys():
            what = f"{PORTS_MAX} different host ports"
        else:
            return ""
        return f"pending pods of namespace {namespace} have more than {what}: it is looked at after those before it"


def _count(counts: dict[str, int], keys: Iterable[str], by: int, most: int) -> bool:
    before = len(counts)
    for key in keys:
        counts[key] = counts.get(key, 0) + by
        if not counts[key]:
            del counts[key]
    return len(counts) > before or (len(counts) < before and before > most)


def _first(counts: dict[str, int], most: int) -> dict[str, int]:
    return counts if len(counts) <= most else dict(list(counts.items())[:most])
