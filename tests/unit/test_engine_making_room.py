"""Claims on devices that others still hold: waiting for them, getting them, giving them up."""

from __future__ import annotations

import pytest

from builders import World, a_job, everything, of_roles, starts, stops, workers
from phalanx.cluster.cluster import Cluster, Health, Node, flat
from phalanx.engine.decide.cycle import decide
from phalanx.engine.state.records import JobState
from phalanx.protocol.action import Resize
from phalanx.protocol.event import DeviceHealthChanged, Done, JobCancelled, Progress
from phalanx.protocol.reason import Reason
from phalanx.workload.gang import Role, Task
from phalanx.workload.job import Kind
from phalanx.workload.share import fraction_ask


def with_claim() -> World:
    """One GPU: `low` is told to leave it for `head`."""
    world = World(flat(1, 1), "priority")
    world.run(a_job("low"))
    world.submit(a_job("head", priority=5))
    return world


def second_is_empty(world: World) -> bool:
    return not decide(world.state, world.state.now).news(world.state.head)


def test_a_claim_waits_for_its_victims_and_starts_when_they_have_left() -> None:
    world = with_claim()
    claim = world.job("head").attempt
    assert claim is not None
    assert claim.victims == ("low/1",)
    assert world.status("head") is JobState.WAITING
    assert world.reason("head") is Reason.MAKING_ROOM
    assert world.status("low") is JobState.STOPPING
    assert not world.turn(after_ms=10_000).actions
    assert starts(world.done("low")) == ["head"]
    assert world.job("low").preemptions == 1
    assert world.reason("low") is Reason.GPUS
    assert second_is_empty(world)


def test_a_claim_waits_for_all_its_victims() -> None:
    world = World(flat(1, 2), "priority")
    world.run(a_job("a"), a_job("b"))
    world.submit(a_job("head", 2, priority=5))
    assert not starts(world.done("a"))
    assert starts(world.done("b")) == ["head"]


def test_nobody_else_gets_what_has_been_promised() -> None:
    world = with_claim()
    world.submit(a_job("equal", priority=5))
    plan = world.done("low")
    assert starts(plan) == ["head"]
    assert world.reason("equal") is Reason.GPUS


def test_free_devices_beside_the_victims_are_promised_too() -> None:
    world = World(flat(1, 4), "priority")
    world.run(a_job("low", 2), a_job("fixed", 1, preemptible=False))
    world.submit(a_job("head", 3, priority=5))
    world.submit(a_job("small", 1))
    assert world.reason("small") is Reason.GPUS
    assert starts(world.done("low")) == ["head"]


def test_a_preemptor_that_is_cancelled_while_victims_drain_releases_its_claim() -> None:
    world = with_claim()
    world.turn(JobCancelled("head"))
    assert world.status("head") is JobState.CANCELLED
    assert not world.state.waiting_claims
    assert starts(world.done("low")) == ["low"], "it was told to leave, and now has its place again"


def test_a_released_claim_can_be_promised_to_the_next() -> None:
    world = with_claim()
    world.turn(JobCancelled("head"))
    plan = world.submit(a_job("other", priority=3))
    assert plan.claims[0].waits
    assert not plan.actions
    assert starts(world.done("low")) == ["other"]


@pytest.mark.parametrize("health", [Health.SUSPECT, Health.DRAINING, Health.FAILED])
def test_a_claim_on_a_node_that_takes_no_new_work_goes_back(health: Health) -> None:
    world = with_claim()
    world.health("n0", health)
    assert world.reason("head") is Reason.UNHEALTHY
    assert not starts(world.done("low"))


@pytest.mark.parametrize("health", [Health.SUSPECT, Health.DRAINING, Health.FAILED])
def test_a_claim_on_a_device_that_takes_no_new_work_goes_back(health: Health) -> None:
    world = with_claim()
    world.turn(DeviceHealthChanged("n0", 0, health))
    assert not starts(world.done("low"))
    assert world.job("head").attempt is None


def test_victims_that_will_not_stop_are_asked_again_and_the_claim_waits() -> None:
    world = with_claim()
    world.failed("low")
    assert stops(world.turn(after_ms=1_000)) == ["low"]
    assert world.reason("head") is Reason.MAKING_ROOM
    assert starts(world.done("low")) == ["head"]


def test_a_victim_that_ends_by_itself_frees_the_claim_as_well() -> None:
    world = with_claim()
    assert starts(world.end("low")) == ["head"]
    assert world.status("low") is JobState.SUCCEEDED


def test_a_start_after_a_claim_that_fails_gives_everything_back() -> None:
    world = with_claim()
    world.done("low")
    assert starts(world.failed("head")) == ["low"]
    assert world.reason("head") is Reason.BACKOFF


def test_a_claim_of_two_tasks_waits_until_the_node_has_the_cpus_for_both() -> None:
    world = World(Cluster((Node("n0", cpus_milli=20_000),)), "priority")
    world.run(a_job("low", 0, task={"cpus_milli": 10_000}))
    world.submit(a_job("head", 0, 2, priority=5, task={"cpus_milli": 10_000}))
    assert not starts(world.turn(after_ms=1)), "one of the two would fit beside the victim, not both"
    assert starts(world.done("low")) == ["head"]
    world.state.capacity.check()


def test_two_tasks_of_one_gang_can_be_promised_parts_of_one_device() -> None:
    world = World(flat(1, 1, "H100", 80.0), "priority")
    world.run(a_job("low"))
    world.submit(a_job("head", 1, 2, priority=5, task={"share": fraction_ask(500)}))
    assert world.reason("head") is Reason.MAKING_ROOM
    assert starts(world.done("low")) == ["head"]
    world.state.capacity.check()


def test_one_plan_promises_room_to_several_heads() -> None:
    world = World(flat(2, 1), "priority")
    world.run(a_job("a"), a_job("b"))
    plan = world.submit(a_job("x", priority=5), a_job("y", priority=5))
    assert sorted(stops(plan)) == ["a", "b"]
    assert [claim.job for claim in plan.claims] == ["x", "y"]
    assert second_is_empty(world)


def test_once_a_claim_is_kept_a_second_look_finds_nothing_more_to_do() -> None:
    """While `mid` waits for its claim a higher job arrives; when `mid` gets its device, one plan says all there is."""
    world = World(flat(1, 1), "priority")
    world.run(a_job("low"))
    world.submit(a_job("mid", priority=5))
    world.submit(a_job("high", priority=9))
    world.done("low")
    assert second_is_empty(world)


def test_a_higher_job_gets_the_device_of_one_that_was_promised_it_in_the_end() -> None:
    world = World(flat(1, 1), "priority")
    world.run(a_job("low"))
    world.submit(a_job("mid", priority=5))
    world.submit(a_job("high", priority=9))
    world.done("low")
    if world.status("high") is JobState.WAITING and world.status("mid") is not JobState.WAITING:
        world.done("mid")
    if world.status("mid") is JobState.STOPPING:
        world.done("mid")
    assert world.status("high") in (JobState.STARTING, JobState.RUNNING)


def test_room_is_made_for_a_head_with_several_tasks_to_a_node() -> None:
    world = World(flat(2, 8), "priority")
    world.run(a_job("a", 8), a_job("b", 8))
    plan = world.submit(a_job("head", 4, 4, priority=5))
    assert sorted(stops(plan)) == ["a", "b"]


def test_room_is_made_where_cpus_are_short_and_not_gpus() -> None:
    world = World(Cluster((Node("n0", (), 8, cpus_milli=8_000),)), "priority")
    world.run(*(a_job(f"low{i}", 1, task={"cpus_milli": 2_000}) for i in range(4)))
    plan = world.submit(a_job("head", 1, priority=5, task={"cpus_milli": 4_000}))
    assert len(stops(plan)) == 2


def test_room_is_made_for_a_head_of_two_roles() -> None:
    world = World(flat(2, 4), "priority")
    world.run(*(a_job(f"low{i}", 2) for i in range(4)))
    head = of_roles("head", workers(1, 4), Role("ps", 2, 2, Task(1)), priority=5)
    assert len(stops(world.submit(head))) == 3


def test_a_decision_leaves_the_state_as_it_was() -> None:
    world = with_claim()
    world.submit(a_job("other", priority=7))
    before = everything(world.state)
    decide(world.state, world.now + 5)
    assert everything(world.state) == before


def test_what_an_elastic_job_loses_is_what_it_had_and_not_what_it_has() -> None:
    """grown had 1 GPU for an hour and 4 for a second, fixed has had 4 for three quarters of an hour since it saved."""
    world = World(flat(3, 4), "priority")
    world.run(a_job("fixed", 4))
    world.run(a_job("x", 3, preemptible=False), a_job("y", 4, preemptible=False))
    world.run(a_job("grown", 1, (1, 4)))
    world.turn(Progress("fixed", 1, step=10, durable_step=10), after_ms=900_000)
    world.end("x", after_ms=2_700_000)
    world.done("grown")
    plan = world.submit(a_job("head", 4, priority=9), after_ms=1_000)
    assert world.job("grown").attempt.lost_gpu_ms(world.now) == 3_600_000 + 4_000
    assert stops(plan) == ["grown"]


def test_what_is_durable_is_not_lost_whatever_size_it_was_done_at() -> None:
    world = World(flat(1, 4), "priority")
    world.run(a_job("x", 3))
    world.run(a_job("grown", 1, (1, 4)))
    world.end("x", after_ms=60_000)
    world.done("grown")
    world.turn(Progress("grown", 1, step=90, durable_step=60), after_ms=30_000)
    assert world.job("grown").attempt.lost_gpu_ms(world.now) == 4 * 30_000, "two thirds of it: the time with one GPU"


@pytest.mark.parametrize("policy", ["priority", "fair:preempt=true", "kai", "phalanx"])
def test_a_service_shrinks_beside_those_who_are_stopped_if_fewer_are_then(policy: str) -> None:
    """Four GPUs: two of the service, which keeps two, and those of one training job instead of both."""
    world = World(flat(1, 8), policy)
    world.run(a_job("service", 1, (2, 4), kind=Kind.SERVICE, min_available=2), a_job("t1", 2), a_job("t2", 2))
    world.turn(after_ms=100_000)
    plan = world.submit(a_job("head", 4, priority=10))
    assert plan.starts == ("head",)
    assert len(stops(plan)) == 1
    (resized,) = (action for action in plan.actions if isinstance(action, Resize))
    assert (resized.id.job, len(resized.placement.slots)) == ("service", 2)


def test_only_as_many_members_go_as_are_needed_beside_those_who_are_stopped() -> None:
    world = World(flat(1, 8), "priority")
    world.run(a_job("service", 1, (1, 4), kind=Kind.SERVICE, min_available=1), a_job("t1", 4))
    world.turn(after_ms=100_000)
    plan = world.submit(a_job("head", 5, priority=10))
    assert (plan.starts, stops(plan)) == (("head",), ["t1"])
    (resized,) = (action for action in plan.actions if isinstance(action, Resize))
    assert (resized.id.job, len(resized.placement.slots)) == ("service", 3)


def test_nobody_is_stopped_needlessly_for_tasks_that_share_a_gpu() -> None:
    """Three halves need two GPUs, not three: who has the CPUs beside the free GPU of n1 may stay."""
    nodes = (Node("n0", (), 2, "H100", 80.0, cpus_milli=8_000), Node("n1", (), 1, "H100", 80.0, cpus_milli=9_000))
    world = World(Cluster(nodes), "priority")
    cpus = {"cpus_milli": 9_000, "cpus_limit_milli": 9_000}
    world.run(a_job("whole", 2), a_job("cpus", 0, task=cpus))
    assert world.where("cpus") == {"n1": ()}
    half = {"share": fraction_ask(500), "cpus_milli": 1_000, "cpus_limit_milli": 1_000}
    plan = world.submit(a_job("head", 1, 3, required="node", task=half, priority=10), after_ms=1_000)
    assert (plan.starts, stops(plan)) == (("head",), ["whole"])


@pytest.mark.parametrize("policy", ["priority", "fair:preempt=true", "kai", "volcano"])
def test_one_of_the_highest_priority_stops_the_lowest_and_nobody_is_stopped_in_turn(policy: str) -> None:
    world = World(flat(1, 8), policy)
    for priority in range(8):
        world.run(a_job(f"p{priority}", 1, priority=priority), after_ms=60_000)
    stopped = stops(world.submit(a_job("p8", 1, priority=8), after_ms=1_000))
    for _ in range(20):
        actions = list(world.asked.values())
        if not actions:
            break
        stopped += stops(world.turn(*(Done(action.id) for action in actions), after_ms=1_000))
    assert stopped == ["p0"]
    assert world.status("p8") is JobState.RUNNING
