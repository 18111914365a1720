"""priority: bands, and who makes room for whom."""

from __future__ import annotations

import pytest

from builders import World, a_job, racked, starts, stops
from phalanx.cluster.cluster import Cluster, Node, flat
from phalanx.policy.registry import policy
from phalanx.protocol.event import JobCancelled, Progress
from phalanx.protocol.reason import Reason
from phalanx.workload.job import Checkpointing, Kind


def full(**job: object) -> World:
    """One GPU, taken by a job `low`."""
    world = World(flat(1, 1), "priority")
    world.run(a_job("low", **job))
    return world


def test_a_higher_priority_goes_first() -> None:
    world = World(flat(1, 2), "priority")
    assert starts(world.submit(a_job("low"), a_job("high", priority=5), a_job("mid", priority=3))) == ["high", "mid"]


def test_equal_priorities_go_in_the_order_of_submission() -> None:
    world = World(flat(1, 2), "priority")
    assert starts(world.submit(a_job("b"), a_job("a"))) == ["b", "a"]


def test_whoever_fits_may_pass_a_head_that_does_not() -> None:
    world = World(flat(1, 4), "priority")
    world.run(a_job("top", 2, priority=9))
    assert starts(world.submit(a_job("large", 4, priority=5), a_job("small", 1))) == ["small"]


@pytest.mark.parametrize(
    ("above", "below", "stopped"),
    [
        (1, 0, True),
        (0, 0, False),
        (0, 1, False),
        (200, 199, True),
        (299, 200, False),
        (250, 250, False),
        (300, 299, True),
        (301, 300, True),
    ],
)
def test_a_lower_priority_makes_room_but_production_does_not_for_production(
    above: int, below: int, stopped: bool
) -> None:
    world = full(priority=below)
    assert stops(world.submit(a_job("head", priority=above))) == (["low"] if stopped else [])


def test_the_bands_are_parameters() -> None:
    world = World(flat(1, 1), "priority:production=10,monitoring=20")
    world.run(a_job("low", priority=10))
    assert not stops(world.submit(a_job("head", priority=19)))
    assert stops(world.submit(a_job("top", priority=20))) == ["low"]


def test_monitoring_below_production_is_refused() -> None:
    with pytest.raises(ValueError, match="monitoring=100 must not be less than production=200"):
        policy("priority:monitoring=100")


@pytest.mark.parametrize("job", [{"preemptible": False}, {"kind": Kind.SERVICE}])
def test_services_and_jobs_that_may_not_be_stopped_are_no_victims(job: dict[str, object]) -> None:
    world = full(**job)
    assert not world.submit(a_job("head", priority=100)).actions
    assert world.reason("head") is Reason.GPUS


def test_the_victim_is_who_loses_the_least_since_its_last_checkpoint() -> None:
    world = World(flat(1, 2), "priority")
    world.run(a_job("saved"))
    world.run(a_job("young"), after_ms=50_000)
    world.turn(Progress("saved", 1, step=100, durable_step=100), after_ms=40_000)
    plan = world.submit(a_job("head", priority=1), after_ms=10_000)
    assert stops(plan) == ["saved"], "10 s lost, not 50"


def test_steps_after_the_last_durable_one_are_counted_as_lost() -> None:
    """All three are as far and report at once: whoever has saved most of it loses least."""
    world = World(flat(3, 8), "priority")
    world.run(*(a_job(name, 8) for name in ("tenth", "most", "half")))
    saved = {"tenth": 10, "most": 99, "half": 50}
    reports = (Progress(name, 1, step=100, durable_step=step) for name, step in saved.items())
    world.turn(*reports, after_ms=100_000)
    assert stops(world.submit(a_job("head", 8, priority=1))) == ["most"]


def test_what_stopping_and_restarting_cost_counts_as_lost() -> None:
    world = World(flat(1, 2), "priority")
    world.run(a_job("slow", checkpoint=Checkpointing(cost_ms=20_000)))
    world.run(a_job("quick"))
    world.turn(Progress("quick", 1, stop_cost_ms=5_000))
    assert stops(world.submit(a_job("head", priority=1), after_ms=1_000)) == ["quick"]


def test_two_small_victims_are_stopped_rather_than_one_large_that_loses_more() -> None:
    world = World(flat(2, 4), "priority")
    world.run(a_job("large", 4))
    world.run(a_job("a", 2), a_job("b", 2), after_ms=30_000)
    plan = world.submit(a_job("head", 4, priority=1), after_ms=10_000)
    assert sorted(stops(plan)) == ["a", "b"], "80 GPU-seconds lost, not 160"
    assert plan.claims[0].victims in (("a/1", "b/1"), ("b/1", "a/1"))


def test_one_small_victim_is_stopped_rather_than_a_large_one_that_loses_less_for_each_gpu() -> None:
    world = World(flat(1, 3), "priority")
    world.run(a_job("small", 1))
    world.run(a_job("large", 2), after_ms=3_000)
    assert stops(world.submit(a_job("head", 1, priority=1), after_ms=60_000)) == ["small"], "63 GPU-seconds, not 120"


def test_nobody_is_stopped_who_is_not_needed() -> None:
    world = World(flat(1, 4), "priority")
    world.run(*(a_job(f"low{i}") for i in range(4)))
    assert len(stops(world.submit(a_job("head", 2, priority=1)))) == 2


def test_nobody_is_stopped_for_a_head_that_would_not_fit_even_then() -> None:
    world = World(flat(2, 4), "priority")
    world.run(a_job("fixed", 1, preemptible=False), a_job("low", 3), a_job("other", 4))
    assert not world.submit(a_job("head", 4, 2, priority=1)).actions


def test_victims_are_looked_for_where_the_head_may_lie() -> None:
    nodes = (Node("a", (), 1, "A"), Node("b", (), 1, "B"))
    world = World(Cluster(nodes), "priority")
    world.run(a_job("on_a", task={"gpu_types": ("A",)}))
    world.run(a_job("on_b", task={"gpu_types": ("B",)}), after_ms=10_000)
    plan = world.submit(a_job("head", priority=1, task={"gpu_types": ("A",)}), after_ms=10_000)
    assert stops(plan) == ["on_a"], "though it loses more"


def test_victims_come_from_one_rack_if_the_head_must_lie_in_one() -> None:
    world = World(racked(2, 2, gpus=1), "priority")
    world.run(*(a_job(f"j{i}") for i in range(4)))
    world.turn(Progress("j0", 1, durable_step=1), Progress("j2", 1, durable_step=1), after_ms=60_000)
    world.turn(Progress("j3", 1, durable_step=1))
    plan = world.submit(a_job("head", 1, 2, required="rack", priority=1), after_ms=1_000)
    assert sorted(stops(plan)) == ["j2", "j3"]


def test_who_is_leaving_anyway_is_waited_for_before_anybody_else_is_stopped() -> None:
    world = World(flat(1, 2), "priority")
    world.run(a_job("leaver"), a_job("low"))
    world.turn(JobCancelled("leaver"), after_ms=60_000)
    plan = world.submit(a_job("head", priority=1))
    assert not stops(plan)
    assert plan.claims[0].waits
    assert plan.claims[0].victims == ()
    assert world.reason("head") is Reason.MAKING_ROOM
    assert starts(world.done("leaver")) == ["head"]
