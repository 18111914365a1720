"""Costs: what collectives take on a tree of links, and what a training step takes in all."""

from __future__ import annotations

from itertools import combinations, product

import pytest

from phalanx.placement.cost import (
    StepCost,
    all_gather_ms,
    all_to_all_ms,
    cheapest_all_reduce,
    hierarchical_all_reduce_ms,
    point_to_point_ms,
    reduce_scatter_ms,
    ring_all_reduce_ms,
    seed_cost,
    step_cost,
    tree_all_reduce_ms,
)
from phalanx.placement.fabric import Fabric, Link, Path
from phalanx.workload.parallel import ParallelPlan, Traffic

MB = 1_000_000
SEED_FABRIC = Fabric(("node", "gpu"), (Link(50.0), Link(600.0)))
NODES = Fabric(("node", "gpu"), (Link(10.0, latency_us=20.0), Link(100.0, latency_us=2.0)))
RACKS = Fabric(("rack", "node", "gpu"), (Link(5.0, 50.0), Link(10.0, 20.0), Link(100.0, 2.0)))
TRAFFIC = Traffic(hidden_dim=1000, seq_len=1000, micro_batch_size=1, num_params_billions=0.001, dtype_bytes=1)


def node(number: int, gpus: int) -> list[Path]:
    return [(number, gpu) for gpu in range(gpus)]


def test_the_simplified_model_gives_the_textbook_numbers() -> None:
    devices = node(0, 8) + node(1, 8)
    cost = seed_cost(ParallelPlan(tp=4, pp=2, dp=2), Traffic(), devices, SEED_FABRIC)
    activations = 2048 * 4096 * 2
    assert cost.tp_ms == pytest.approx(2 * 3 / 4 * activations / 600e9 * 1e3)
    assert cost.pp_ms == pytest.approx(activations / 600e9 * 1e3)
    assert cost.dp_ms == pytest.approx(2 * 1 / 2 * 140e9 / 50e9 * 1e3)
    assert cost.total_ms == pytest.approx(cost.tp_ms + cost.pp_ms + cost.dp_ms)
    assert cost.bottleneck == "dp"


def test_the_simplified_model_takes_the_slowest_group() -> None:
    devices: list[Path] = [(0, 0), (0, 1), (1, 0), (2, 0)]
    cost = seed_cost(ParallelPlan(tp=2, dp=2), Traffic(), devices, SEED_FABRIC)
    assert cost.tp_ms == pytest.approx(2 * 1 / 2 * 2048 * 4096 * 2 / 50e9 * 1e3)


def test_the_simplified_model_adds_up_the_boundaries_of_a_pipeline() -> None:
    devices: list[Path] = [(0, 0), (0, 1), (1, 0), (1, 1)]
    cost = seed_cost(ParallelPlan(pp=4), Traffic(micro_batch_size=3), devices, SEED_FABRIC)
    activations = 3 * 2048 * 4096 * 2
    assert cost.pp_ms == pytest.approx(activations * (1 / 600e9 + 1 / 50e9 + 1 / 600e9) * 1e3)


def test_the_simplified_model_ignores_the_other_replicas_of_the_next_stage() -> None:
    devices: list[Path] = [(0, 0), (0, 1), (1, 0), (1, 1)]
    cost = seed_cost(ParallelPlan(pp=2, dp=2), Traffic(), devices, SEED_FABRIC)
    assert cost.pp_ms == pytest.approx(2048 * 4096 * 2 / 600e9 * 1e3)


def test_the_simplified_model_takes_the_least_bandwidth_between_any_two_replicas() -> None:
    devices: list[Path] = [(0, 0), (1, 0), (0, 1), (1, 1)]
    cost = seed_cost(ParallelPlan(pp=2, dp=2), Traffic(num_params_billions=1.0), devices, SEED_FABRIC)
    assert cost.dp_ms == pytest.approx(2 * 1 / 2 * 2e9 / 50e9 * 1e3)


def test_the_simplified_model_agrees_with_all_pairs_of_replicas() -> None:
    uneven = Fabric(("rack", "node", "gpu"), (Link(5.0), Link(1.0), Link(10.0)))
    places: list[Path] = list(product(range(2), range(2), range(2)))
    for devices in combinations(places, 4):
        plan = ParallelPlan(pp=2, dp=2)
        least_gb_s = min(uneven.link(a, b).gb_s for a in devices[:2] for b in devices[2:])
        cost = seed_cost(plan, Traffic(num_params_billions=1.0), devices, uneven)
        assert cost.dp_ms == pytest.approx(2e9 / (least_gb_s * 1e9) * 1e3)


def test_a_plan_of_one_device_costs_nothing() -> None:
    for model in (seed_cost, step_cost):
        cost = model(ParallelPlan(), Traffic(), [(0, 0)], SEED_FABRIC)
        assert (cost.tp_ms, cost.pp_ms, cost.dp_ms, cost.algorithms) == (0.0, 0.0, 0.0, ())


def test_of_equal_dimensions_the_inner_one_is_the_bottleneck() -> None:
    assert StepCost(1.0, 1.0, 1.0).bottleneck == "tp"
    assert StepCost(0.5, 1.0, 1.0).bottleneck == "pp"
    assert StepCost(0.5, 0.7, 1.0).bottleneck == "dp"


def test_a_ring_takes_twice_p_minus_one_rounds() -> None:
    rounds, part = 2 * 3, 8 * MB / 4
    assert ring_all_reduce_ms(NODES, node(0, 4), 8 * MB) == pytest.approx(rounds * (0.002 + part / 100e6))


def test_a_tree_sends_the_whole_vector_in_every_round() -> None:
    assert tree_all_reduce_ms(NODES, node(0, 4), 8 * MB) == pytest.approx(2 * 2 * (0.002 + 8 * MB / 100e6))
    assert tree_all_reduce_ms(NODES, node(0, 5), 8 * MB) == pytest.approx(2 * 3 * (0.002 + 8 * MB / 100e6))


def test_reduce_scatter_and_all_gather_are_the_halves_of_a_ring() -> None:
    devices = node(0, 3) + node(1, 3)
    halves_ms = reduce_scatter_ms(NODES, devices, MB) + all_gather_ms(NODES, devices, MB)
    assert halves_ms == pytest.approx(ring_all_reduce_ms(NODES, devices, MB))


def test_an_all_to_all_sends_a_part_to_everyone_in_turn() -> None:
    assert all_to_all_ms(NODES, node(0, 4), 8 * MB) == pytest.approx(3 * (0.002 + 2 * MB / 100e6))


def test_an_all_to_all_shares_the_uplink_of_a_node() -> None:
    devices = node(0, 2) + node(1, 2)
    part_ms = 2 * MB / 10e6
    # In rounds 1 and 3 one of the two devices of a node sends out of it, in round 2 both do.
    assert all_to_all_ms(NODES, devices, 8 * MB) == pytest.approx(3 * 0.02 + 4 * part_ms)


def test_a_message_takes_latency_and_size_over_bandwidth() -> None:
    assert point_to_point_ms(RACKS, (0, 0, 0), (1, 0, 0), MB) == pytest.approx(0.05 + MB / 5e6)
    assert point_to_point_ms(RACKS, (0, 0, 0), (0, 1, 0), MB) == pytest.approx(0.02 + MB / 10e6)
    assert point_to_point_ms(RACKS, (0, 0, 0), (0, 0, 0), MB) == 0.0


def test_a_ring_in_the_order_of_the_tree_is_cheaper_than_one_that_hops() -> None:
    ordered = node(0, 4) + node(1, 4)
    hopping = [device for pair in zip(node(0, 4), node(1, 4), strict=True) for device in pair]
    assert ring_all_reduce_ms(NODES, ordered, MB) == pytest.approx(2 * 7 * (0.02 + MB / 8 / 10e6))
    assert ring_all_reduce_ms(NODES, hopping, MB) == pytest.approx(2 * 7 * (0.02 + 4 * MB / 8 / 10e6))


def test_lanes_carry_transfers_side_by_side() -> None:
    railed = Fabric(("node", "gpu"), (Link(10.0, 20.0, lanes=4), Link(100.0, 2.0)))
    hopping = [device for pair in zip(node(0, 4), node(1, 4), strict=True) for device in pair]
    assert ring_all_reduce_ms(railed, hopping, MB) == pytest.approx(2 * 7 * (0.02 + MB / 8 / 10e6))


def test_a_hierarchical_all_reduce_works_level_by_level() -> None:
    devices: list[Path] = [(rack, number, gpu) for rack in range(2) for number in range(3) for gpu in range(4)]
    inside_ms = 3 * 0.002 + 3 / 4 * MB / 100e6
    nodes_ms = 2 * 0.02 + 2 / 3 * MB / 10e6
    racks_ms = 1 * 0.05 + 1 / 2 * MB / 5e6
    assert hierarchical_all_reduce_ms(RACKS, devices, MB) == pytest.approx(2 * (inside_ms + nodes_ms + racks_ms))


def test_a_hierarchical_all_reduce_uses_a_lane_for_each_member() -> None:
    railed = Fabric(("node", "gpu"), (Link(10.0, 20.0, lanes=8), Link(100.0, 2.0)))
    even, uneven = node(0, 2) + node(1, 2), node(0, 3) + node(1, 1)
    across_ms = 0.02 + 1 / 2 * MB / 10e6 / 2
    assert hierarchical_all_reduce_ms(railed, even, MB) == pytest.approx(2 * (0.002 + 1 / 2 * MB / 100e6 + across_ms))
    across_ms = 0.02 + 1 / 2 * MB / 10e6
    inside_ms = 2 * 0.002 + 2 / 3 * MB / 100e6
    assert hierarchical_all_reduce_ms(railed, uneven, MB) == pytest.approx(2 * (inside_ms + across_ms))


def test_inside_one_domain_the_hierarchical_all_reduce_is_the_ring() -> None:
    assert hierarchical_all_reduce_ms(NODES, node(0, 5), MB) == pytest.approx(ring_all_reduce_ms(NODES, node(0, 5), MB))


@pytest.mark.parametrize(
    ("devices", "size_bytes", "expected"),
    [(node(0, 8), 64, "tree"), (node(0, 8), 1000 * MB, "ring"), (node(0, 4) + node(1, 4), 1000 * MB, "hierarchical")],
)
def test_the_cheapest_all_reduce_depends_on_size_and_shape(devices: list[Path], size_bytes: int, expected: str) -> None:
    name, cost_ms = cheapest_all_reduce(NODES, devices, size_bytes)
    every_ms = {
        "ring": ring_all_reduce_ms(NODES, devices, size_bytes),
        "tree": tree_all_reduce_ms(NODES, devices, size_bytes),
        "hierarchical": hierarchical_all_reduce_ms(NODES, devices, size_bytes),
    }
    assert name == expected
    assert cost_ms == every_ms[expected] == pytest.approx(min(every_ms.values()))


def test_tensor_parallelism_all_reduces_four_times_a_layer_and_micro_batch() -> None:
    traffic = Traffic(1000, 1000, 2, 0.0, 1, layers=10, micro_batches=3)
    cost = step_cost(ParallelPlan(tp=4, pp=4), traffic, node(0, 16), NODES)
    _, one_ms = cheapest_all_reduce(NODES, node(0, 4), 2 * MB)
    assert cost.tp_ms == pytest.approx(4 * 3 * 3 * one_ms)
    assert dict(cost.algorithms) == {"tp": "ring"}


def test_a_pipeline_fills_stage_by_stage_and_then_runs_at_the_pace_of_its_slowest_link() -> None:
    devices = node(0, 2) + node(1, 1)
    traffic = Traffic(1000, 1000, 1, 0.0, 1, micro_batches=5)
    cost = step_cost(ParallelPlan(pp=3), traffic, devices, NODES)
    near_ms, far_ms = 0.002 + MB / 100e6, 0.02 + MB / 10e6
    assert cost.pp_ms == pytest.approx(2 * (near_ms + far_ms + 4 * far_ms))


def test_the_ranks_of_a_tensor_group_send_a_share_of_the_activations_each() -> None:
    devices = node(0, 2) + node(1, 2)
    cost = step_cost(ParallelPlan(tp=2, pp=2), TRAFFIC, devices, NODES)
    # Half a megabyte each, and both leave the node by its one lane.
    assert cost.pp_ms == pytest.approx(2 * (0.02 + 2 * (MB / 2) / 10e6))


def test_gradients_are_cut_by_tensor_and_pipeline_rank_and_share_the_uplink() -> None:
    devices = node(0, 2) + node(1, 2)
    cost = step_cost(ParallelPlan(tp=2, dp=2), TRAFFIC, devices, NODES)
    assert cost.dp_ms == pytest.approx(2 * (0.02 + 2 * (MB / 2 / 2) / 10e6))


def test_data_parallel_peers_inside_a_node_spare_the_uplink() -> None:
    plan = ParallelPlan(pp=2, dp=2)
    apart: list[Path] = [(0, 0), (0, 1), (1, 0), (1, 1)]
    together: list[Path] = [(0, 0), (1, 0), (0, 1), (1, 1)]
    heavy = Traffic(num_params_billions=7.0)
    assert step_cost(plan, heavy, together, NODES).total_ms < step_cost(plan, heavy, apart, NODES).total_ms / 5


def test_the_step_cost_does_not_depend_on_which_devices_of_a_node_are_used() -> None:
    plan = ParallelPlan(tp=2, pp=2, dp=2)
    first = node(0, 4) + node(1, 4)
    other: list[Path] = [(7, 9), (7, 3), (7, 5), (7, 1), (2, 8), (2, 4), (2, 6), (2, 0)]
    assert step_cost(plan, TRAFFIC, first, NODES) == step_cost(plan, TRAFFIC, other, NODES)


def test_a_wrong_number_of_devices_is_refused() -> None:
    for model in (seed_cost, step_cost):
        with pytest.raises(ValueError, match="tp=2 pp=1 dp=2 needs 4 devices in rank order, got 3"):
            model(ParallelPlan(tp=2, dp=2), TRAFFIC, node(0, 3), NODES)


def test_a_device_twice_in_a_collective_is_refused() -> None:
    with pytest.raises(ValueError, match="no device twice"):
        ring_all_reduce_ms(NODES, [(0, 0), (0, 0)], MB)
    with pytest.raises(ValueError, match="at least one device"):
        ring_all_reduce_ms(NODES, [], MB)


def test_a_path_of_another_depth_is_refused() -> None:
    with pytest.raises(ValueError, match=r"path \(0, 0, 0\) has 3 indices, expected 2 \(node, gpu\)"):
        point_to_point_ms(NODES, (0, 0, 0), (0, 1), MB)


def test_a_fabric_needs_a_link_for_each_level() -> None:
    with pytest.raises(ValueError, match="got 1 links for levels node, gpu"):
        Fabric(("node", "gpu"), (Link(50.0),))
    with pytest.raises(ValueError, match="at least one level"):
        Fabric((), ())


def test_two_devices_meet_where_their_paths_first_differ() -> None:
    assert RACKS.meeting_level((0, 1, 2), (1, 1, 2)) == 0
    assert RACKS.meeting_level((0, 1, 2), (0, 1, 3)) == 2
    assert RACKS.meeting_level((0, 1, 2), (0, 1, 2)) == 3
    assert RACKS.link((0, 1, 2), (0, 1, 2)).gb_s == float("inf")


@pytest.mark.parametrize("bad", [{"gb_s": 0.0}, {"gb_s": float("nan")}, {"latency_us": -1.0}, {"lanes": 0}])
def test_a_link_that_cannot_be_is_refused(bad: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=f"link: {next(iter(bad))} must be"):
        Link(**{"gb_s": 1.0, **bad})  # type: ignore[arg-type]
