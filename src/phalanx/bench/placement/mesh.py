"""How much dearer mesh layouts are than the cheapest layout there is.

Draws small fragmented clusters of three levels and plans that fit them, and compares by `step_cost` the layout that
phalanx chooses, and the plain inside-out fill, with the optimum found by exhaustive search.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import inf

from phalanx.bench.row import Row, row
from phalanx.placement.cost import Flows, Group, StepModel, Wiring, step_cost
from phalanx.placement.fabric import Fabric, Link, Path
from phalanx.placement.mesh import inside_out, lay_out
from phalanx.workload.parallel import ParallelPlan, Traffic

GPUS_MAX = 24
MEAN_TARGET_PERCENT = 5.0
WORST_TARGET_PERCENT = 30.0

Cells = list[Group | None]
"""The TP groups in rank order, as far as they are placed."""


def run(instances: int = 500, seed: int = 0) -> list[Row]:
    """The mean and the worst excess over the optimum, of phalanx's layouts and of the plain fill."""
    generator = random.Random(seed)
    ours: list[float] = []
    plain: list[float] = []
    for _ in range(instances):
        instance = draw(generator)
        chosen_ms, plain_ms = instance.cost_ms(instance.chosen()), instance.cost_ms(instance.plain())
        optimum_ms = Exhaustive(instance).cheapest_ms(chosen_ms)
        ours.append(_excess_percent(chosen_ms, optimum_ms))
        plain.append(_excess_percent(plain_ms, optimum_ms))
    return [
        row(f"mesh cost above the optimum, mean of {instances}", sum(ours) / instances, "%", MEAN_TARGET_PERCENT),
        row(f"mesh cost above the optimum, worst of {instances}", max(ours), "%", WORST_TARGET_PERCENT),
        row(f"inside-out fill above the optimum, mean of {instances}", sum(plain) / instances, "%"),
        row(f"inside-out fill above the optimum, worst of {instances}", max(plain), "%"),
    ]


def _excess_percent(cost_ms: float, optimum_ms: float) -> float:
    return (cost_ms / optimum_ms - 1) * 100


@dataclass(frozen=True, slots=True)
class Instance:
    """A cluster with some devices free, and a plan that fits there."""

    free: tuple[Path, ...]
    plan: ParallelPlan
    traffic: Traffic
    fabric: Fabric
    tp_within: int

    def chosen(self) -> tuple[int, ...] | None:
        return lay_out(self.free, self.plan, self.traffic, self.fabric, self.tp_within)

    def plain(self) -> tuple[int, ...] | None:
        return inside_out(self.free, self.plan, self.fabric, self.tp_within)

    def cost_ms(self, order: tuple[int, ...] | None) -> float:
        assert order is not None, "only plans that fit are drawn"
        return step_cost(self.plan, self.traffic, [self.free[i] for i in order], self.fabric).total_ms


def draw(generator: random.Random) -> Instance:
    """Racks of nodes, or nodes whose GPUs hang on two switches; inner links are never slower than outer ones."""
    while True:
        levels, tp_within, sizes = _draw_shape(generator)
        free_share = generator.uniform(0.4, 1.0)
        places = [(i, j, k) for i in range(sizes[0]) for j in range(sizes[1]) for k in range(sizes[2])]
        free = [place for place in places if generator.random() < free_share]
        generator.shuffle(free)
        plan = _draw_plan(generator)
        instance = Instance(tuple(free), plan, _draw_traffic(generator), _draw_fabric(generator, levels), tp_within)
        if len(places) <= GPUS_MAX and _is_searchable(plan, tp_within) and instance.plain() is not None:
            return instance


def _draw_shape(generator: random.Random) -> tuple[tuple[str, ...], int, tuple[int, int, int]]:
    if generator.random() < 0.5:
        sizes = (generator.randint(1, 3), generator.randint(2, 4), generator.choice((2, 4, 8)))
        return ("rack", "node", "gpu"), 2, sizes
    return ("node", "switch", "gpu"), 1, (generator.randint(2, 6), 2, generator.choice((2, 4)))


def _draw_plan(generator: random.Random) -> ParallelPlan:
    return ParallelPlan(generator.choice((1, 2, 2, 4)), generator.randint(1, 4), generator.randint(1, 6))


def _is_searchable(plan: ParallelPlan, tp_within: int) -> bool:
    """Whether an exhaustive search ends in seconds: on a node with two switches a group of tp can lie in 2^tp ways."""
    groups_max = {1: 8, 2: 6, 4: 3}[plan.tp] if tp_within == 1 else 8
    return plan.world_size >= 4 and plan.group_count <= groups_max


def _draw_fabric(generator: random.Random, levels: tuple[str, ...]) -> Fabric:
    inner = Link(generator.choice((32.0, 64.0, 300.0, 450.0)), generator.choice((1.0, 2.0)))
    middle = _draw_outer(generator, inner, (1.5, 2.0, 4.0, 8.0))
    outer = _draw_outer(generator, middle, (1.0, 2.0, 4.0))
    return Fabric(levels, (outer, middle, inner))


def _draw_outer(generator: random.Random, inner: Link, slower: Sequence[float]) -> Link:
    return Link(
        inner.gb_s / generator.choice(slower),
        inner.latency_us * generator.choice((1.0, 2.0, 4.0)),
        generator.choice((1, 2, 4, 8)),
    )


def _draw_traffic(generator: random.Random) -> Traffic:
    return Traffic(
        hidden_dim=generator.choice((1024, 4096, 8192)),
        seq_len=generator.choice((512, 2048, 8192)),
        num_params_billions=generator.choice((0.1, 0.3, 1.0, 3.0, 7.0)),
        layers=generator.choice((4, 16, 32)),
        micro_batches=generator.choice((1, 4, 16)),
    )


class Exhaustive:
    """The optimum, by branch and bound over all layouts.

    It gives each rank in turn every lowest domain ("home") that has a device left and, inside a TP group, lies in the
    group's TP domain. Nothing is left out but what cannot matter:

    - Devices of one home have the same links to all others, so which of them a rank gets changes no cost.
    - Of sibling domains that no rank lies in yet and that have equal free devices below, only the first is tried:
      exchanging two of them changes neither the ranks that are placed nor any link.
    - A branch ends when no completion of it can be cheaper than the best layout known. See `Bounds`.
    """

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self._free = Counter(sorted(path[:-1] for path in instance.free))
        self._homes = list(self._free)
        self._used: Counter[Path] = Counter()
        self._children: dict[Path, list[Path]] = {}
        for home in self._homes:
            for length in range(len(home)):
                siblings = self._children.setdefault(home[:length], [])
                if home[: length + 1] not in siblings:
                    siblings.append(home[: length + 1])

    def cheapest_ms(self, known_ms: float) -> float:
        """The cost of the cheapest layout, given the cost of some layout."""
        plan = self._instance.plan
        model = StepModel(plan, self._instance.traffic, Wiring(self._instance.fabric, self._homes))
        bounds = Bounds(model)
        stages, replicas = range(plan.pp), range(0, plan.group_count, plan.pp)
        # One group or one replica with the cluster to itself: no layout can do better in that dimension.
        tp_floor_ms = self._least_ms([0], bounds.tp_ms, bounds.tp_ms, inf)
        pp_floor_ms = self._least_ms(stages, bounds.pp_ms, bounds.pp_ms, inf)
        dp_floor_ms = self._least_ms(replicas, bounds.dp_ms, bounds.dp_ms, inf)

        def bound_ms(cells: Cells) -> float:
            return (
                max(tp_floor_ms, bounds.tp_ms(cells))
                + max(pp_floor_ms, bounds.pp_ms(cells))
                + max(dp_floor_ms, bounds.dp_ms(cells))
            )

        def price_ms(cells: Cells) -> float:
            return model.cost([group for group in cells if group is not None]).total_ms

        # Groups that share the dearer dimension come one after another, so that its bound rises early.
        by_replica = list(range(plan.group_count))
        by_stage = [d + p for p in stages for d in replicas]
        return self._least_ms(by_stage if dp_floor_ms > pp_floor_ms else by_replica, bound_ms, price_ms, known_ms)

    def _least_ms(
        self,
        order: Sequence[int],
        bound_ms: Callable[[Cells], float],
        price_ms: Callable[[Cells], float],
        best_ms: float,
    ) -> float:
        """The least price of placing the groups of `order`, or `best_ms` if there is nothing cheaper."""
        cells: Cells = [None] * self._instance.plan.group_count

        def descend(depth: int, best_ms: float) -> float:
            if depth == len(order):
                return min(best_ms, price_ms(cells))
            branches: list[tuple[float, Group]] = []
            for group in self._groups((), ()):
                cells[order[depth]] = group
                branches.append((bound_ms(cells), group))
            for least_ms, group in sorted(branches):
                # Sums of the same times in another order differ in the last digits.
                if least_ms >= best_ms * (1 - 1e-12):
                    break
                cells[order[depth]] = group
                self._occupy(group, 1)
                best_ms = descend(depth + 1, best_ms)
                self._occupy(group, -1)
            cells[order[depth]] = None
            return best_ms

        return descend(0, best_ms)

    def _groups(self, members: Group, within: Path) -> Iterator[Group]:
        """The TP groups that begin with `members` and go on in the domain `within`."""
        if len(members) == self._instance.plan.tp:
            yield members
            return
        for home in list(self._unlike_homes(within)):
            number = self._homes.index(home)
            self._occupy((number,), 1)
            yield from self._groups((*members, number), home[: self._instance.tp_within])
            self._occupy((number,), -1)

    def _unlike_homes(self, domain: Path) -> Iterator[Path]:
        """The homes in a domain that have devices left, one for all those that an exchange of siblings makes equal."""
        if domain not in self._children:
            if self._used[domain] < self._free[domain]:
                yield domain
            return
        untouched: list[object] = []
        for child in self._children[domain]:
            if not self._used[child]:
                shape = self._shape(child)
                if shape in untouched:
                    continue
                untouched.append(shape)
            yield from self._unlike_homes(child)

    def _shape(self, domain: Path) -> str:
        if domain not in self._children:
            return str(self._free[domain])
        return f"({' '.join(sorted(self._shape(child) for child in self._children[domain]))})"

    def _occupy(self, group: Group, change: int) -> None:
        for number in group:
            home = self._homes[number]
            for length in range(len(home) + 1):
                self._used[home[:length]] += change


class Bounds:
    """What the groups placed so far cost at least, whatever is placed later.

    More groups add transfers to a round and volume to an uplink and take none away, so a dimension's cost without them
    is a bound. Only a hierarchical all-reduce can gain from a member that comes later, when that member makes its
    group use another lane of an uplink: groups that are not complete are taken to use as many as they could.
    """

    def __init__(self, model: StepModel) -> None:
        self._model = model
        self._links = model.wiring.fabric.links
        self._known_flows: dict[tuple[Group, Group], Flows] = {}

    def tp_ms(self, cells: Cells) -> float:
        placed = Counter(group for group in cells if group is not None)
        if self._model.plan.tp == 1 or not placed:
            return 0.0
        _, one_ms = self._model.wiring.cheapest_all_reduce(placed, self._model.tp_bytes)
        return self._model.tp_all_reduces * one_ms

    def pp_ms(self, cells: Cells) -> float:
        plan, size_bytes = self._model.plan, self._model.pp_bytes
        boundaries = [
            self._sends([(cells[i], cells[i + 1]) for i in range(p, plan.group_count, plan.pp)])
            for p in range(plan.pp - 1)
        ]
        one_way_ms = sum(self._model.wiring.round_ms(sends, size_bytes) for sends in boundaries)
        together = [send for sends in boundaries for send in sends]
        one_way_ms += (self._model.micro_batches - 1) * self._model.wiring.round_ms(together, size_bytes)
        return 2 * one_way_ms

    def dp_ms(self, cells: Cells) -> float:
        plan = self._model.plan
        if plan.dp == 1:
            return 0.0
        columns = [cells[p :: plan.pp] for p in range(plan.pp)]
        return min(self._ring_ms(columns), self._tree_ms(columns), self._hierarchical_ms(columns))

    def _ring_ms(self, columns: Sequence[Cells]) -> float:
        dp, size_bytes = self._model.plan.dp, self._model.dp_bytes
        sends = self._sends([(column[i], column[(i + 1) % dp]) for column in columns for i in range(dp)])
        return 2 * (dp - 1) * self._model.wiring.round_ms(sends, size_bytes / dp)

    def _tree_ms(self, columns: Sequence[Cells]) -> float:
        dp = self._model.plan.dp
        one_way_ms = 0.0
        for distance in [1 << bit for bit in range((dp - 1).bit_length())]:
            members = range(distance, dp, 2 * distance)
            sends = self._sends([(column[i], column[i - distance]) for column in columns for i in members])
            one_way_ms += self._model.wiring.round_ms(sends, self._model.dp_bytes)
        return 2 * one_way_ms

    def _hierarchical_ms(self, columns: Sequence[Cells]) -> float:
        steps, loads = [0] * len(self._links), [0.0] * len(self._links)
        uplinks: dict[int, float] = {}
        for column in columns:
            placed = [group for group in column if group is not None]
            for peers in zip(*placed, strict=True):
                for level, domain, ways, members in self._model.wiring.exchanges(peers):
                    volume, lanes = (ways - 1) / ways, members if len(placed) == len(column) else len(column)
                    steps[level] = max(steps[level], ways - 1)
                    if level == len(self._links) - 1:
                        loads[level] = max(loads[level], volume)
                        continue
                    uplinks[domain] = uplinks.get(domain, 0.0) + volume
                    loads[level] = max(loads[level], volume / lanes, uplinks[domain] / self._links[level].lanes)
        return 2 * sum(
            step * link.latency_us / 1e3 + self._model.dp_bytes * load / (link.gb_s * 1e6)
            for step, load, link in zip(steps, loads, self._links, strict=True)
        )

    def _sends(self, pairs: Sequence[tuple[Group | None, Group | None]]) -> list[tuple[Flows, int]]:
        """The transfers of each pair of groups that are both placed."""
        return [
            (self._flows(sending, receiving), 1)
            for sending, receiving in pairs
            if sending is not None and receiving is not None
        ]

    def _flows(self, sending: Group, receiving: Group) -> Flows:
        pair = (sending, receiving)
        if pair not in self._known_flows:
            self._known_flows[pair] = self._model.wiring.flows(zip(sending, receiving, strict=True))
        return self._known_flows[pair]
