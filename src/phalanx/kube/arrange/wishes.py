"""Wishes: where pods of one gang lie beside one another as they prefer it, on what is free when the gang starts.

The engine chooses nodes for a gang as a whole. What its pods only prefer of one another changes nothing about whether,
when and for whose sake it starts: so it is looked at last, and only on devices that nothing else has or has reserved.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from dataclasses import replace

from phalanx.cluster.bits import members
from phalanx.engine.state.records import AttemptRecord
from phalanx.engine.state.state import State
from phalanx.kube.gangs.bundle import Bundle, places_of
from phalanx.kube.nodes import gpu_resource
from phalanx.kube.objects.node import KubeNode
from phalanx.kube.objects.pod import Pod
from phalanx.kube.pods.demand import demand_of
from phalanx.kube.pods.preferences import PodPreferences, has_preferences, said_by
from phalanx.kube.pods.selection import admits, meets, preferred_affinities, shuns, tolerates
from phalanx.kube.pods.terms import Namespaces, means, preferred_spreads, preferred_terms, spreads_with
from phalanx.placement.placement import Slot

LOOKS_MAX = 200_000
"""Nodes that are looked at for the pods of one gang: a bound on work. A gang that would take more lies as planned."""

KINDS_MAX = 32
"""Pods of one gang that say different things and are compared with one another."""


def wishes(bundle: Bundle, namespaces: Namespaces) -> bool:
    """Whether pods of a gang prefer anything of one another that is not settled by what they require."""
    arrangement = bundle.arrangement
    if len(bundle.pods) < 2 or bundle.levels or bundle.parts or bundle.near or arrangement.takes:
        return False
    if not any(map(has_preferences, bundle.pods)):
        return False
    kinds = list({said_by(pod): pod for pod in bundle.pods}.values())[:KINDS_MAX]
    return any(_minds(pod, other, namespaces) for pod in kinds for other in kinds)


def _minds(pod: Pod, other: Pod, namespaces: Namespaces) -> bool:
    return any(means(term, pod, other, namespaces) for term, _ in preferred_terms(pod)) or any(
        spreads_with(each, pod, other) for each in preferred_spreads(pod)
    )


class Room:
    """What an attempt could have: what is free of each node, and what it was planned on."""

    def __init__(self, state: State, attempt: AttemptRecord) -> None:
        self._state = state
        self._open = state.capacity.open
        self._devices: dict[int, int] = {}
        self._own: dict[tuple[int, int], int] = {}
        self._used: dict[tuple[int, int], int] = {}
        self._planned = {
            slot.rank: booking for slot, booking in zip(attempt.placement.slots, attempt.bookings, strict=True)
        }
        for booking in attempt.bookings:
            self._devices[booking.node] = self._free(booking.node) | booking.devices
            for number, amount in booking.needs:
                at = booking.node, number
                self._own[at] = self._own.get(at, 0) + amount

    def has(self, node: str, slot: Slot) -> bool:
        """Whether there is room on a node for the task of a slot."""
        number = self._state.topology.number.get(node)
        if number is None or not self._open >> number & 1 or self._free(number).bit_count() < len(slot.devices):
            return False
        return all(amount <= self._left(number, resource) for resource, amount in self._planned[slot.rank].needs)

    def left(self, node: str) -> int:
        """How many devices are free of a node."""
        return self._free(self._state.topology.number[node]).bit_count()

    def take(self, node: str, slot: Slot) -> Slot:
        """Has the task of a slot be there, on the first devices that are free."""
        number, free = self._state.topology.number[node], members(self._free(self._state.topology.number[node]))
        devices = tuple(next(free) for _ in slot.devices)
        self._devices[number] = self._free(number) & ~sum(1 << device for device in devices)
        for resource, amount in self._planned[slot.rank].needs:
            self._used[number, resource] = self._used.get((number, resource), 0) + amount
        return replace(slot, node=node, devices=devices)

    def _free(self, number: int) -> int:
        return self._devices.get(number, self._state.capacity.free[number])

    def _left(self, number: int, resource: int) -> int:
        at = number, resource
        return self._state.capacity.amounts[resource].free[number] + self._own.get(at, 0) - self._used.get(at, 0)


def wished(
    bundle: Bundle, attempt: AttemptRecord, room: Room, nodes: Mapping[str, KubeNode], preferences: PodPreferences
) -> tuple[Slot, ...]:
    """The slots of an attempt where its pods prefer them, one after the other; none if there is too much to look at."""
    placement = attempt.placement
    if len(placement.slots) * len(nodes) > LOOKS_MAX:
        return ()
    planned = dict.fromkeys(placement.nodes)
    slots = []
    for (pod, _), slot in zip(places_of(bundle, placement), placement.slots, strict=True):
        best = _best(pod, slot, room, list(_allowed(pod, bundle, nodes)), preferences, planned)
        if best is None:
            return ()
        slots.append(room.take(best.metadata.name, slot))
        preferences.add(pod, best)
    return tuple(slots)


def _allowed(pod: Pod, bundle: Bundle, nodes: Mapping[str, KubeNode]) -> Iterator[KubeNode]:
    """The nodes to which a pod may go, for all that is known without its neighbours."""
    eligible, resource = bundle.arrangement.eligible, demand_of(pod).gpu_resource
    for name in nodes if eligible is None else eligible:
        node = nodes.get(name)
        if node is not None and admits(pod, node) and tolerates(pod, node) and resource in ("", gpu_resource(node)):
            yield node


def _best(
    pod: Pod,
    slot: Slot,
    room: Room,
    nodes: list[KubeNode],
    preferences: PodPreferences,
    planned: Container[str],
) -> KubeNode | None:
    """The node that a pod prefers; of several one that was planned, and of these the fullest."""
    weights, of_nodes = preferences.weights(pod), preferred_affinities(pod)
    keys = tuple(dict.fromkeys(key for key, _ in weights))

    def rank(node: KubeNode) -> tuple[bool, int, bool, int, str]:
        labels, name = node.metadata.labels or {}, node.metadata.name
        weight = sum(weights.get((key, labels.get(key, "")), 0) for key in keys)
        weight += sum(each for affinity, each in of_nodes if meets(affinity, node))
        return shuns(pod, node), -weight, name not in planned, room.left(name), name

    return min((node for node in nodes if room.has(node.metadata.name, slot)), key=rank, default=None)
