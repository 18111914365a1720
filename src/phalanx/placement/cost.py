"""What a layout's communication costs in one training step.

Two models. `seed_cost` is data size over bandwidth and nothing else. `step_cost` counts latency, the steps of each
collective and the sharing of links (alpha-beta): a round of transfers that run at once takes, at its slowest,
`alpha + bytes * sharing / bandwidth`, where alpha and bandwidth belong to the level at which sender and receiver meet
and sharing is how many transfers per lane leave (or enter) the same domain for that level in that round. All groups of
one dimension run at once and share; different dimensions and different jobs do not. A device has its own port, so
transfers inside a lowest domain never share.

Costs of collectives follow Thakur, Rabenseifner and Gropp, "Optimization of Collective Communication Operations in
MPICH" (2005), without their computation term; the ring's optimality in bandwidth is Patarasuk and Yuan's (2009).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, fsum, inf
from typing import NamedTuple

from phalanx.placement.fabric import Fabric, Path
from phalanx.workload.parallel import ParallelPlan, Traffic

Group = tuple[int, ...]
"""The members of one collective in rank order, each as the number of the lowest domain that holds it."""

RING, TREE, HIERARCHICAL = "ring", "tree", "hierarchical"


@dataclass(frozen=True, slots=True)
class StepCost:
    """Communication time of one step by dimension; `algorithms` pairs a dimension with its all-reduce."""

    tp_ms: float
    pp_ms: float
    dp_ms: float
    algorithms: tuple[tuple[str, str], ...] = ()

    @property
    def total_ms(self) -> float:
        return self.tp_ms + self.pp_ms + self.dp_ms

    @property
    def bottleneck(self) -> str:
        """The dimension that takes longest: "tp", "pp" or "dp", the first of these when they tie."""
        times_ms = {"tp": self.tp_ms, "pp": self.pp_ms, "dp": self.dp_ms}
        return max(times_ms, key=times_ms.__getitem__)


def seed_cost(plan: ParallelPlan, traffic: Traffic, devices: Sequence[Path], fabric: Fabric) -> StepCost:
    """Data size over bandwidth, one all-reduce or send per dimension, no latency and no sharing of links.

    tp: the slowest TP group, at the least bandwidth inside it. pp: the sum over the `pp - 1` boundaries, which the
    activations pass one after another, each at the slowest link between a rank and its peer in the next stage of the
    same replica. dp: the whole gradient at the least bandwidth between any two devices of different replicas.
    """
    fabric.require_paths(*devices)
    tp_bytes = traffic.seq_len * traffic.hidden_dim * traffic.dtype_bytes
    return StepCost(
        tp_ms=_seed_ring_ms(plan.tp, tp_bytes, _least_gb_s_inside(plan.tp_groups(devices), fabric)),
        pp_ms=fsum(
            traffic.activation_bytes / (_least_gb_s_between(sending, receiving, fabric) * 1e6)
            for sending, receiving in pairwise(plan.pp_stages(devices))
        ),
        dp_ms=_seed_ring_ms(plan.dp, traffic.gradient_bytes, _least_gb_s_across(plan.dp_replicas(devices), fabric)),
    )


def step_cost(plan: ParallelPlan, traffic: Traffic, devices: Sequence[Path], fabric: Fabric) -> StepCost:
    """The alpha-beta time of a step's communication, each dimension with its cheapest all-reduce."""
    wiring, homes = _wire(fabric, devices)
    return StepModel(plan, traffic, wiring).cost([tuple(group) for group in plan.tp_groups(homes)])


def point_to_point_ms(fabric: Fabric, source: Path, target: Path, size_bytes: float) -> float:
    return fabric.link(source, target).transfer_ms(size_bytes)


def ring_all_reduce_ms(fabric: Fabric, paths: Sequence[Path], size_bytes: float) -> float:
    """A ring in the order given: a reduce-scatter, then an all-gather."""
    wiring, group = _wire(fabric, paths)
    return wiring.ring_all_reduce_ms({group: 1}, size_bytes)


def tree_all_reduce_ms(fabric: Fabric, paths: Sequence[Path], size_bytes: float) -> float:
    """A binomial tree in the order given: reduce to the first member, then broadcast."""
    wiring, group = _wire(fabric, paths)
    return wiring.tree_all_reduce_ms({group: 1}, size_bytes)


def hierarchical_all_reduce_ms(fabric: Fabric, paths: Sequence[Path], size_bytes: float) -> float:
    """Reduce-scatter level by level outwards, then all-gather level by level inwards."""
    wiring, group = _wire(fabric, paths)
    return wiring.hierarchical_all_reduce_ms({group: 1}, size_bytes)


def cheapest_all_reduce(fabric: Fabric, paths: Sequence[Path], size_bytes: float) -> tuple[str, float]:
    """The name and the time of the cheapest all-reduce."""
    wiring, group = _wire(fabric, paths)
    return wiring.cheapest_all_reduce({group: 1}, size_bytes)


def reduce_scatter_ms(fabric: Fabric, paths: Sequence[Path], size_bytes: float) -> float:
    """A ring in which every member ends with its part of a vector of `size_bytes`."""
    wiring, group = _wire(fabric, paths)
    return wiring.ring_pass_ms({group: 1}, size_bytes)


def all_gather_ms(fabric: Fabric, paths: Sequence[Path], size_bytes: float) -> float:
    """A ring in which every member ends with the whole vector of `size_bytes`: the mirror of a reduce-scatter."""
    return reduce_scatter_ms(fabric, paths, size_bytes)


def all_to_all_ms(fabric: Fabric, paths: Sequence[Path], size_bytes: float) -> float:
    """Pairwise exchange; every member has `size_bytes` to hand out, an equal part for each member.

    p - 1 rounds, in round k each sends n/p bytes to the member k places on: (p - 1) alpha + n beta (p - 1)/p.
    """
    wiring, group = _wire(fabric, paths)
    size = len(group)
    rounds = (zip(group, group[shift:] + group[:shift], strict=True) for shift in range(1, size))
    return sum(wiring.round_ms([(wiring.flows(pairs), 1)], size_bytes / size) for pairs in rounds)


Flows = tuple[tuple[int, int, int], ...]
"""Transfers that run at once, as (level, end, count); an end is a domain's sending or its receiving side."""


class Exchange(NamedTuple):
    """In a hierarchical all-reduce: `members` of a group in `domain` exchange with those in `ways - 1` siblings."""

    level: int
    domain: int
    ways: int
    members: int


class Wiring:
    """A fabric seen from the lowest domains of one cluster, which it numbers in the order given.

    Devices of one lowest domain are alike to the cost model, so groups are tuples of those numbers. What a group does
    to each link is worked out once and kept: a layout is then priced by adding up the facts of its groups.
    """

    def __init__(self, fabric: Fabric, homes: Sequence[Path]) -> None:
        self.fabric = fabric
        self._innermost = len(fabric.distinct) - 1
        links = [fabric.links[level] for level in fabric.distinct]
        self._links = [(link.latency_us / 1e3, link.gb_s * 1e6, link.lanes) for link in links]
        numbers: dict[Path, int] = {}
        self._domains = [
            tuple(numbers.setdefault(home[: level + 1], len(numbers)) for level in fabric.distinct[:-1])
            for home in homes
        ]
        self._rings: dict[Group, Flows] = {}
        self._trees: dict[Group, list[Flows]] = {}
        self._known_exchanges: dict[Group, list[Exchange]] = {}

    def cheapest_all_reduce(self, groups: Mapping[Group, int], size_bytes: float) -> tuple[str, float]:
        """The cheapest algorithm for `groups` (and how many there are of each) that all-reduce at once."""
        loads = self._ring_loads(groups)
        times_ms = {RING: 2 * self._pass_ms(groups, loads, size_bytes)}
        outermost = next((level for level, load in enumerate(loads) if load), self._innermost)
        # Inside one lowest domain there is nothing to nest: the hierarchical form is the ring.
        if outermost < self._innermost:
            times_ms[HIERARCHICAL] = self.hierarchical_all_reduce_ms(groups, size_bytes)
        if self._tree_floor_ms(groups, outermost, size_bytes) < min(times_ms.values()):
            times_ms[TREE] = self.tree_all_reduce_ms(groups, size_bytes)
        name = min(times_ms, key=times_ms.__getitem__)
        return name, times_ms[name]

    def _tree_floor_ms(self, groups: Mapping[Group, int], outermost: int, size_bytes: float) -> float:
        """What a tree takes at least, so that it need not be worked out where it cannot win.

        Of its rounds, each with the whole vector, one passes the outermost level and the rest some level.
        """
        rounds = (len(next(iter(groups))) - 1).bit_length()
        times_ms = [latency_ms + size_bytes / bytes_per_ms for latency_ms, bytes_per_ms, _ in self._links]
        return 2 * (times_ms[outermost] + (rounds - 1) * min(times_ms))

    def ring_all_reduce_ms(self, groups: Mapping[Group, int], size_bytes: float) -> float:
        # 2 (p - 1) alpha + 2 (p - 1)/p n beta: no all-reduce sends less (Patarasuk and Yuan).
        return 2 * self.ring_pass_ms(groups, size_bytes)

    def ring_pass_ms(self, groups: Mapping[Group, int], size_bytes: float) -> float:
        """Once round the ring, p - 1 rounds of n/p bytes: a reduce-scatter or an all-gather."""
        return self._pass_ms(groups, self._ring_loads(groups), size_bytes)

    def tree_all_reduce_ms(self, groups: Mapping[Group, int], size_bytes: float) -> float:
        # 2 ceil(lg p) (alpha + n beta): a binomial reduce, and a broadcast that runs the same rounds backwards.
        counts = list(groups.values())
        rounds = zip(*[self._tree(group) for group in groups], strict=True)
        return 2 * sum(self.round_ms(zip(flows, counts, strict=True), size_bytes) for flows in rounds)

    def hierarchical_all_reduce_ms(self, groups: Mapping[Group, int], size_bytes: float) -> float:
        """Each way and per level (q - 1) alpha + (q - 1)/q n beta, for q sibling domains.

        The members of a domain hold its vector in equal parts and send them side by side, so a group uses as many
        lanes of the uplink as it has members there, and all groups together no more than there are.
        """
        steps, loads = [0] * len(self._links), [0.0] * len(self._links)
        uplinks: dict[int, float] = {}
        for group, count in groups.items():
            for level, domain, ways, members in self.exchanges(group):
                steps[level] = max(steps[level], ways - 1)
                volume = (ways - 1) / ways
                if level == self._innermost:
                    loads[level] = max(loads[level], volume)
                    continue
                uplinks[domain] = total = uplinks.get(domain, 0.0) + count * volume
                loads[level] = max(loads[level], volume / members, total / self._links[level][2])
        one_way_ms = sum(
            step * latency_ms + size_bytes * load / bytes_per_ms
            for step, load, (latency_ms, bytes_per_ms, _) in zip(steps, loads, self._links, strict=True)
        )
        return 2 * one_way_ms

    def round_ms(self, parts: Iterable[tuple[Flows, int]], size_bytes: float) -> float:
        """The slowest of the transfers of `parts` (each so many times) that run at once, `size_bytes` each."""
        return self._slowest_ms(self._loads(parts), size_bytes)

    def _loads(self, parts: Iterable[tuple[Flows, int]]) -> list[int]:
        """Per level, the most transfers that any one domain sends or receives there."""
        innermost = self._innermost
        worst = [0] * len(self._links)
        shared: dict[int, int] = {}
        for flows, times in parts:
            for level, end, count in flows:
                if level == innermost:
                    worst[level] = 1
                else:
                    shared[end] = load = shared.get(end, 0) + count * times
                    if load > worst[level]:
                        worst[level] = load
        return worst

    def _slowest_ms(self, loads: Sequence[int], size_bytes: float) -> float:
        slowest_ms = 0.0
        for load, (latency_ms, bytes_per_ms, lanes) in zip(loads, self._links, strict=True):
            if load:
                slowest_ms = max(slowest_ms, latency_ms + size_bytes * max(1.0, load / lanes) / bytes_per_ms)
        return slowest_ms

    def _ring_loads(self, groups: Mapping[Group, int]) -> list[int]:
        return self._loads((self._ring(group), count) for group, count in groups.items())

    def _pass_ms(self, groups: Mapping[Group, int], loads: Sequence[int], size_bytes: float) -> float:
        size = len(next(iter(groups)))
        return (size - 1) * self._slowest_ms(loads, size_bytes / size)

    def flows(self, pairs: Iterable[tuple[int, int]]) -> Flows:
        """What transfers between (source, target) homes put on each end of the links they cross."""
        loads: dict[tuple[int, int], int] = {}
        for (source, target), count in Counter(pairs).items():
            for end in self._ends(source, target):
                loads[end] = loads.get(end, 0) + count
        return tuple((level, end, count) for (level, end), count in loads.items())

    def _ends(self, source: int, target: int) -> tuple[tuple[int, int], ...]:
        for level, (sender, receiver) in enumerate(zip(self._domains[source], self._domains[target], strict=True)):
            if sender != receiver:
                return (level, 2 * sender), (level, 2 * receiver + 1)
        return ((self._innermost, -1),)

    def _ring(self, group: Group) -> Flows:
        if group not in self._rings:
            links = zip(group, group[1:] + group[:1], strict=True) if len(group) > 1 else ()
            self._rings[group] = self.flows(links)
        return self._rings[group]

    def _tree(self, group: Group) -> list[Flows]:
        if group not in self._trees:
            distances = [1 << bit for bit in range((len(group) - 1).bit_length())]
            self._trees[group] = [
                self.flows((group[i], group[i - distance]) for i in range(distance, len(group), 2 * distance))
                for distance in distances
            ]
        return self._trees[group]

    def exchanges(self, group: Group) -> list[Exchange]:
        """What the members of a group exchange in a hierarchical all-reduce, over all levels."""
        if group not in self._known_exchanges:
            self._known_exchanges[group] = list(self._exchanges(group))
        return self._known_exchanges[group]

    def _exchanges(self, group: Group) -> Iterator[Exchange]:
        homes = Counter([self._domains[home] for home in group])
        for count in homes.values():
            if count > 1:
                yield Exchange(self._innermost, domain=-1, ways=count, members=1)
        for level in range(self._innermost):
            members: dict[int, int] = {}
            siblings: dict[int, list[int]] = {}
            for domains, count in homes.items():
                child, parent = domains[level], domains[level - 1] if level else -1
                if child not in members:
                    members[child] = 0
                    siblings.setdefault(parent, []).append(child)
                members[child] += count
            for children in siblings.values():
                if len(children) > 1:
                    yield from (Exchange(level, child, len(children), members[child]) for child in children)


class StepModel:
    """Prices layouts of one plan on one wiring; a layout is its TP groups in rank order."""

    def __init__(self, plan: ParallelPlan, traffic: Traffic, wiring: Wiring) -> None:
        self.plan = plan
        self.wiring = wiring
        # Two all-reduces a layer forward and two backward (attention and MLP), on the layers of one stage.
        self.tp_all_reduces = 4 * ceil(traffic.layers / plan.pp) * traffic.micro_batches
        self.tp_bytes = traffic.activation_bytes
        # The ranks of a TP group hold the same activations, so each sends its share and the receivers gather.
        self.pp_bytes = traffic.activation_bytes / plan.tp
        self.micro_batches = traffic.micro_batches
        self.dp_bytes = traffic.gradient_bytes / (plan.tp * plan.pp)
        self._sends: dict[tuple[Group, Group], Flows] = {}

    def cost(self, groups: Sequence[Group]) -> StepCost:
        algorithms: list[tuple[str, str]] = []
        tp_ms = dp_ms = 0.0
        if self.plan.tp > 1:
            name, one_ms = self.wiring.cheapest_all_reduce(Counter(groups), self.tp_bytes)
            tp_ms = self.tp_all_reduces * one_ms
            algorithms.append(("tp", name))
        if self.plan.dp > 1:
            name, dp_ms = self.wiring.cheapest_all_reduce(self._dp_groups(groups), self.dp_bytes)
            algorithms.append(("dp", name))
        return StepCost(tp_ms, self._pp_ms(groups), dp_ms, tuple(algorithms))

    def _pp_ms(self, groups: Sequence[Group]) -> float:
        """The first micro-batch passes the boundaries one by one, the rest follow at the pace of all at once.

        Once forward with activations and once backward with their gradients, which are as large.
        """
        boundaries = [
            [(self._send(sending, receiving), 1) for sending, receiving in zip(now, then, strict=True)]
            for now, then in pairwise([groups[p :: self.plan.pp] for p in range(self.plan.pp)])
        ]
        one_way_ms = fsum(self.wiring.round_ms(sends, self.pp_bytes) for sends in boundaries)
        if self.micro_batches > 1:
            together = [send for sends in boundaries for send in sends]
            one_way_ms += (self.micro_batches - 1) * self.wiring.round_ms(together, self.pp_bytes)
        return 2 * one_way_ms

    def _send(self, sending: Group, receiving: Group) -> Flows:
        pair = (sending, receiving)
        if pair not in self._sends:
            self._sends[pair] = self.wiring.flows(zip(sending, receiving, strict=True))
        return self._sends[pair]

    def _dp_groups(self, groups: Sequence[Group]) -> Counter[Group]:
        stride = self.plan.pp
        return Counter(peers for p in range(stride) for peers in zip(*groups[p::stride], strict=True))


def _wire(fabric: Fabric, paths: Sequence[Path]) -> tuple[Wiring, Group]:
    fabric.require_paths(*paths)
    if not paths or len(set(paths)) != len(paths):
        raise ValueError("cost: expected at least one device and no device twice")
    homes: dict[Path, int] = {}
    group = tuple(homes.setdefault(path[:-1], len(homes)) for path in paths)
    return Wiring(fabric, list(homes)), group


def _seed_ring_ms(size: int, data_bytes: float, gb_s: float) -> float:
    return 2 * (size - 1) / size * data_bytes / (gb_s * 1e6)


def _least_gb_s_inside(groups: Sequence[Sequence[Path]], fabric: Fabric) -> float:
    """The least bandwidth between any two members of one group."""
    return min(
        (fabric.links[level].gb_s for group in groups for level in _meeting_levels(group, fabric)),
        default=inf,
    )


def _meeting_levels(group: Sequence[Path], fabric: Fabric) -> Iterator[int]:
    """The levels at which some two members meet: those that tell apart more domains than the level above."""
    above = 1
    for level in range(fabric.depth):
        here = len({path[: level + 1] for path in group})
        if here > above:
            yield level
        above = here


def _least_gb_s_between(sending: Sequence[Path], receiving: Sequence[Path], fabric: Fabric) -> float:
    return min(fabric.link(source, target).gb_s for source, target in zip(sending, receiving, strict=True))


def _least_gb_s_across(replicas: Sequence[Sequence[Path]], fabric: Fabric) -> float:
    """The least bandwidth between any two devices of different replicas, without trying all pairs.

    A domain with at least two children and at least two replicas inside always has two children with devices of two
    different replicas: if one child holds two replicas, any device of another child differs from one of them; if each
    holds one replica, two children hold different ones.
    """
    least_gb_s = inf
    for level in range(fabric.depth):
        inside: dict[Path, tuple[int, int]] = {}
        mixed: dict[Path, list[bool]] = {}
        for number, replica in enumerate(replicas):
            for path in replica:
                parent, child = path[:level], path[level]
                first_child, first_replica = inside.setdefault(parent, (child, number))
                seen = mixed.setdefault(parent, [False, False])
                seen[0] |= child != first_child
                seen[1] |= number != first_replica
        if any(all(seen) for seen in mixed.values()):
            least_gb_s = min(least_gb_s, fabric.links[level].gb_s)
    return least_gb_s
