"""Suspension: a preempted job that saves nothing keeps its processes in host memory and loses no work."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from builders import World, a_job, everything, starts, stops
from phalanx.cluster.capacity import MEMORY
from phalanx.cluster.cluster import Cluster, Health, Node
from phalanx.engine.fold.snapshot import dump, load
from phalanx.engine.state.journal import Journal, decode, encode
from phalanx.engine.state.losses import Loss, loss_of
from phalanx.engine.state.records import JobState
from phalanx.engine.state.state import State
from phalanx.engine.turn import record, replay, verify
from phalanx.protocol.action import Resume, Suspend
from phalanx.protocol.event import (
    AttemptEnded,
    ClusterChanged,
    ClusterDefined,
    DeviceMemoryMeasured,
    Done,
    Failed,
    JobCancelled,
    JobChanged,
    Lost,
    Outcome,
    PolicyChanged,
    SuspendRates,
)
from phalanx.protocol.plan import Plan
from phalanx.workload.job import Checkpointing, Job

GB = 1024
RATES = SuspendRates(2 * GB, 8 * GB)


def machine(gpus: int = 2, memory_gb: int = 256, nodes: int = 1) -> Cluster:
    """Nodes with GPUs of 64 GB each."""
    return Cluster(
        tuple(
            Node(f"n{i}", (), gpus, gpu_memory_gb=64.0, cpus_milli=64_000, memory_mb=memory_gb * GB)
            for i in range(nodes)
        )
    )


def world_of(cluster: Cluster, policy: str = "priority", rates: SuspendRates | None = RATES) -> World:
    world = World(cluster, policy)
    world.state, world.journal = State(), Journal()
    record(world.state, world.journal, ClusterDefined(cluster, policy, suspend=rates), 0)
    return world


def unsaving(job: str, gpus: int = 2, memory_gb: int = 8, **fields: Any) -> Job:
    return a_job(job, gpus, task={"memory_mb": memory_gb * GB}, checkpoint=Checkpointing(), **fields)


def suspends(plan: Plan) -> list[str]:
    return [action.id.job for action in plan.actions if isinstance(action, Suspend)]


def resumed(plan: Plan) -> list[str]:
    return [action.id.job for action in plan.actions if isinstance(action, Resume)]


def memory_gb_held(world: World, node: int = 0) -> int:
    return world.state.capacity.amounts[MEMORY].held[node] // GB


@pytest.fixture
def preempted() -> World:
    """A job `low` that was suspended for `high`, which runs."""
    world = world_of(machine())
    world.run(unsaving("low"))
    world.submit(unsaving("high", priority=5), after_ms=60_000)
    world.done("low", after_ms=5_000)
    world.done("high", after_ms=1_000)
    return world


def test_a_victim_that_saves_nothing_is_suspended_and_goes_on_as_the_same_attempt() -> None:
    world = world_of(machine())
    world.run(unsaving("low"))
    plan = world.submit(unsaving("high", priority=5), after_ms=60_000)
    assert suspends(plan) == ["low"]
    assert stops(plan) == []
    assert world.status("low") is JobState.STOPPING
    assert starts(world.done("low", after_ms=5_000)) == ["high"]
    assert world.status("low") is JobState.SUSPENDED
    assert memory_gb_held(world) == 8 + 2 * 64 + 8
    world.done("high")
    plan = world.end("high", after_ms=10_000)
    assert resumed(plan) == ["low"]
    asked = world.asks("low")[-1]
    assert (asked.id.attempt, asked.id.seq) == (1, 2)
    world.done("low", after_ms=1_000)
    assert world.status("low") is JobState.RUNNING
    assert memory_gb_held(world) == 8
    assert world.job("low").executed_ms(world.now) == 65_000
    world.end("low", after_ms=1_000)
    assert world.status("low") is JobState.SUCCEEDED
    assert memory_gb_held(world) == 0
    world.state.capacity.check()


def test_a_victim_that_saves_is_stopped_as_before() -> None:
    world = world_of(machine())
    world.run(a_job("low", 2))
    assert stops(world.submit(unsaving("high", priority=5), after_ms=60_000)) == ["low"]


def test_without_a_backend_that_frees_device_memory_nobody_is_suspended() -> None:
    world = world_of(machine(), rates=None)
    world.run(unsaving("low"))
    assert stops(world.submit(unsaving("high", priority=5), after_ms=60_000)) == ["low"]


def test_a_victim_is_stopped_where_the_memory_of_its_node_does_not_take_that_of_its_devices() -> None:
    world = world_of(machine(memory_gb=8 + 2 * 64 + 8 - 1))
    world.run(unsaving("low"))
    assert stops(world.submit(unsaving("high", priority=5), after_ms=60_000)) == ["low"]


def test_measured_device_memory_counts_instead_of_all_there_is() -> None:
    world = world_of(machine(memory_gb=64))
    world.run(unsaving("low"))
    world.turn(DeviceMemoryMeasured("low", 1, 20 * GB))
    plan = world.submit(unsaving("high", priority=5), after_ms=60_000)
    (action,) = [action for action in plan.actions if isinstance(action, Suspend)]
    assert action.host_mb == 20 * GB


def test_who_is_suspended_loses_less_than_who_is_stopped_and_is_chosen() -> None:
    world = world_of(machine(gpus=4))
    world.run(replace(a_job("saves", 2, task={"memory_mb": GB}), priority=0))
    world.run(unsaving("saves-nothing"), after_ms=1_000)
    plan = world.submit(unsaving("high", priority=5), after_ms=3_600_000)
    assert suspends(plan) == ["saves-nothing"]


def test_a_suspended_job_goes_on_with_other_devices_of_its_node() -> None:
    world = world_of(machine(gpus=4, nodes=2))
    world.run(unsaving("other", 2))
    world.run(unsaving("low", 2), after_ms=1_000)
    world.run(unsaving("elsewhere", 4, priority=5), after_ms=1_000)
    home = next(iter(world.where("low")))
    had = world.where("low")[home]
    assert suspends(world.submit(unsaving("high", 2, priority=5), after_ms=60_000)) == ["other"]
    world.done("other", after_ms=5_000)
    world.done("high", after_ms=1_000)
    assert resumed(world.end("low", after_ms=1_000)) == ["other"]
    world.done("other", after_ms=1_000)
    assert world.where("other") == {home: had}


def test_a_suspended_job_waits_for_its_node_though_another_is_free(preempted: World) -> None:
    more = Cluster((*machine().nodes, replace(machine().nodes[0], name="n1")))
    plan = preempted.turn(ClusterChanged(more), after_ms=1_000)
    assert resumed(plan) == []
    assert preempted.status("low") is JobState.SUSPENDED
    assert resumed(preempted.end("high", after_ms=1_000)) == ["low"]


def test_a_suspension_that_fails_becomes_a_stop() -> None:
    world = world_of(machine())
    world.run(unsaving("low"))
    world.submit(unsaving("high", priority=5), after_ms=60_000)
    plan = world.failed("low", "a process holds a handle of another", after_ms=1_000)
    assert stops(plan) == ["low"]
    assert starts(world.done("low", after_ms=1_000)) == ["high"]
    assert world.status("low") is JobState.WAITING
    assert memory_gb_held(world) == 8


def test_a_suspension_that_nobody_answers_becomes_a_stop() -> None:
    world = world_of(machine())
    world.run(unsaving("low"))
    world.submit(unsaving("high", priority=5), after_ms=60_000)
    assert stops(world.turn(Lost(world.asks("low")[-1].id), after_ms=1_000)) == ["low"]


def test_a_job_that_could_not_go_on_starts_anew(preempted: World) -> None:
    preempted.end("high", after_ms=1_000)
    preempted.turn(Failed(preempted.asks("low")[-1].id, "the driver did not restore it"), after_ms=1_000)
    assert preempted.job("low").kept is None
    assert starts(preempted.turn(after_ms=60_000)) == ["low"]
    assert preempted.asks("low")[-1].id.attempt == 2
    assert memory_gb_held(preempted) == 8


def test_a_suspended_job_that_dies_gives_its_memory_back_and_starts_anew(preempted: World) -> None:
    preempted.turn(AttemptEnded("low", 1, Outcome.LOST), after_ms=1_000)
    assert preempted.status("low") is JobState.WAITING
    assert memory_gb_held(preempted) == 8
    assert starts(preempted.end("high", after_ms=1_000)) == ["low"]


def test_a_suspended_job_that_is_cancelled_has_its_processes_stopped_first(preempted: World) -> None:
    assert stops(preempted.turn(JobCancelled("low"), after_ms=1_000)) == ["low"]
    assert memory_gb_held(preempted) == 8 + 2 * 64 + 8
    preempted.done("low", after_ms=1_000)
    assert preempted.status("low") is JobState.CANCELLED
    assert memory_gb_held(preempted) == 8


def test_one_that_was_promised_its_devices_first_is_asked_with_a_new_number(preempted: World) -> None:
    preempted.turn(JobCancelled("high"), after_ms=1_000)
    assert resumed(preempted.done("high", after_ms=1_000)) == ["low"]
    assert preempted.asks("low")[-1].id[2:] == (1, 2)


def test_one_that_is_cancelled_while_it_is_being_suspended_is_stopped_at_once() -> None:
    world = world_of(machine())
    world.run(unsaving("low"))
    world.submit(unsaving("high", priority=5), after_ms=60_000)
    suspend = world.asks("low")[-1]
    assert stops(world.turn(JobCancelled("low"), after_ms=1_000)) == ["low"]
    world.turn(Failed(suspend.id, "it is stopping, not running any more", retryable=False), after_ms=100)
    assert starts(world.done("low", after_ms=1_000)) == ["high"]
    assert world.status("low") is JobState.CANCELLED
    assert memory_gb_held(world) == 8


def test_one_whose_suspension_is_done_before_its_cancellation_has_what_is_kept_stopped() -> None:
    world = world_of(machine())
    world.run(unsaving("low"))
    world.submit(unsaving("high", priority=5), after_ms=60_000)
    suspend = world.asks("low")[-1]
    world.turn(JobCancelled("low"), after_ms=1_000)
    assert stops(world.turn(Done(suspend.id), after_ms=100)) == ["low"]
    world.done("low", after_ms=1_000)
    assert world.status("low") is JobState.CANCELLED
    assert memory_gb_held(world) == 8


@pytest.mark.parametrize("health", [Health.FAILED, Health.DRAINING])
def test_on_a_node_that_takes_no_work_any_more_nothing_is_kept(preempted: World, health: Health) -> None:
    plan = preempted.health("n0", health, after_ms=1_000)
    assert "low" in stops(plan)
    preempted.done("low", after_ms=1_000)
    assert preempted.status("low") is JobState.WAITING
    assert preempted.job("low").asked == preempted.job("low").job


def test_a_node_that_leaves_the_cluster_takes_what_is_kept_there_with_it(preempted: World) -> None:
    other = replace(machine().nodes[0], name="n9")
    assert "low" in stops(preempted.turn(ClusterChanged(Cluster((other,))), after_ms=1_000))
    preempted.done("low", "high", after_ms=1_000)
    assert preempted.where("low") or preempted.where("high")
    preempted.state.capacity.check()


def test_a_change_of_policy_leaves_a_suspended_job_what_it_has(preempted: World) -> None:
    preempted.turn(PolicyChanged("fifo"), after_ms=1_000)
    assert preempted.status("low") is JobState.SUSPENDED
    assert resumed(preempted.end("high", after_ms=1_000)) == ["low"]


def test_what_is_kept_gives_way_to_who_stands_before_and_needs_the_memory(preempted: World) -> None:
    preempted.submit(unsaving("large", memory_gb=200, priority=5), after_ms=1_000)
    plan = preempted.end("high", after_ms=1_000)
    assert stops(plan) == ["low"]
    assert resumed(plan) == []
    assert starts(preempted.done("low", after_ms=1_000)) == ["large"]


def test_only_its_priority_and_limits_can_be_changed_of_a_suspended_job(preempted: World) -> None:
    with pytest.raises(ValueError, match="job low is suspended"):
        preempted.turn(JobChanged(unsaving("low", gpus=1)))
    preempted.turn(JobChanged(unsaving("low", priority=9)), after_ms=1_000)
    assert preempted.job("low").asked.priority == 9
    assert dict(preempted.job("low").asked.node_selector) == {"phalanx/node": "n0"}


def test_a_job_is_suspended_again_and_again_with_nothing_lost() -> None:
    world = world_of(machine())
    world.run(unsaving("low"))
    for number in range(3):
        world.submit(unsaving(f"high-{number}", priority=5), after_ms=10_000)
        world.done("low", after_ms=5_000)
        world.done(f"high-{number}", after_ms=1_000)
        world.end(f"high-{number}", after_ms=10_000)
        world.done("low", after_ms=1_000)
    assert world.status("low") is JobState.RUNNING
    assert world.job("low").attempts == 1
    assert world.job("low").executed_ms(world.now) == 45_000
    assert world.job("low").preemptions == 3


def test_work_that_was_not_saved_before_a_suspension_still_counts_as_lost_if_it_is_stopped(preempted: World) -> None:
    preempted.end("high", after_ms=1_000)
    preempted.done("low", after_ms=1_000)
    attempt = preempted.job("low").attempt
    assert attempt is not None
    assert attempt.lost_gpu_ms(preempted.now) == 2 * 65_000


def test_what_it_did_before_is_lost_if_it_cannot_go_on(preempted: World) -> None:
    preempted.end("high", after_ms=1_000)
    attempt = preempted.job("low").attempt
    assert attempt is not None
    preempted.turn(Failed(preempted.asks("low")[-1].id, "the driver refused"), after_ms=1_000)
    assert loss_of(attempt, preempted.now) == Loss(65_000, 2 * 65_000)


def test_who_goes_on_is_not_stopped_for_others_before_it_has_its_devices_and_is_suspended_then() -> None:
    world = world_of(machine(gpus=4, memory_gb=1024))
    world.run(unsaving("low"))
    world.submit(unsaving("high", gpus=4, priority=5), after_ms=3_600_000)
    world.done("low", after_ms=5_000)
    world.done("high")
    world.submit(unsaving("new"))
    assert resumed(world.end("high", after_ms=10_000)) == ["low"]
    world.done("new")
    plan = world.submit(unsaving("next", priority=5), after_ms=1_000)
    assert (suspends(plan), stops(plan)) == (["new"], [])
    plan = world.submit(unsaving("last", priority=5), after_ms=1_000)
    assert (suspends(plan), stops(plan)) == ([], [])
    assert suspends(world.done("low", after_ms=1_000)) == ["low"]


@pytest.mark.parametrize("suspended_ms", [10_000, 100_000])
def test_max_run_counts_the_time_before_a_suspension_and_not_that_of_it(suspended_ms: int) -> None:
    world = world_of(machine())
    world.run(unsaving("low", max_run_ms=100_000))
    world.submit(unsaving("high", priority=5), after_ms=60_000)
    world.submit(unsaving("timed", priority=-1, begin_ms=world.now + 1))
    world.done("low", after_ms=5_000)
    world.done("high")
    world.end("high", after_ms=suspended_ms)
    world.done("low")
    assert stops(world.turn(after_ms=34_999)) == []
    assert stops(world.turn(after_ms=1)) == ["low"]


def test_histories_with_suspensions_are_replayed_decided_again_and_read_back(preempted: World) -> None:
    for each in preempted.journal.records:
        assert decode(encode(each)) == each
    assert everything(replay(preempted.journal)) == everything(preempted.state)
    verify(preempted.journal)
    again = load(dump(preempted.state))
    assert everything(again) == everything(preempted.state)
