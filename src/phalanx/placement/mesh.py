"""Which free devices a tp × pp × dp mesh gets, and which rank each of them is.

Three choices make a layout. *Forming*: the free devices of a TP domain are cut into TP groups, whole inside its
smaller domains where that works. *Tiling*: the grid of dp × pp groups is cut into tiles of replicas and stages that
should stay together. *Packing*: each tile gets a domain of the tree that holds it. Several of each are combined,
the cost model prices the layouts, and the best are improved by swapping groups while trials are left.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, islice, pairwise, zip_longest

from phalanx.placement.cost import Group, StepModel, Wiring
from phalanx.placement.fabric import Fabric, Path
from phalanx.workload.parallel import ParallelPlan, Traffic

Layout = tuple[Group, ...]
"""The TP groups of a plan in rank order."""

PRICED_RANKS_MAX = 12_000
"""The search ends when it has priced layouts of so many ranks in all, so its time hardly grows with the job."""

TRIALS_MIN = 8

STARTS_MAX = 3
"""How many of the cheapest layouts are improved: the best one to start from is not always the cheapest."""


def lay_out(
    free: Sequence[Path], plan: ParallelPlan, traffic: Traffic, fabric: Fabric, tp_within: int
) -> tuple[int, ...] | None:
    """The free devices to use, as indices into `free` in rank order; None if the plan does not fit.

    Every TP group lies in one domain whose path has length `tp_within`: 2 is the node where the levels are rack, node
    and gpu. The result is the cheapest layout found by `step_cost`, never dearer than the `inside_out` fill.
    """
    stock = _Stock(free, fabric, tp_within)
    plain = _consecutive(stock, plan.tp, tp_within)
    if len(plain) < plan.group_count:
        return None
    if len(stock.homes) == 1:
        return stock.devices(plain[: plan.group_count])
    trials = _Trials(StepModel(plan, traffic, Wiring(fabric, stock.homes)), stock.homes, tp_within)
    trials.price(tuple(plain[: plan.group_count]), plain)
    for layout, groups in islice(_candidates(stock, plan, fabric, tp_within), trials.left):
        trials.price(layout, groups)
    return stock.devices(trials.improved())


def inside_out(free: Sequence[Path], plan: ParallelPlan, fabric: Fabric, tp_within: int) -> tuple[int, ...] | None:
    """The plain fill: free devices in the order of the tree, TP innermost, then PP, then DP."""
    stock = _Stock(free, fabric, tp_within)
    groups = _consecutive(stock, plan.tp, tp_within)
    if len(groups) < plan.group_count:
        return None
    return stock.devices(groups[: plan.group_count])


class _Stock:
    """The free devices by lowest domain ("home"), in the order of the tree."""

    def __init__(self, free: Sequence[Path], fabric: Fabric, tp_within: int) -> None:
        if not 0 <= tp_within < fabric.depth:
            raise ValueError(
                f"mesh: tp_within must be the length of a domain's path, 0 to {fabric.depth - 1}, got {tp_within}"
            )
        fabric.require_paths(*free)
        if len(set(free)) != len(free):
            raise ValueError("mesh: expected every free device once, got a path twice")
        self._indices: dict[Path, list[int]] = {}
        for index in sorted(range(len(free)), key=free.__getitem__):
            self._indices.setdefault(free[index][:-1], []).append(index)
        self.homes = list(self._indices)
        self.counts = [len(indices) for indices in self._indices.values()]

    def by_domain(self, length: int) -> dict[Path, list[int]]:
        """The homes of each domain whose path has this length, by number."""
        domains: dict[Path, list[int]] = {}
        for number, home in enumerate(self.homes):
            domains.setdefault(home[:length], []).append(number)
        return domains

    def devices(self, layout: Sequence[Group]) -> tuple[int, ...]:
        untaken = [iter(indices) for indices in self._indices.values()]
        return tuple(next(untaken[home]) for group in layout for home in group)


class _Trials:
    """Prices layouts until the budget is spent and keeps the cheapest; of equals, the first."""

    def __init__(self, model: StepModel, homes: Sequence[Path], tp_within: int) -> None:
        self.left = max(TRIALS_MIN, PRICED_RANKS_MAX // model.plan.world_size)
        self._model = model
        self._homes = homes
        self._tp_within = tp_within
        self._priced: dict[Layout, tuple[float, Sequence[Group]]] = {}

    def price(self, layout: Layout, groups: Sequence[Group]) -> float:
        """The cost of a layout of some of `groups`."""
        if layout not in self._priced:
            self.left -= 1
            self._priced[layout] = (self._model.cost(layout).total_ms, groups)
        return self._priced[layout][0]

    def improved(self) -> Layout:
        """The cheapest layout, after those that came closest have been changed step by step."""
        starts = sorted(self._priced, key=self._cost_ms)[:STARTS_MAX]
        return min([self._climbed(start) for start in starts], key=self._cost_ms)

    def _cost_ms(self, layout: Layout) -> float:
        return self._priced[layout][0]

    def _climbed(self, layout: Layout) -> Layout:
        """Steps to cheaper layouts until there is none, or no trial is left."""
        groups = self._priced[layout][1]
        reached: Layout | None = None
        while self.left > 0 and layout != reached:
            reached = layout
            steps = _Steps(layout, groups, self._homes, self._tp_within)
            for neighbours in steps.by_kind():
                layout = self._cheapest(layout, neighbours, groups)
                if layout != reached:
                    break
        return layout

    def _cheapest(self, layout: Layout, neighbours: Iterator[Layout], groups: Sequence[Group]) -> Layout:
        best = layout
        for other in neighbours:
            if self.left <= 0:
                break
            if self.price(other, groups) < self._cost_ms(best):
                best = other
        return best


class _Steps:
    """The layouts one step away from a layout."""

    def __init__(self, layout: Layout, groups: Sequence[Group], homes: Sequence[Path], tp_within: int) -> None:
        self._layout = layout
        self._homes = homes
        self._tp_within = tp_within
        self._spares = Counter(groups) - Counter(layout)
        self._touched = {
            homes[home][:length]: True for group in layout for home in group for length in range(len(homes[home]) + 1)
        }

    def by_kind(self) -> Iterator[Iterator[Layout]]:
        """For each position the swaps of its group, then the moves of whole domains."""
        spares = self._unlike_spares()
        for position in range(len(self._layout)):
            yield self._swaps(position, spares)
        for length in range(self._tp_within, 0, -1):
            yield self._moves(length)

    def _swaps(self, position: int, spares: Sequence[Group]) -> Iterator[Layout]:
        """The group at `position` changes places with a later one or with a spare one."""
        layout = self._layout
        here = layout[position]
        for i in range(position + 1, len(layout)):
            if layout[i] != here:
                changed = list(layout)
                changed[position], changed[i] = layout[i], here
                yield tuple(changed)
        for spare in spares:
            yield (*layout[:position], spare, *layout[position + 1 :])

    def _moves(self, length: int) -> Iterator[Layout]:
        """All groups of one domain go to another domain with as many spare ones."""
        tenants: dict[Path, list[int]] = {}
        for position, group in enumerate(self._layout):
            tenants.setdefault(self._homes[group[0]][:length], []).append(position)
        targets = self._unlike_domains(length)
        for domain, positions in tenants.items():
            for target, offered in targets:
                if target != domain and len(offered) >= len(positions):
                    changed = list(self._layout)
                    for position, group in zip(positions, offered, strict=False):
                        changed[position] = group
                    yield tuple(changed)

    def _unlike_spares(self) -> list[Group]:
        """One spare group of each kind: in a large cluster nearly all are alike to the cost model.

        Two are of a kind if there are as many of each and they meet the layout in the same domains.
        """
        kinds: dict[tuple[object, ...], Group] = {}
        for group, copies in self._spares.items():
            meetings = [(self._meeting(self._homes[home]), count) for home, count in Counter(group).items()]
            kinds.setdefault((copies, *meetings), group)
        return list(kinds.values())

    def _unlike_domains(self, length: int) -> list[tuple[Path, list[Group]]]:
        """One domain of each kind with its spare groups: as many in all, as many different, the same meeting."""
        offers: dict[Path, list[Group]] = {}
        for group, copies in self._spares.items():
            offers.setdefault(self._homes[group[0]][:length], []).extend([group] * copies)
        kinds = {
            (self._meeting(domain), len(offered), len(dict.fromkeys(offered))): (domain, offered)
            for domain, offered in offers.items()
        }
        return list(kinds.values())

    def _meeting(self, path: Path) -> Path:
        """The smallest domain around a path in which the layout has a rank."""
        return next(path[:length] for length in range(len(path), -1, -1) if path[:length] in self._touched)


def _consecutive(stock: _Stock, tp: int, within: int) -> list[Group]:
    """TP groups cut from the devices of each domain as they come."""
    groups: list[Group] = []
    for numbers in stock.by_domain(within).values():
        members = [number for number in numbers for _ in range(stock.counts[number])]
        groups += _cut(members, tp)
    return groups


def _cut(members: Sequence[int], tp: int) -> list[Group]:
    return [tuple(members[first : first + tp]) for first in range(0, len(members) - tp + 1, tp)]


Formation = dict[Path, list[Group]]
"""The TP groups of each domain of one path length."""


def _formations(stock: _Stock, plan: ParallelPlan, fabric: Fabric, tp_within: int) -> Iterator[tuple[int, Formation]]:
    """Ways to cut all free devices into TP groups, with the length of the paths that no group crosses."""
    lowest = fabric.depth - 1
    most = sum(
        sum(stock.counts[number] for number in numbers) // plan.tp for numbers in stock.by_domain(tp_within).values()
    )
    for within in range(lowest, tp_within - 1, -1):
        formation = _whole_first(stock, plan.tp, within, lowest)
        yield within, formation
        if sum(len(groups) for groups in formation.values()) == most:
            break
    if tp_within < lowest and plan.tp > 1:
        yield tp_within, _dealt(stock, plan.tp, tp_within, lambda turn, count: turn / count)
        yield tp_within, _dealt(stock, plan.tp, tp_within, lambda turn, count: turn)


def _whole_first(stock: _Stock, tp: int, within: int, lowest: int) -> Formation:
    """Groups inside the lowest domains first; what those leave over is pooled one level up, and so on."""
    formation: Formation = {}
    remainders: dict[Path, list[int]] = {}
    for number, (home, count) in enumerate(zip(stock.homes, stock.counts, strict=True)):
        formation.setdefault(home[:within], []).extend([(number,) * tp] * (count // tp))
        remainders[home] = [number] * (count % tp)
    for length in range(lowest - 1, within - 1, -1):
        pools: dict[Path, list[int]] = {}
        for path, remainder in remainders.items():
            pools.setdefault(path[:length], []).extend(remainder)
        for path, pool in pools.items():
            groups, pools[path] = _cut_pool(pool, tp)
            formation[path[:within]] += groups
        remainders = pools
    return formation


def _cut_pool(pool: Sequence[int], tp: int) -> tuple[list[Group], list[int]]:
    """Groups that take whole remainders, the largest first, and what is left."""
    members = [home for home, count in Counter(pool).most_common() for _ in range(count)]
    groups = [tuple(sorted(group)) for group in _cut(members, tp)]
    return groups, members[len(groups) * tp :]


def _dealt(stock: _Stock, tp: int, within: int, when: Callable[[int, int], float]) -> Formation:
    """Groups that all take from all homes of their domain, so that peers of different groups share a home.

    `when` says at what point a home gives its device number `turn` of `count`.
    """
    formation: Formation = {}
    for path, numbers in stock.by_domain(within).items():
        turns = [(when(turn, stock.counts[home]), home) for home in numbers for turn in range(stock.counts[home])]
        formation[path] = [tuple(sorted(group)) for group in _cut([home for _, home in sorted(turns)], tp)]
    return formation


class _Domain:
    """The TP groups that a domain has, and how many of them it still has to give."""

    __slots__ = ("capacity", "children", "groups", "left", "variety")

    def __init__(self, groups: list[Group], children: list[_Domain]) -> None:
        self.groups = groups
        self.children = children
        self.capacity: int = sum([child.capacity for child in children]) if children else len(groups)
        self.left = self.capacity
        self.variety: int = sum([child.variety for child in children]) if children else len(dict.fromkeys(groups))

    def refill(self) -> None:
        if self.left < self.capacity:
            self.left = self.capacity
            for child in self.children:
                child.refill()

    def fits(self, size: int, depth: int) -> int:
        """How many tiles of `size` groups fit, each inside one domain `depth` levels below."""
        if depth and self.children:
            return sum([child.fits(size, depth - 1) for child in self.children])
        return self.left // size

    def room(self, depth: int) -> int:
        """The most groups that one domain `depth` levels below has."""
        if depth and self.children:
            return max([child.room(depth - 1) for child in self.children])
        return self.capacity

    def draw(self, need: int) -> list[Group]:
        """Takes groups, from as few children as possible."""
        self.left -= need
        if not self.children:
            first = self.capacity - self.left - need
            return self.groups[first : first + need]
        drawn: list[Group] = []
        for child, share in _fewest([(child.left, child) for child in self.children], need):
            drawn += child.draw(share)
        return drawn

    def pack(self, count: int, size: int, depth: int) -> list[list[Group]]:
        """Takes `count` tiles, each inside one domain `depth` levels below, from as few children as possible."""
        if not (depth and self.children):
            return [self.draw(size) for _ in range(count)]
        self.left -= count * size
        tiles: list[list[Group]] = []
        for child, share in _fewest([(child.fits(size, depth - 1), child) for child in self.children], count):
            tiles += child.pack(share, size, depth - 1)
        return tiles

    def deal(self, count: int, size: int, depth: int) -> list[list[Group]]:
        """Takes `count` tiles as `pack` does, but one from each child in turn, those with most to give first."""
        if not (depth and self.children):
            return [self.draw(size) for _ in range(count)]
        self.left -= count * size
        offers = sorted([(child.fits(size, depth - 1), child) for child in self.children], key=_most)
        turns = _turns([offered for offered, _ in offers], count)
        # The first round asks every child that is asked at all, so the shares come in the order of the offers.
        shares = Counter(turns).values()
        hands = [iter(child.deal(share, size, depth - 1)) for share, (_, child) in zip(shares, offers, strict=False)]
        return [next(hands[i]) for i in turns]


def _fewest(offers: list[tuple[int, _Domain]], need: int) -> Iterator[tuple[_Domain, int]]:
    """Splits a need over offers: the largest ones, and for the rest the one that is just large enough."""
    offers = sorted(offers, key=_most)
    for i, (offered, child) in enumerate(offers):
        if offered >= need:
            enough = [offer for offer in offers[i:] if offer[0] >= need]
            yield min(enough, key=_least)[1], need
            return
        yield child, offered
        need -= offered


def _turns(offers: Sequence[int], count: int) -> list[int]:
    """Which child gives next, round by round, as long as each has something to give."""
    turns: list[int] = []
    taken = 0
    while len(turns) < count:
        turns += [i for i, offered in enumerate(offers) if offered > taken]
        taken += 1
    return turns[:count]


def _most(offer: tuple[int, _Domain]) -> tuple[int, int]:
    """The largest offer first; of equals, the one whose groups are most alike, for it has fewer levels to cross."""
    return -offer[0], offer[1].variety


def _least(offer: tuple[int, _Domain]) -> tuple[int, int]:
    return offer[0], offer[1].variety


def _grow(formation: Formation, within: int) -> _Domain:
    """The tree above the domains of a formation."""
    layer = {path: _Domain(groups, []) for path, groups in formation.items()}
    for length in range(within - 1, -1, -1):
        siblings: dict[Path, list[_Domain]] = {}
        for path, domain in layer.items():
            siblings.setdefault(path[:length], []).append(domain)
        layer = {path: _Domain([], children) for path, children in siblings.items()}
    return layer[()]


@dataclass(frozen=True, slots=True)
class _Tiling:
    """Cuts the dp × pp grid of groups into tiles of about `replicas` × `stages`, taken along rows or columns."""

    plan: ParallelPlan
    replicas: int
    stages: int
    by_stage: bool

    @property
    def size(self) -> int:
        return self.replicas * self.stages

    def tiles(self) -> list[list[int]]:
        """The positions of each tile's groups in rank order, largest tiles first."""
        pp = self.plan.pp
        rows, columns = _pieces(self.plan.dp, self.replicas), _pieces(pp, self.stages)
        if self.by_stage:
            tiles = [[d * pp + p for p in column for d in row] for column in columns for row in rows]
        else:
            tiles = [[d * pp + p for d in row for p in column] for row in rows for column in columns]
        return sorted(tiles, key=len, reverse=True)


def _pieces(total: int, size: int) -> list[range]:
    """As few pieces of at most `size` as possible, as even as possible."""
    count = -(-total // size)
    cuts = [total * i // count for i in range(count + 1)]
    return [range(start, end) for start, end in pairwise(cuts)]


def _piece_sizes(total: int) -> list[int]:
    return list(dict.fromkeys(-(-total // count) for count in range(1, total + 1)))


def _tilings(plan: ParallelPlan) -> list[_Tiling]:
    directions = (False, True) if plan.dp > 1 and plan.pp > 1 else (False,)
    return [
        _Tiling(plan, replicas, stages, by_stage)
        for replicas in _piece_sizes(plan.dp)
        for stages in _piece_sizes(plan.pp)
        for by_stage in directions
    ]


Packing = Callable[[_Domain, int, int, int], list[list[Group]]]


def _candidates(
    stock: _Stock, plan: ParallelPlan, fabric: Fabric, tp_within: int
) -> Iterator[tuple[Layout, Sequence[Group]]]:
    """Layouts worth a price, the likeliest of each kind first, with all groups of their formation."""
    tilings = _tilings(plan)
    whole = [tiling for tiling in tilings if tiling.size == plan.group_count]
    kinds: list[Iterator[tuple[Layout, Sequence[Group]]]] = []
    for within, formation in _formations(stock, plan, fabric, tp_within):
        root = _grow(formation, within)
        if root.capacity < plan.group_count:
            continue
        groups = [group for some in formation.values() for group in some]
        kinds.append(_layouts(root, groups, whole, 0, _Domain.pack))
        for depth in range(1, within + 1):
            kinds.append(_layouts(root, groups, tilings, depth, _Domain.pack))
            kinds.append(_layouts(root, groups, tilings, depth, _Domain.deal))
    for turn in zip_longest(*kinds):
        yield from (candidate for candidate in turn if candidate)


def _layouts(
    root: _Domain, groups: Sequence[Group], tilings: Sequence[_Tiling], depth: int, packing: Packing
) -> Iterator[tuple[Layout, Sequence[Group]]]:
    """A layout for each tiling that fits into domains at `depth`, those first that fill the largest of them best."""
    room = root.room(depth)
    fitting = [tiling for tiling in tilings if tiling.size <= room]
    for tiling in sorted(fitting, key=lambda tiling: (room % tiling.size, -tiling.size)):
        yield _pack(root, tiling, depth, packing), groups


def _pack(root: _Domain, tiling: _Tiling, depth: int, packing: Packing) -> Layout:
    """Gives every tile a domain at `depth`, or at the next depth above that still has room for it."""
    root.refill()
    layout: list[Group] = [()] * tiling.plan.group_count
    for size, same in groupby(tiling.tiles(), key=len):
        tiles = list(same)
        for level in range(depth, -1, -1):
            count = min(len(tiles), root.fits(size, level))
            for tile, packed in zip(tiles, packing(root, count, size, level), strict=False):
                for position, group in zip(tile, packed, strict=True):
                    layout[position] = group
            tiles = tiles[count:]
    return tuple(layout)
