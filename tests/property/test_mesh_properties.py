"""Laying out any plan on any free devices: whole and inside its levels, or refused only where it cannot be."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations, product
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from phalanx.placement.cost import ring_all_reduce_ms, seed_cost, step_cost
from phalanx.placement.fabric import Fabric, Link, Path
from phalanx.placement.mesh import inside_out, lay_out
from phalanx.workload.parallel import ParallelPlan, Traffic

LEVELS = ("rack", "node", "gpu")
PLACES: list[Path] = list(product(range(2), range(3), range(3)))


@dataclass(frozen=True)
class Ask:
    """A plan, and where it may go."""

    free: tuple[Path, ...]
    plan: ParallelPlan
    traffic: Traffic
    fabric: Fabric
    tp_within: int

    def lay_out(self) -> tuple[int, ...] | None:
        return lay_out(self.free, self.plan, self.traffic, self.fabric, self.tp_within)

    def cost_ms(self, order: tuple[int, ...]) -> float:
        return step_cost(self.plan, self.traffic, [self.free[i] for i in order], self.fabric).total_ms


links = st.builds(
    Link,
    st.sampled_from([5.0, 12.5, 50.0, 450.0]),
    st.sampled_from([0.0, 2.0, 20.0]),
    st.sampled_from([1, 2, 8]),
)
fabrics = st.tuples(links, links, links).map(lambda three: Fabric(LEVELS, three))


def outwards_slower(three: tuple[Link, Link, Link]) -> Fabric:
    speeds = sorted(link.gb_s for link in three)
    latencies = sorted((link.latency_us for link in three), reverse=True)
    return Fabric(LEVELS, tuple(map(Link, speeds, latencies, [link.lanes for link in three])))


plans = st.builds(ParallelPlan, st.integers(1, 4), st.integers(1, 3), st.integers(1, 3))
traffics = st.builds(
    Traffic,
    num_params_billions=st.sampled_from([0.0, 0.01, 7.0]),
    layers=st.sampled_from([1, 32]),
    micro_batches=st.sampled_from([1, 8]),
)
free_devices = st.lists(st.sampled_from(PLACES), unique=True).map(tuple)
asks = st.builds(Ask, free_devices, plans, traffics, fabrics, st.integers(0, 2))


def can_be_cut(free: tuple[Path, ...], tp: int, groups: int, within: int) -> bool:
    """Whether so many TP groups can be taken, by trying all sets of devices for each."""
    if not groups:
        return True
    return any(
        can_be_cut(tuple(path for path in free if path not in group), tp, groups - 1, within)
        for group in combinations(free, tp)
        if len({path[:within] for path in group}) == 1
    )


@given(asks)
@settings(max_examples=150)
def test_every_rank_gets_a_free_device_of_its_own(ask: Ask) -> None:
    order = ask.lay_out()
    if order is not None:
        assert len(order) == len(set(order)) == ask.plan.world_size
        assert all(0 <= index < len(ask.free) for index in order)


@given(asks)
@settings(max_examples=150)
def test_every_tensor_group_lies_within_its_level(ask: Ask) -> None:
    order = ask.lay_out()
    if order is not None:
        for group in ask.plan.tp_groups([ask.free[i][: ask.tp_within] for i in order]):
            assert len(set(group)) == 1


@given(
    st.lists(st.sampled_from(PLACES), unique=True, max_size=8).map(tuple),
    st.builds(ParallelPlan, st.integers(1, 3), st.integers(1, 2), st.integers(1, 2)),
    st.integers(0, 2),
    fabrics,
)
@settings(max_examples=150)
def test_a_plan_is_refused_only_where_it_cannot_be(
    free: tuple[Path, ...], plan: ParallelPlan, tp_within: int, fabric: Fabric
) -> None:
    possible = can_be_cut(free, plan.tp, plan.group_count, tp_within)
    assert (lay_out(free, plan, Traffic(), fabric, tp_within) is not None) == possible
    assert (inside_out(free, plan, fabric, tp_within) is not None) == possible


@given(asks)
@settings(max_examples=150)
def test_the_layout_is_never_dearer_than_the_plain_fill(ask: Ask) -> None:
    order, plain = ask.lay_out(), inside_out(ask.free, ask.plan, ask.fabric, ask.tp_within)
    assert (order is None) == (plain is None)
    if order is not None and plain is not None:
        assert ask.cost_ms(order) <= ask.cost_ms(plain)


@given(asks, st.randoms(use_true_random=False))
@settings(max_examples=80)
def test_the_order_in_which_devices_are_listed_does_not_matter(ask: Ask, generator: Random) -> None:
    shuffled = list(ask.free)
    generator.shuffle(shuffled)
    first = ask.lay_out()
    second = lay_out(shuffled, ask.plan, ask.traffic, ask.fabric, ask.tp_within)
    assert (first is None) == (second is None)
    if first is not None and second is not None:
        assert [ask.free[i] for i in first] == [shuffled[i] for i in second]


@given(asks, st.permutations(range(2)), st.permutations(range(3)))
@settings(max_examples=80)
def test_renumbering_the_cluster_does_not_change_what_a_layout_costs(
    ask: Ask, racks: list[int], nodes: list[int]
) -> None:
    order = inside_out(ask.free, ask.plan, ask.fabric, ask.tp_within)
    if order is not None:
        devices = [ask.free[i] for i in order]
        renumbered: list[Path] = [(racks[rack], nodes[node], gpu) for rack, node, gpu in devices]
        for model in (seed_cost, step_cost):
            assert model(ask.plan, ask.traffic, devices, ask.fabric) == model(
                ask.plan, ask.traffic, renumbered, ask.fabric
            )


@given(
    st.tuples(links, links, links).map(outwards_slower),
    st.lists(st.sampled_from(PLACES), unique=True, min_size=2, max_size=8),
    st.floats(0, 1e9),
)
@settings(max_examples=100)
def test_where_links_get_slower_outwards_no_ring_beats_the_one_in_the_order_of_the_tree(
    fabric: Fabric, paths: list[Path], size_bytes: float
) -> None:
    in_order_ms = ring_all_reduce_ms(fabric, sorted(paths), size_bytes)
    assert in_order_ms <= ring_all_reduce_ms(fabric, paths, size_bytes) * (1 + 1e-9)
