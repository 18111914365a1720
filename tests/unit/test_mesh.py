"""Meshes: which free devices a tp × pp × dp plan gets, and in which order."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Sequence
from itertools import permutations
from pathlib import Path as FilePath

import pytest

from phalanx.bench.placement import mesh as benchmark
from phalanx.placement.cost import step_cost
from phalanx.placement.fabric import Fabric, Link, Path
from phalanx.placement.mesh import inside_out, lay_out
from phalanx.workload.parallel import ParallelPlan, Traffic

ROOT = FilePath(__file__).parents[2]
NODES = Fabric(("node", "gpu"), (Link(50.0, 5.0, lanes=8), Link(450.0, 2.0)))
RACKS = Fabric(("rack", "node", "gpu"), (Link(12.5, 10.0), Link(50.0, 5.0), Link(450.0, 2.0)))
SWITCHES = Fabric(("node", "switch", "gpu"), (Link(25.0, 5.0), Link(32.0, 2.0), Link(64.0, 1.0)))
LIGHT = Traffic(num_params_billions=0.001, micro_batches=16)
HEAVY = Traffic(num_params_billions=70.0)


def cluster(*gpus: int) -> list[Path]:
    """Nodes with so many free GPUs."""
    return [(number, gpu) for number, count in enumerate(gpus) for gpu in range(count)]


def placed(
    free: Sequence[Path], plan: ParallelPlan, fabric: Fabric, tp_within: int, traffic: Traffic = LIGHT
) -> list[Path]:
    order = lay_out(free, plan, traffic, fabric, tp_within)
    assert order is not None
    return [free[i] for i in order]


def test_ranks_are_tensor_first_then_pipeline_then_data() -> None:
    plan = ParallelPlan(tp=2, pp=3, dp=2)
    assert [plan.rank(d, p, t) for d in range(2) for p in range(3) for t in range(2)] == list(range(12))
    assert plan.tp_groups(range(12)) == [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9], [10, 11]]
    assert plan.pp_stages(range(12)) == [[0, 1, 6, 7], [2, 3, 8, 9], [4, 5, 10, 11]]
    assert plan.dp_replicas(range(12)) == [[0, 1, 2, 3, 4, 5], [6, 7, 8, 9, 10, 11]]
    assert plan.dp_groups(range(12)) == [[0, 6], [1, 7], [2, 8], [3, 9], [4, 10], [5, 11]]


@pytest.mark.parametrize("field", ["tp", "pp", "dp"])
@pytest.mark.parametrize("value", [0, -1, 1.5, True, "2"])
def test_a_dimension_that_is_no_count_is_refused(field: str, value: object) -> None:
    with pytest.raises(ValueError, match=f"parallel: {field} must be a whole number of at least 1, got {value!r}"):
        ParallelPlan(**{field: value})  # type: ignore[arg-type]


def test_traffic_that_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="traffic: layers must be a whole number of at least 1, got 0"):
        Traffic(layers=0)
    with pytest.raises(ValueError, match="traffic: num_params_billions must be a finite number"):
        Traffic(num_params_billions=float("nan"))


def test_tensor_groups_stay_inside_a_node() -> None:
    plan = ParallelPlan(tp=4, pp=1, dp=3)
    for group in plan.tp_groups(placed(cluster(3, 5, 8, 2), plan, NODES, 1)):
        assert len({node for node, _ in group}) == 1


def test_a_plan_that_fits_in_number_but_in_no_node_is_refused() -> None:
    plan = ParallelPlan(tp=4, dp=2)
    free = cluster(3, 3, 3, 3)
    assert lay_out(free, plan, LIGHT, NODES, 1) is None
    assert inside_out(free, plan, NODES, 1) is None
    assert lay_out(free, plan, LIGHT, NODES, 0) is not None


def test_a_plan_larger_than_what_is_free_is_refused() -> None:
    assert lay_out([], ParallelPlan(), LIGHT, NODES, 1) is None
    assert lay_out(cluster(4), ParallelPlan(tp=4, dp=2), LIGHT, NODES, 1) is None


def test_a_job_that_fits_into_one_node_gets_one_node() -> None:
    assert {node for node, _ in placed(cluster(3, 2, 4, 8), ParallelPlan(pp=2, dp=2), NODES, 1)} == {2}


def test_a_job_that_fits_into_one_rack_gets_one_rack() -> None:
    free = [(rack, node, gpu) for rack, node in [(0, 0), (0, 1), (1, 0), (1, 1), (1, 2)] for gpu in range(4)]
    assert {rack for rack, _, _ in placed(free, ParallelPlan(tp=4, pp=3), RACKS, 2)} == {1}


def test_stages_lie_together_where_activations_weigh_most() -> None:
    plan = ParallelPlan(tp=2, pp=2, dp=2)
    replicas = plan.dp_replicas(placed(cluster(4, 4), plan, NODES, 1, LIGHT))
    assert [len({node for node, _ in replica}) for replica in replicas] == [1, 1]


def test_replicas_lie_together_where_gradients_weigh_most() -> None:
    plan = ParallelPlan(tp=2, pp=2, dp=2)
    stages = plan.pp_stages(placed(cluster(4, 4), plan, NODES, 1, HEAVY))
    assert [len({node for node, _ in stage}) for stage in stages] == [1, 1]


def test_neighbours_in_the_ring_are_neighbours_in_the_tree() -> None:
    free = [(rack, node, gpu) for gpu in range(2) for node in range(2) for rack in range(2)]
    ring = placed(free, ParallelPlan(dp=8), RACKS, 2)
    crossings = [RACKS.meeting_level(a, b) for a, b in zip(ring, ring[1:] + ring[:1], strict=True)]
    assert sorted(crossings) == [0, 0, 1, 1, 2, 2, 2, 2]


def test_tensor_groups_straddle_switches_only_where_they_must() -> None:
    free = [(0, 0, gpu) for gpu in range(3)] + [(0, 1, gpu) for gpu in range(3)]
    groups = ParallelPlan(tp=2, dp=2).tp_groups(placed(free, ParallelPlan(tp=2, dp=2), SWITCHES, 1))
    assert [len({switch for _, switch, _ in group}) for group in groups] == [1, 1]
    groups = ParallelPlan(tp=2, dp=3).tp_groups(placed(free, ParallelPlan(tp=2, dp=3), SWITCHES, 1))
    assert sum(len({switch for _, switch, _ in group}) > 1 for group in groups) <= 1


def test_the_plain_fill_takes_devices_as_they_come() -> None:
    free = cluster(3, 4)
    order = inside_out(free, ParallelPlan(tp=2, pp=3), NODES, 1)
    assert order is not None
    assert [free[i] for i in order] == [(0, 0), (0, 1), (1, 0), (1, 1), (1, 2), (1, 3)]


@pytest.mark.parametrize("traffic", [LIGHT, HEAVY])
@pytest.mark.parametrize("plan", [ParallelPlan(2, 2, 1), ParallelPlan(1, 2, 2), ParallelPlan(2, 1, 2)])
def test_on_a_tiny_cluster_the_layout_is_the_cheapest_there_is(plan: ParallelPlan, traffic: Traffic) -> None:
    free: list[Path] = [(0, 0, 0), (0, 0, 1), (0, 1, 0), (1, 0, 0), (1, 0, 1), (1, 1, 0), (1, 1, 1)]
    best_ms = min(
        step_cost(plan, traffic, order, SWITCHES).total_ms
        for order in permutations(free, plan.world_size)
        if all(len({node for node, _, _ in group}) == 1 for group in plan.tp_groups(order))
    )
    chosen = placed(free, plan, SWITCHES, 1, traffic)
    assert step_cost(plan, traffic, chosen, SWITCHES).total_ms == pytest.approx(best_ms)


def test_the_search_of_the_benchmark_finds_what_trying_everything_finds() -> None:
    mesh = benchmark
    generator = random.Random(7)
    checked = 0
    while checked < 12:
        instance = mesh.draw(generator)
        if instance.plan.world_size > 4 or len(instance.free) > 8:
            continue
        checked += 1
        every_ms = [
            step_cost(instance.plan, instance.traffic, order, instance.fabric).total_ms
            for order in permutations(instance.free, instance.plan.world_size)
            if all(len({path[: instance.tp_within] for path in g}) == 1 for g in instance.plan.tp_groups(order))
        ]
        assert mesh.Exhaustive(instance).cheapest_ms(max(every_ms)) == pytest.approx(min(every_ms))


def test_the_benchmark_reports_our_excess_and_that_of_the_plain_fill() -> None:
    rows = benchmark.run(instances=3, seed=1)
    assert [row["target"] for row in rows] == [5.0, 30.0, None, None]
    assert all(list(row) == ["name", "value", "unit", "target", "met"] for row in rows)
    assert all(row["value"] >= 0 for row in rows)


def test_large_clusters_are_laid_out_within_the_budget_of_trials() -> None:
    free = [(rack, node, gpu) for rack in range(16) for node in range(8) for gpu in range(8) if (rack + node + gpu) % 5]
    plan = ParallelPlan(tp=4, pp=4, dp=16)
    chosen = placed(free, plan, RACKS, 2, HEAVY)
    plain = inside_out(free, plan, RACKS, 2)
    assert plain is not None
    plain_ms = step_cost(plan, HEAVY, [free[i] for i in plain], RACKS).total_ms
    assert step_cost(plan, HEAVY, chosen, RACKS).total_ms < plain_ms / 2


def test_hash_order_changes_nothing() -> None:
    program = (
        "from phalanx.placement.fabric import Fabric, Link\n"
        "from phalanx.placement.mesh import lay_out\n"
        "from phalanx.workload.parallel import ParallelPlan, Traffic\n"
        "fabric = Fabric(('rack', 'node', 'gpu'), (Link(12.5, 10.0), Link(50.0, 5.0), Link(450.0, 2.0)))\n"
        "free = [(r, n, g) for r in range(3) for n in range(3) for g in range(4) if (r + 2 * n + g) % 3]\n"
        "print(lay_out(free, ParallelPlan(2, 2, 3), Traffic(), fabric, 2))\n"
    )
    answers = [
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT / "src")},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert answers[0] == answers[1]
    assert answers[0].startswith("(")


def test_a_level_that_is_not_there_is_refused() -> None:
    with pytest.raises(ValueError, match="tp_within must be the length of a domain's path, 0 to 1, got 2"):
        lay_out(cluster(4), ParallelPlan(), LIGHT, NODES, 2)


def test_a_device_that_is_free_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="expected every free device once"):
        lay_out([(0, 0), (0, 0)], ParallelPlan(), LIGHT, NODES, 1)
