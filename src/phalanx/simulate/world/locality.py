"""Locality: how far apart the GPUs of a placement are, how close they could be, and what the difference costs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import pairwise
from math import log2
from typing import NamedTuple

from phalanx.cluster.bits import from_members, span
from phalanx.cluster.layout import Layout
from phalanx.cluster.topology import Topology
from phalanx.placement.fabric import Path
from phalanx.placement.placement import Placement, Slot
from phalanx.workload.family import Family


class Distance(IntEnum):
    """The smallest domain that holds all GPUs of a job.

    A switch is the innermost level inside the node (a node that is not split is one switch), a socket any other level
    inside it, a rack the innermost level above it (a cluster without such levels is one rack); what is further is far.
    """

    SWITCH = 0
    SOCKET = 1
    NODE = 2
    RACK = 3
    FAR = 4


class Spread(NamedTuple):
    """How far apart GPUs are, and on how many nodes they lie."""

    distance: Distance
    nodes: int


TOGETHER = Spread(Distance.SWITCH, 1)


@dataclass(frozen=True, slots=True)
class Curve:
    """Speed of a job by the smallest domain that holds it, where 1 is one switch.

    `rack` and `far` hold for two nodes; every doubling of their number leaves `doubling` of the speed.
    """

    socket: float
    node: float
    rack: float
    far: float
    doubling: float

    def __post_init__(self) -> None:
        speeds = (1.0, self.socket, self.node, self.rack, self.far)
        # Written so that NaN, which fails every comparison, is refused too.
        if not (self.far > 0 and all(outer <= inner for inner, outer in pairwise(speeds))):
            raise ValueError(
                f"curve: speeds {speeds[1:]} for socket, node, rack and far; "
                "expected numbers above 0 and up to 1, none larger than the one before"
            )
        if not 0 < self.doubling <= 1:
            raise ValueError(f"curve: doubling {self.doubling}; expected a number above 0 and up to 1")

    def at(self, spread: Spread) -> float:
        """The speed of a job that is spread so."""
        match spread.distance:
            case Distance.SWITCH:
                return 1.0
            case Distance.SOCKET:
                return self.socket
            case Distance.NODE:
                return self.node
            case Distance.RACK:
                return self.rack * self._after_doublings(spread.nodes)
            case Distance.FAR:
                return self.far * self._after_doublings(spread.nodes)

    def _after_doublings(self, nodes: int) -> float:
        return 1.0 if nodes <= 2 else float(self.doubling ** log2(nodes / 2))


CURVES: Mapping[Family, Curve] = {
    Family.CONVOLUTION: Curve(socket=0.99, node=0.97, rack=0.87, far=0.82, doubling=0.95),
    Family.DENSE: Curve(socket=0.85, node=0.71, rack=0.25, far=0.20, doubling=0.75),
    Family.TRANSFORMER: Curve(socket=0.96, node=0.90, rack=0.65, far=0.58, doubling=0.85),
    Family.RECURRENT: Curve(socket=0.92, node=0.82, rack=0.40, far=0.34, doubling=0.80),
    Family.RECOMMENDATION: Curve(socket=0.92, node=0.82, rack=0.40, far=0.34, doubling=0.80),
    Family.REINFORCEMENT: Curve(socket=0.99, node=0.97, rack=0.87, far=0.82, doubling=0.95),
    Family.OTHER: Curve(socket=0.95, node=0.88, rack=0.60, far=0.52, doubling=0.81),
}
"""What distance leaves of a job's speed, by family. Facts first, what is ours after them.

- Two GPUs of one job on one PCIe switch, on two switches, and on two nodes: 40 % to 5 times slower, by model (HiveD,
  Zhao et al., OSDI 2020, the authors' slides). The two ends are `dense`: 1/1.4 = 0.71 across the node, 1/5 = 0.20 at
  most.
- ResNet-50 on two GPUs: 114.8 images a second in one server, 98.0 in two, which is 0.85 (Philly, Jeon et al., ATC
  2019, table 4; not re-checked). Throughputs measured for Gavel (see `workload.family`), unconsolidated over
  consolidated, 2 and 4 GPUs on P100 and V100, geometric means: ResNet-50 0.89, Transformer 0.64, LM 0.37 (0.49 on
  P100, 0.28 on V100). They give `rack` for convolution (0.87), transformer (0.65) and recurrent (0.40).
- Jobs of 16 GPUs on 2, 4 and 8 servers kept their GPUs busy for 43.7, 40.9 and 28.6 % of the time (Philly, table 5;
  not re-checked): 0.65 for two doublings, 0.81 for each, which is `doubling` for `other`.
- Models with a few large tensors (VGG, AlexNet) suffer when spread, ResNet and Inception hardly do (Tiresias, Gu et
  al., NSDI 2019, section 3.3): the order of the families.

Ours: `socket` and `node` where nothing was measured (between 1 and `rack`, nearer to 1), `far` (about a tenth below
`rack`), `doubling` but for `other`, recommendation as recurrent (large embeddings), reinforcement as convolution
(small models), and `other`, which lies between the ends.
"""


def spread_of(topology: Topology, slots: Sequence[Slot]) -> Spread:
    """How far apart the GPUs of these slots are; slots without GPUs do not count."""
    nodes = list(dict.fromkeys(topology.number[slot.node] for slot in slots if slot.devices))
    if len(nodes) == 1:
        return Spread(_distance_inside(topology.layouts[nodes[0]], slots), 1)
    if not topology.levels:
        return Spread(Distance.RACK, len(nodes))
    rack_of = topology.domain_of[topology.levels[-1]]
    one_rack = all(rack_of[node] == rack_of[nodes[0]] for node in nodes)
    return Spread(Distance.RACK if one_rack else Distance.FAR, len(nodes))


def _distance_inside(layout: Layout, slots: Sequence[Slot]) -> Distance:
    if not layout.levels:
        return Distance.SWITCH
    devices = from_members((device for slot in slots for device in slot.devices), layout.gpus)
    return next(distance for distance, groups in _domains(layout) if any(devices & ~group == 0 for group in groups))


def _domains(layout: Layout) -> list[tuple[Distance, tuple[int, ...]]]:
    """The device sets inside a node by distance, innermost first; the whole node is the last of them."""
    levels = [*reversed(layout.levels.values()), (span(0, layout.gpus),)]
    distances = [Distance.SWITCH, *[Distance.SOCKET] * (len(levels) - 2), Distance.NODE]
    return list(zip(distances, levels, strict=False))


class Room:
    """What the nodes of some GPU types could give a job at best, if nothing else ran: no types are all types."""

    def __init__(self, topology: Topology, types: tuple[str, ...]) -> None:
        with_gpus = [i for i, node in enumerate(topology.nodes) if node.gpus]
        nodes = [i for i in with_gpus if topology.nodes[i].gpu_type in types] or with_gpus
        self._topology = topology
        self._nodes = nodes
        self._everywhere = _descending(topology, nodes)
        racks: dict[int, list[int]] = {}
        for i in nodes:
            racks.setdefault(topology.domain_of[topology.levels[-1]][i] if topology.levels else 0, []).append(i)
        self._racks = tuple(dict.fromkeys(_descending(topology, rack) for rack in racks.values()))
        self._inside = _largest_inside(topology, nodes)
        self._known: dict[tuple[int, ...], tuple[Spread, ...]] = {}

    def spreads(self, tasks: tuple[int, ...]) -> tuple[Spread, ...]:
        """Ways to lay tasks of so many GPUs each that may be the best; which of them is, depends on the curve."""
        found = self._known.get(tasks)
        if found is None:
            found = self._known[tasks] = self._spreads(tasks)
        return found

    def _spreads(self, tasks: tuple[int, ...]) -> tuple[Spread, ...]:
        gpus = sum(tasks)
        for distance, largest in self._inside:
            if gpus <= largest:
                return (Spread(distance, 1),)
        sizes = sorted(Counter(tasks).items(), reverse=True)
        in_rack = min(filter(None, (_fewest_nodes(sizes, rack) for rack in self._racks)), default=0)
        anywhere = _fewest_nodes(sizes, self._everywhere)
        found = ((Distance.RACK, in_rack), (Distance.FAR, anywhere))
        return tuple(Spread(distance, nodes) for distance, nodes in found if nodes)

    def compact(self, gpus: int, task_gpus: int, tp: int) -> list[Path]:
        """Positions of devices as close as they come: whole nodes of the largest kind, rack by rack.

        There may be more of them than the cluster has: they are a measure, not a placement.
        """
        topology = self._topology
        node = max(self._nodes, key=lambda i: topology.nodes[i].gpus)
        size = topology.nodes[node].gpus
        # A node holds whole tasks, and of these whole TP groups, unless one alone is larger than the node.
        per_node = (size - size % task_gpus) or size
        per_node = (per_node - per_node % tp) or per_node
        above = [self._most_nodes(level) for level in topology.levels]
        inside = [topology.position(node, device)[len(above) + 1 :] for device in range(per_node)]
        places = (divmod(i, per_node) for i in range(gpus))
        return [(*(at // most for most in above), at, *inside[device]) for at, device in places]

    def _most_nodes(self, level: str) -> int:
        """How many nodes of these types the fullest domain of a level has."""
        domain_of = self._topology.domain_of[level]
        return max(Counter(domain_of[i] for i in self._nodes).values())


def _descending(topology: Topology, nodes: Sequence[int]) -> tuple[int, ...]:
    return tuple(sorted((topology.nodes[i].gpus for i in nodes), reverse=True))


def _largest_inside(topology: Topology, nodes: Sequence[int]) -> list[tuple[Distance, int]]:
    """The most GPUs that lie in one switch, one socket and one node, as far as there are such."""
    largest: dict[Distance, int] = {}
    for layout in dict.fromkeys(topology.layouts[i] for i in nodes):
        for distance, groups in _domains(layout):
            most = max(group.bit_count() for group in groups)
            largest[distance] = max(largest.get(distance, 0), most)
    return sorted(largest.items())


def _fewest_nodes(sizes: Sequence[tuple[int, int]], rooms: Sequence[int]) -> int:
    """How many nodes tasks take, given as (GPUs, how many) from the largest: each goes to the first that has room.

    Nodes are given by their GPUs from the largest. 0 if there is not enough room.
    """
    left: list[int] = []
    fresh = iter(rooms)
    for size, count in sizes:
        for i, room in enumerate(left):
            taken = min(count, room // size)
            left[i] -= taken * size
            count -= taken
        while count:
            room = next(fresh, 0)
            if room < size:
                return 0
            taken = min(count, room // size)
            left.append(room - taken * size)
            count -= taken
    return len(left)


def tasks_of(placement: Placement) -> tuple[int, ...]:
    """The GPUs of each task that has some."""
    return tuple(len(slot.devices) for slot in placement.slots if slot.devices)


FLAT_CURVES: Mapping[Family, Curve] = dict.fromkeys(Family, Curve(1.0, 1.0, 1.0, 1.0, 1.0))
"""Wherever a job lies, it runs as fast as it can."""
