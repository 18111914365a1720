"""The interview question's API, to the letter, on the real engine."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from phalanx.compat.interview import GPU, ClusterTopology, GPUClusterScheduler, Job


def job(name: str = "job", tp: int = 1, pp: int = 1, dp: int = 1, memory_gb: float = 10.0, **more: Any) -> Job:
    return Job(name, tp, pp, dp, memory_gb, **more)


def used(placement: dict[str, list[list[int]]]) -> list[int]:
    return [gpu for group in placement["tp_groups"] for gpu in group]


def idle(scheduler: GPUClusterScheduler) -> bool:
    return all(gpu.memory_used_gb == 0 for gpu in scheduler.gpus) and not scheduler.placements


def test_the_example_of_the_question_runs_as_written(capsys: pytest.CaptureFixture[str]) -> None:
    topo = ClusterTopology(num_nodes=4)
    scheduler = GPUClusterScheduler(topo)
    first = Job(
        job_id="llama-70b",
        tensor_parallel_size=4,
        pipeline_parallel_size=2,
        data_parallel_size=2,
        memory_per_gpu_gb=70.0,
    )
    placement = scheduler.place_job(first)
    assert placement is not None
    for tp_group in placement["tp_groups"]:
        assert len({gpu_id // 8 for gpu_id in tp_group}) == 1
    cost = scheduler.estimate_communication_cost(first, placement)
    assert cost["bottleneck"] == "dp"
    second = Job(
        job_id="llama-7b",
        tensor_parallel_size=2,
        pipeline_parallel_size=1,
        data_parallel_size=4,
        memory_per_gpu_gb=30.0,
        num_params_billions=7.0,
    )
    assert scheduler.place_job(second) is not None
    actions = scheduler.handle_gpu_failure(failed_gpu_id=0)
    assert [(action["job_id"], action["action"]) for action in actions] == [("llama-70b", "rescheduled")]


def test_the_defaults_are_those_of_the_question() -> None:
    assert GPU(3, 0) == GPU(gpu_id=3, node_id=0, memory_gb=80, memory_used_gb=0.0, is_healthy=True)
    assert ClusterTopology(2) == ClusterTopology(2, 8, 600.0, 50.0)
    assert job().hidden_dim == 4096
    assert job().num_params_billions == 70.0


def test_bandwidth_is_that_of_the_closest_link() -> None:
    scheduler = GPUClusterScheduler(ClusterTopology(2))
    assert scheduler.bandwidth_between(3, 3) == math.inf
    assert scheduler.bandwidth_between(0, 7) == 600.0
    assert scheduler.bandwidth_between(7, 8) == 50.0


def test_groups_have_the_shapes_of_the_question_in_rank_order() -> None:
    scheduler = GPUClusterScheduler(ClusterTopology(4))
    placement = scheduler.place_job(job(tp=4, pp=2, dp=3))
    assert placement is not None
    tp_groups, pp_stages, dp_replicas = (placement[key] for key in ("tp_groups", "pp_stages", "dp_replicas"))
    assert [len(group) for group in tp_groups] == [4] * 6
    assert [len(stage) for stage in pp_stages] == [12] * 2
    assert [len(replica) for replica in dp_replicas] == [8] * 3
    for d, replica in enumerate(dp_replicas):
        assert replica == tp_groups[2 * d] + tp_groups[2 * d + 1]
    for p, stage in enumerate(pp_stages):
        assert stage == tp_groups[p] + tp_groups[2 + p] + tp_groups[4 + p]
    assert len(set(used(placement))) == 24


def test_pipeline_stages_share_a_node_where_they_can() -> None:
    scheduler = GPUClusterScheduler(ClusterTopology(4))
    placement = scheduler.place_job(job(tp=4, pp=2, dp=2))
    assert placement is not None
    for replica in placement["dp_replicas"]:
        assert len({gpu // 8 for gpu in replica}) == 1


@pytest.mark.parametrize(
    ("tp", "pp", "lost", "replicas"),
    [
        (4, 2, (0, 1, 2, 3, 20, 21, 22, 23), [[*range(8, 16)], [4, 5, 6, 7, 16, 17, 18, 19]]),
        (2, 4, (0, 1, 2, 3, 4, 5, 16, 17), [[*range(8, 16)], [6, 7, *range(18, 24)]]),
    ],
)
def test_replicas_that_one_node_holds_are_not_torn_for_those_that_none_holds(
    tp: int, pp: int, lost: tuple[int, ...], replicas: list[list[int]]
) -> None:
    scheduler = GPUClusterScheduler(ClusterTopology(3))
    for gpu in lost:
        scheduler.gpus[gpu].is_healthy = False
    placement = scheduler.place_job(job(tp=tp, pp=pp, dp=2))
    assert placement is not None
    assert placement["dp_replicas"] == replicas


@pytest.mark.parametrize(
    "impossible",
    [job(tp=16), job(memory_gb=81.0), job(tp=4, pp=4, dp=4)],
    ids=["tp larger than a node", "more memory than a GPU has", "more GPUs than there are"],
)
def test_what_is_impossible_is_none_and_leaves_nothing_allocated(impossible: Job) -> None:
    scheduler = GPUClusterScheduler(ClusterTopology(2))
    assert scheduler.place_job(impossible) is None
    assert idle(scheduler)
    assert scheduler.place_job(job("other", tp=8, dp=2)) is not None


def test_a_cluster_too_fragmented_for_a_tp_group_is_none() -> None:
    scheduler = GPUClusterScheduler(ClusterTopology(2, gpus_per_node=4))
    assert scheduler.place_job(job("a", tp=3)) is not None
    assert scheduler.place_job(job("b", tp=3)) is not None
    before = [gpu.memory_used_gb for gpu in scheduler.gpus]
    assert scheduler.place_job(job("c", tp=2)) is None
    assert [gpu.memory_used_gb for gpu in scheduler.gpus] == before


def test_a_refused_job_may_be_asked_for_again() -> None:
    scheduler = GPUClusterScheduler(ClusterTopology(1))
    assert scheduler.place_job(job("a", tp=8)) is not None
    assert scheduler.place_job(job("b", tp=2)) is None
    scheduler.handle_gpu_failure(0)
    assert scheduler.place_job(job("b", tp=2)) is not None


def test_a_gpu_belongs_to_one_job_at_a_time() -> None:
    scheduler = GPUClusterScheduler(ClusterTopology(2))
    taken: list[int] = []
    for number in range(4):
        placement = scheduler.place_job(job(f"j{number}", tp=2, dp=2))
        assert placement is not None
        taken += used(placement)
    assert sorted(taken) == list(range(16))
    assert scheduler.place_job(job("more")) is None


def test_memory_that_others_use_counts() -> None:
    scheduler = GPUClusterScheduler(ClusterTopology(1, gpus_per_node=2))
    scheduler.gpus[0].memory_used_gb = 20.0
    placement = scheduler.place_job(job(memory_gb=70.0))
    assert placement is not None
    assert used(placement) == [1]
    small = scheduler.place_job(job("small", memory_gb=60.0))
    assert small is not None
    assert used(small) == [0]


def test_the_simplified_model_is_followed_exactly() -> None:
    scheduler = GPUClusterScheduler(ClusterTopology(4))
    wide = job(tp=4, pp=2, dp=2)
    placement = scheduler.place_job(wide)
    assert placement is not None
    cost = scheduler.estimate_communication_cost(wide, placement)
    activations = 2048 * 4096 * 2
    assert cost["tp_time_ms"] == pytest.approx(2 * 3 / 4 * activations / 600e9 * 1e3)
    assert cost["pp_time_ms"] == pytest.approx(activations / 600e9 * 1e3)
    assert cost["dp_time_ms"] == pytest.approx(2 * 1 / 2 * 140e9 / 50e9 * 1e3)
    assert cost["total_ms"] == pytest.approx(cost["tp_time_ms"] + cost["pp_time_ms"] + cost["dp_time_ms"])


def test_a_dimension_of_size_one_costs_nothing() -> None:
    scheduler = GPUClusterScheduler(ClusterTopology(1))
    placement = scheduler.place_job(job())
    assert placement is not None
    cost = scheduler.estimate_communication_cost(job(), placement)
    assert (cost["tp_time_ms"], cost["pp_time_ms"], cost["dp_time_ms"], cost["total_ms"]) == (0, 0, 0, 0)


def test_a_failed_gpu_is_never_used_again() -> None:
    scheduler = GPUClusterScheduler(ClusterTopology(2))
    assert scheduler.handle_gpu_failure(5) == []
    assert not scheduler.gpus[5].is_healthy
    taken: list[int] = []
    while (placement := scheduler.place_job(job(f"j{len(taken)}"))) is not None:
        taken += used(placement)
    assert sorted(taken) == [gpu for gpu in range(16) if gpu != 5]


def test_failing_a_gpu_again_changes_nothing() -> None:
    scheduler = GPUClusterScheduler(ClusterTopology(2))
    scheduler.place_job(job(tp=8))
    assert len(scheduler.handle_gpu_failure(0)) == 1
    assert scheduler.handle_gpu_failure(0) == []


def test_a_rescheduled_job_keeps_every_constraint_and_frees_its_old_gpus() -> None:
    scheduler = GPUClusterScheduler(ClusterTopology(3))
    wide = job(tp=8, dp=2, memory_gb=50.0)
    old = scheduler.place_job(wide)
    assert old is not None
    failed = used(old)[0]
    (action,) = scheduler.handle_gpu_failure(failed)
    new = action["new_placement"]
    assert action == {"job_id": "job", "action": "rescheduled", "old_placement": old, "new_placement": new}
    assert all(len({gpu // 8 for gpu in group}) == 1 for group in new["tp_groups"])
    assert failed not in used(new)
    assert [gpu.gpu_id for gpu in scheduler.gpus if gpu.memory_used_gb] == sorted(used(new))
    assert all(gpu.memory_used_gb in (0.0, 50.0) for gpu in scheduler.gpus)


def test_the_memory_of_a_gpu_is_what_it_was_once_a_job_has_left() -> None:
    scheduler = GPUClusterScheduler(ClusterTopology(1, 2))
    for gpu in scheduler.gpus:
        gpu.memory_used_gb = 30.3
    assert scheduler.place_job(job(dp=2)) is not None
    scheduler.handle_gpu_failure(0)
    assert [gpu.memory_used_gb for gpu in scheduler.gpus] == [30.3, 30.3]


def test_memory_that_a_caller_has_changed_meanwhile_stays_changed() -> None:
    scheduler = GPUClusterScheduler(ClusterTopology(1, 2))
    assert scheduler.place_job(job(dp=2)) is not None
    scheduler.gpus[1].memory_used_gb += 5.0
    scheduler.handle_gpu_failure(0)
    assert [gpu.memory_used_gb for gpu in scheduler.gpus] == [0.0, 5.0]


def test_a_killed_job_frees_everything() -> None:
    scheduler = GPUClusterScheduler(ClusterTopology(1))
    old = scheduler.place_job(job(tp=8))
    assert scheduler.handle_gpu_failure(2) == [
        {"job_id": "job", "action": "killed", "old_placement": old, "new_placement": None}
    ]
    assert idle(scheduler)
    assert scheduler.place_job(job(tp=4)) is not None


def test_only_jobs_on_the_failed_gpu_are_touched() -> None:
    scheduler = GPUClusterScheduler(ClusterTopology(2))
    first, second = scheduler.place_job(job("a", tp=4)), scheduler.place_job(job("b", tp=4))
    assert first is not None
    assert second is not None
    scheduler.handle_gpu_failure(used(first)[0])
    assert scheduler.placements["b"] == second


@pytest.mark.parametrize(("stages", "middle"), [(1, 0), (2, 1), (4, 2), (5, 2), (8, 4)])
def test_the_checkpoint_boundary_is_the_middle_of_the_pipeline(stages: int, middle: int) -> None:
    assert GPUClusterScheduler(ClusterTopology(1)).find_checkpointable_boundary(job(pp=stages)) == middle


@pytest.mark.parametrize("gpu", [-1, 16, 1.5, "0", True])
def test_an_unknown_gpu_is_a_clear_error(gpu: Any) -> None:
    scheduler = GPUClusterScheduler(ClusterTopology(2))
    with pytest.raises(ValueError, match="this cluster has 0 to 15"):
        scheduler.bandwidth_between(0, gpu)
    with pytest.raises(ValueError, match="there is no GPU"):
        scheduler.handle_gpu_failure(gpu)


def test_a_job_that_is_placed_already_is_a_clear_error() -> None:
    scheduler = GPUClusterScheduler(ClusterTopology(2))
    scheduler.place_job(job())
    with pytest.raises(ValueError, match="'job' is placed already"):
        scheduler.place_job(job())


@pytest.mark.parametrize("size", [0, -1, 1.5, True])
@pytest.mark.parametrize("name", ["tp", "pp", "dp"])
def test_sizes_that_are_no_counts_are_clear_errors(name: str, size: Any) -> None:
    scheduler = GPUClusterScheduler(ClusterTopology(2))
    with pytest.raises(ValueError, match="must be a whole number of at least 1"):
        scheduler.place_job(job(**{name: size}))
    assert idle(scheduler)


def test_bad_memory_and_bad_clusters_are_clear_errors() -> None:
    scheduler = GPUClusterScheduler(ClusterTopology(1))
    for memory in (-1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match="memory_per_gpu_gb"):
            scheduler.place_job(job(memory_gb=memory))
    for topology in (ClusterTopology(0), ClusterTopology(1, 0), ClusterTopology(1, 8, -1.0)):
        with pytest.raises(ValueError, match="must be a"):
            GPUClusterScheduler(topology)


@pytest.mark.parametrize(
    "topology", [ClusterTopology(10**9), ClusterTopology(1, 10**9), ClusterTopology(150_000, 1_000)]
)
def test_a_cluster_beyond_all_sizes_is_refused_before_it_is_built(topology: ClusterTopology) -> None:
    with pytest.raises(ValueError, match="expected at most"):
        GPUClusterScheduler(topology)


@pytest.mark.parametrize("wrong", ["x", None, True])
def test_speeds_and_sizes_that_are_no_numbers_are_clear_errors(wrong: Any) -> None:
    with pytest.raises(ValueError, match="intra_node_bw_gbps must be a positive number"):
        GPUClusterScheduler(ClusterTopology(1, 8, wrong))
    scheduler = GPUClusterScheduler(ClusterTopology(1))
    with pytest.raises(ValueError, match="num_params_billions must be a finite number"):
        scheduler.place_job(replace(job(), num_params_billions=wrong))
    assert idle(scheduler)


def on_two_of_four(**more: Any) -> GPUClusterScheduler:
    """Two nodes of two GPUs, with a job of 70 GB a GPU on 0 and 1."""
    scheduler = GPUClusterScheduler(ClusterTopology(2, gpus_per_node=2))
    scheduler.gpus[2].memory_used_gb = 50.0
    placement = scheduler.place_job(job(tp=2, memory_gb=70.0, **more))
    assert placement is not None
    assert used(placement) == [0, 1]
    return scheduler


def test_a_job_is_not_moved_to_gpus_whose_memory_others_use() -> None:
    scheduler = on_two_of_four()
    (action,) = scheduler.handle_gpu_failure(0)
    assert action["action"] == "killed"
    assert [gpu.memory_used_gb for gpu in scheduler.gpus] == [0.0, 0.0, 50.0, 0.0]


def test_a_job_is_not_moved_to_gpus_that_were_set_unhealthy() -> None:
    scheduler = on_two_of_four()
    scheduler.gpus[2].memory_used_gb, scheduler.gpus[3].is_healthy = 0.0, False
    assert scheduler.handle_gpu_failure(0)[0]["action"] == "killed"


def test_a_job_does_not_stay_on_a_gpu_of_its_own_that_was_set_unhealthy() -> None:
    scheduler = GPUClusterScheduler(ClusterTopology(1, gpus_per_node=4))
    assert used(scheduler.place_job(job(dp=2, memory_gb=70.0)) or {}) == [0, 1]
    scheduler.gpus[1].is_healthy = False
    (action,) = scheduler.handle_gpu_failure(0)
    assert used(action["new_placement"]) == [2, 3]


def test_a_moved_job_may_stay_on_those_of_its_gpus_that_work() -> None:
    scheduler = GPUClusterScheduler(ClusterTopology(1, gpus_per_node=3))
    scheduler.place_job(job(dp=2, memory_gb=70.0))
    (action,) = scheduler.handle_gpu_failure(0)
    assert used(action["new_placement"]) == [1, 2]
    assert [gpu.memory_used_gb for gpu in scheduler.gpus] == [0.0, 70.0, 70.0]


def test_a_failure_is_handled_although_the_gpu_was_already_set_unhealthy() -> None:
    scheduler = GPUClusterScheduler(ClusterTopology(2))
    scheduler.place_job(job(tp=8))
    scheduler.gpus[0].is_healthy = False
    assert [action["action"] for action in scheduler.handle_gpu_failure(0)] == ["rescheduled"]


def test_a_gpu_that_is_set_healthy_again_is_used_again() -> None:
    scheduler = GPUClusterScheduler(ClusterTopology(1, gpus_per_node=1))
    scheduler.gpus[0].is_healthy = False
    assert scheduler.place_job(job()) is None
    scheduler.gpus[0].is_healthy = True
    assert scheduler.place_job(job()) is not None


def test_memory_of_a_gpu_may_be_set_to_more_and_less() -> None:
    scheduler = GPUClusterScheduler(ClusterTopology(1, gpus_per_node=2))
    scheduler.gpus[0].memory_gb, scheduler.gpus[1].memory_gb = 40, 141
    placement = scheduler.place_job(job(memory_gb=120.0))
    assert placement is not None
    assert used(placement) == [1]
    assert scheduler.place_job(job("other", memory_gb=60.0)) is None


def test_stages_on_two_nodes_are_priced_over_the_link_between_these() -> None:
    scheduler = GPUClusterScheduler(ClusterTopology(2))
    across = job(pp=2, dp=2)
    placement = {"tp_groups": [[0], [1], [8], [9]], "pp_stages": [[0, 1], [8, 9]], "dp_replicas": [[0, 8], [1, 9]]}
    cost = scheduler.estimate_communication_cost(across, placement)
    assert cost["pp_time_ms"] == pytest.approx(2048 * 4096 * 2 / 50e9 * 1e3)
    beside = {"tp_groups": [[0], [8], [1], [9]], "pp_stages": [[0, 8], [1, 9]], "dp_replicas": [[0, 1], [8, 9]]}
    cost = scheduler.estimate_communication_cost(across, beside)
    assert cost["pp_time_ms"] == pytest.approx(2048 * 4096 * 2 / 600e9 * 1e3)


def test_the_order_of_the_groups_does_not_change_their_price() -> None:
    scheduler = GPUClusterScheduler(ClusterTopology(4))
    wide = job(tp=2, pp=4, dp=3)
    placement = scheduler.place_job(wide)
    assert placement is not None
    mixed = {**placement, "tp_groups": placement["tp_groups"][::-1]}
    assert scheduler.estimate_communication_cost(wide, mixed) == scheduler.estimate_communication_cost(wide, placement)


def test_what_a_caller_does_to_an_answer_changes_nothing() -> None:
    scheduler = GPUClusterScheduler(ClusterTopology(2))
    asked = job(tp=8, memory_gb=50.0)
    placement = scheduler.place_job(asked)
    assert placement is not None
    asked.memory_per_gpu_gb = 20.0
    placement["tp_groups"].clear()
    scheduler.placements["job"]["tp_groups"][0].clear()
    (action,) = scheduler.handle_gpu_failure(0)
    assert used(action["old_placement"]) == list(range(8))
    action["new_placement"]["tp_groups"].clear()
    assert used(scheduler.placements["job"]) == list(range(8, 16))
    assert [gpu.memory_used_gb for gpu in scheduler.gpus] == [0.0] * 8 + [50.0] * 8


GOOD = {"tp_groups": [[0], [1]], "pp_stages": [[0], [1]], "dp_replicas": [[0, 1]]}


@pytest.mark.parametrize(
    "placement",
    [
        None,
        [[0], [1]],
        {},
        {"tp_groups": [[0], [1]]},
        {**GOOD, "tp_groups": None},
        {**GOOD, "tp_groups": [0, 1]},
        {**GOOD, "tp_groups": [[0, 1]]},
        {**GOOD, "tp_groups": [[0], [0]]},
        {**GOOD, "tp_groups": [["0"], ["1"]]},
        {**GOOD, "tp_groups": [[{}], [1]]},
        {**GOOD, "tp_groups": [[0], [1], [2]]},
        {**GOOD, "pp_stages": [[0], [5]]},
        {**GOOD, "pp_stages": [[0, 1]]},
        {**GOOD, "dp_replicas": [[0], [1]]},
        {**GOOD, "dp_replicas": [[0, 0]]},
    ],
    ids=str,
)
def test_a_malformed_placement_is_a_clear_error(placement: Any) -> None:
    scheduler = GPUClusterScheduler(ClusterTopology(1))
    assert scheduler.estimate_communication_cost(job(pp=2), GOOD)["bottleneck"] == "pp"
    with pytest.raises(ValueError, match=r"job 'job': the (placement's|TP group)"):
        scheduler.estimate_communication_cost(job(pp=2), placement)


def test_two_tp_groups_of_one_stage_and_replica_are_a_clear_error() -> None:
    scheduler = GPUClusterScheduler(ClusterTopology(1))
    twisted = {"tp_groups": [[0], [1], [2], [3]], "pp_stages": [[0, 1], [2, 3]], "dp_replicas": [[0, 1], [2, 3]]}
    with pytest.raises(ValueError, match="one stage and one replica"):
        scheduler.estimate_communication_cost(job(pp=2, dp=2), twisted)
