"""Quotas of queues: who is admitted, who is skipped, and who has to give back what was lent."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from builders import World, a_job, starts, stops
from phalanx.cluster.cluster import Cluster, Node, flat
from phalanx.cluster.queues import Queue, Quota
from phalanx.engine.decide.cycle import decide
from phalanx.engine.state.records import JobState
from phalanx.protocol.event import AttemptEnded, ClusterChanged, JobCancelled, JobSubmitted, Outcome, Progress
from phalanx.protocol.reason import Reason
from phalanx.workload.job import Checkpointing, Job

HOUR_MS = 3_600_000


def gpus(count: float) -> Quota:
    return Quota(round(1000 * count))


def shared(*queues: Queue, nodes: int = 2, each: int = 4) -> Cluster:
    return replace(flat(nodes, each), queues=queues)


def of(queue: str, name: str, count: int = 1, **job: Any) -> Job:
    return a_job(name, count, queue=queue, **job)


def world_of(*queues: Queue, policy: str = "fifo", nodes: int = 2, each: int = 4) -> World:
    return World(shared(*queues, nodes=nodes, each=each), policy)


def test_who_is_over_the_limit_is_skipped_and_told_so() -> None:
    world = world_of(Queue("a", limit=gpus(2)), Queue("b"))
    plan = world.submit(of("a", "a1", 2), of("a", "a2", 1), of("b", "b1", 1))
    assert starts(plan) == ["a1", "b1"]
    assert world.reason("a2") is Reason.QUOTA
    assert world.state.head == ""


def test_who_would_only_borrow_holds_up_nobody_who_is_due_something() -> None:
    world = world_of(Queue("a", deserved=gpus(4)), Queue("b", deserved=gpus(4)))
    world.run(of("b", "b1", 4), of("b", "b2", 4))
    world.submit(of("b", "b3", 4))
    plan = world.submit(of("a", "a1", 4))
    assert (stops(plan), plan.starts) == (["b1"], ("a1",))
    assert world.reason("b3") is Reason.GPUS


def test_who_is_due_what_does_not_fit_yet_still_holds_up_all_behind_it() -> None:
    world = world_of(Queue("a", deserved=gpus(4)), Queue("b", deserved=gpus(4), min_run_ms=HOUR_MS))
    world.run(of("b", "b1", 4), of("b", "b2", 3))
    world.submit(of("a", "a1", 4))
    assert starts(world.submit(of("b", "b3", 1))) == []
    assert world.reason("b3") is Reason.BEHIND


def test_the_skipped_starts_as_soon_as_its_queue_has_less() -> None:
    world = world_of(Queue("a", limit=gpus(2)))
    world.run(of("a", "a1", 2))
    world.submit(of("a", "a2", 1))
    assert starts(world.end("a1")) == ["a2"]


def test_limits_hold_for_all_queues_inside_together() -> None:
    world = world_of(Queue("a", limit=gpus(3)), Queue("a/x"), Queue("a/y"))
    plan = world.submit(of("a/x", "x", 2), of("a/y", "y", 2), of("a/y", "z", 1))
    assert starts(plan) == ["x", "z"]
    assert world.reason("y") is Reason.QUOTA


def test_what_is_guaranteed_is_lent_to_nobody() -> None:
    world = world_of(Queue("a", guaranteed=gpus(4)), Queue("b"))
    plan = world.submit(*(of("b", f"b{i}", 1) for i in range(8)))
    assert len(starts(plan)) == 4
    assert world.reason("b7") is Reason.QUOTA
    assert starts(world.submit(of("a", "a1", 4))) == ["a1"]


def test_what_is_deserved_is_lent_while_idle_and_had_back_when_wanted() -> None:
    world = world_of(Queue("a", deserved=gpus(4)), Queue("b"))
    world.run(*(of("b", f"b{i}", 2) for i in range(4)))
    plan = world.submit(of("a", "a1", 4))
    assert len(stops(plan)) == 2
    assert world.reason("a1") is Reason.MAKING_ROOM
    for name in stops(plan):
        world.done(name)
    assert world.status("a1") is JobState.STARTING
    assert [world.reason(name) for name in stops(plan)] == [Reason.GPUS, Reason.GPUS]


def test_nothing_is_had_back_beyond_what_is_deserved() -> None:
    world = world_of(Queue("a", deserved=gpus(4)), Queue("b"))
    world.run(*(of("b", f"b{i}", 2) for i in range(4)))
    plan = world.submit(of("a", "small", 2), of("a", "large", 3))
    assert len(stops(plan)) == 1
    assert world.reason("large") is Reason.GPUS


def test_two_queues_within_what_they_deserve_take_nothing_from_one_another() -> None:
    world = world_of(Queue("a", deserved=gpus(4)), Queue("b", deserved=gpus(4)), policy="priority")
    world.run(*(of("b", f"b{i}", 2) for i in range(2)), of("a", "a1", 4))
    assert stops(world.submit(of("a", "urgent", 1, priority=100))) == ["a1"]
    assert not stops(world.submit(of("a", "more", 4, priority=100)))


def test_a_queue_that_is_not_reclaimable_keeps_what_it_has_borrowed() -> None:
    world = world_of(Queue("a", deserved=gpus(4)), Queue("b", reclaimable=False))
    world.run(*(of("b", f"b{i}", 2) for i in range(4)))
    assert not stops(world.submit(of("a", "a1", 4)))


def test_nobody_gives_way_before_the_least_run_time_of_his_queue() -> None:
    world = world_of(Queue("a", deserved=gpus(4)), Queue("b", min_run_ms=60_000))
    world.run(*(of("b", f"b{i}", 2) for i in range(4)))
    assert not stops(world.submit(of("a", "a1", 4)))
    assert not stops(world.turn(after_ms=59_000))
    assert len(stops(world.turn(after_ms=1_000))) == 2


def test_the_least_run_time_before_others_reclaim_may_be_another_than_that_in_the_queue_itself() -> None:
    b = Queue("b", min_run_ms=60_000, min_run_reclaim_ms=10_000)
    world = world_of(Queue("a", deserved=gpus(4)), b, policy="priority")
    world.run(*(of("b", f"b{i}", 2) for i in range(4)))
    assert not stops(world.submit(of("a", "a1", 4), of("b", "urgent", 2, priority=9)))
    assert not stops(world.turn(after_ms=9_999))
    reclaimed = stops(world.turn(after_ms=1))
    assert len(reclaimed) == 2
    world.done(*reclaimed, after_ms=1)
    assert world.status("a1") is not JobState.WAITING
    assert not stops(world.turn(after_ms=49_998))
    assert len(stops(world.turn(after_ms=1))) == 1


def test_the_least_run_time_in_a_queue_may_be_the_shorter_one() -> None:
    b = Queue("b", min_run_ms=10_000, min_run_reclaim_ms=60_000)
    world = world_of(Queue("a", deserved=gpus(4)), b, policy="priority")
    world.run(*(of("b", f"b{i}", 4) for i in range(2)))
    world.submit(of("a", "a1", 4), of("b", "urgent", 4, priority=9))
    assert not stops(world.turn(after_ms=9_999))
    assert len(stops(world.turn(after_ms=1))) == 1, "for urgent, of its own queue"
    assert world.reason("a1") is Reason.GPUS
    assert len(stops(world.turn(after_ms=50_000))) == 1, "for a1, which deserves it"


def test_how_long_is_said_where_two_queues_lie_side_by_side() -> None:
    """As KAI has it: 20 s for those of another department, 5 s for the neighbour."""
    world = world_of(
        Queue("prod", deserved=gpus(2)),
        Queue("lab", deserved=gpus(6), min_run_reclaim_ms=20_000),
        Queue("lab/x", deserved=gpus(2)),
        Queue("lab/y", deserved=gpus(4), min_run_ms=60_000, min_run_reclaim_ms=5_000),
        policy="fair",
    )
    quotas = world.state.quotas
    assert quotas.least_run_ms("prod", "lab/y") == quotas.least_run_ms("prod", "lab/x") == 20_000
    assert quotas.least_run_ms("lab/x", "lab/y") == 5_000
    assert quotas.least_run_ms("lab/y", "lab/y") == 60_000
    assert quotas.least_run_ms("lab/y", "lab/x") == 20_000, "x says nothing, so what holds around it does"
    assert quotas.least_run_ms("lab/x", "prod") == 0
    world.run(*(of("lab/y", f"y{i}", 2) for i in range(4)))
    world.submit(of("lab/x", "x1", 2))
    assert not stops(world.turn(after_ms=4_999))
    (left,) = stops(world.turn(after_ms=1))
    assert starts(world.done(left)) == ["x1"]
    world.done("x1")
    world.submit(of("prod", "p1", 2))
    assert not stops(world.turn(after_ms=14_999))
    assert len(stops(world.turn(after_ms=1))) == 1, "for p1"


def test_a_least_run_time_that_is_changed_under_running_work_is_kept() -> None:
    queues = (Queue("a", deserved=gpus(4)), Queue("b", min_run_ms=60_000))
    world = world_of(*queues)
    world.run(of("b", "b1", 4), of("b", "b2", 4))
    world.submit(of("a", "a1", 4))
    later = replace(world.state.cluster, queues=(queues[0], replace(queues[1], min_run_ms=90_000)))
    assert not stops(world.turn(ClusterChanged(later), after_ms=30_000))
    assert not stops(world.turn(after_ms=59_999))
    assert len(stops(world.turn(after_ms=1))) == 1


def test_cousins_give_back_where_their_parents_lie_side_by_side() -> None:
    world = world_of(
        Queue("a", deserved=gpus(4)),
        Queue("a/x", deserved=gpus(1)),
        Queue("a/y", deserved=gpus(3)),
        Queue("b", deserved=gpus(4)),
        Queue("b/z", deserved=gpus(2)),
    )
    world.run(of("b/z", "z1", 4), of("b/z", "z2", 2), of("a/x", "x1", 2))
    plan = world.submit(of("a/y", "y1", 2), after_ms=1_000)
    assert stops(plan) == ["z2"]


def test_a_queue_that_has_spent_its_budget_starts_nothing_more() -> None:
    world = world_of(Queue("a", budget_gpu_ms=2 * HOUR_MS))
    world.run(of("a", "a1", 2))
    assert starts(world.submit(of("a", "a2", 1), after_ms=HOUR_MS - 1)) == ["a2"]
    world.submit(of("a", "a3", 1), after_ms=1)
    assert world.reason("a3") is Reason.BUDGET
    assert world.status("a1") is JobState.RUNNING


def test_an_elastic_job_starts_and_grows_within_the_quota() -> None:
    world = world_of(Queue("a", limit=gpus(3)), Queue("b"))
    world.run(a_job("wide", 1, count=(1, 8), queue="a"))
    assert sum(map(len, world.where("wide").values())) == 3


def test_cpus_and_memory_have_quotas_too() -> None:
    cluster = replace(
        flat(1, 4),
        nodes=(replace(flat(1, 4).nodes[0], cpus_milli=64_000, memory_mb=65_536),),
        queues=(Queue("a", limit=Quota(None, 8_000, None)),),
    )
    world = World(cluster)
    plan = world.submit(of("a", "a1", task={"cpus_milli": 6_000}), of("a", "a2", task={"cpus_milli": 4_000}))
    assert starts(plan) == ["a1"]
    assert world.reason("a2") is Reason.QUOTA


@pytest.mark.parametrize(
    ("queue", "count", "message"),
    [
        ("c", 1, "Unknown queue 'c' of job .*\\. Queues: a/x, b"),
        ("a", 1, "queue a has others inside, submit to one of them: a/x"),
        ("b", 5, "queue b can have 4 at most: the cluster has 8, of which a is guaranteed 4"),
    ],
)
def test_a_job_that_its_queue_can_never_have_is_refused(queue: str, count: int, message: str) -> None:
    world = world_of(Queue("a", guaranteed=gpus(4)), Queue("a/x"), Queue("b"))
    with pytest.raises(ValueError, match=message):
        world.turn(JobSubmitted(of(queue, "job", count)))
    assert "job" not in world.state.jobs


def test_without_queues_any_name_goes_and_nobody_is_refused() -> None:
    world = World(flat(1, 2))
    assert starts(world.submit(of("anything", "a", 2))) == ["a"]


def test_what_somebody_is_due_in_the_same_decision_is_not_lent_to_another() -> None:
    """vision deserves 2 and would start 8; llm deserves 6 and has 4: the last job of llm is due its share."""
    queues = (
        Queue("research", limit=gpus(12)),
        Queue("research/llm", guaranteed=gpus(4), deserved=gpus(6)),
        Queue("research/vision", deserved=gpus(2)),
        Queue("prod", guaranteed=gpus(2), deserved=gpus(6)),
    )
    world = world_of(*queues, policy="fifo:skip=true", each=8)
    vision, llm = "research/vision", "research/llm"
    plan = world.submit(of(vision, "v1", 4), of(vision, "v2", 4), of(llm, "l1", 4), of(llm, "l2", 2))
    assert starts(plan) == ["v1", "l1", "l2"]
    assert not stops(world.done("v1", "l1", "l2"))
    assert world.reason("v2") is Reason.QUOTA


def test_of_two_who_are_due_the_same_in_one_decision_neither_borrows_what_the_other_is_due() -> None:
    """Each deserves 4 of 8 and could use all 8: the one that has 4 back of what the first would borrow has no more."""
    world = world_of(Queue("a", deserved=gpus(4)), Queue("b", deserved=gpus(4)), policy="fair", nodes=1, each=8)
    plan = world.submit(a_job("x", 1, (4, 8), queue="a"), a_job("y", 1, (4, 8), queue="b"))
    assert starts(plan) == ["y", "x"]
    assert [len(claim.placement.slots) for claim in plan.claims] == [4, 4]
    assert not world.done("x", "y").actions


@pytest.mark.parametrize("size", [1, 2])
def test_what_is_promised_to_one_who_borrows_is_had_back_before_it_is_free(size: int) -> None:
    """v leaves 2 GPUs, of which y is promised 1 or both. a is due both, and need not wait until y has them."""
    world = world_of(Queue("a", deserved=gpus(2)), Queue("b", deserved=gpus(0)), policy="fair", nodes=1, each=2)
    world.run(of("b", "v", 2))
    world.turn(JobCancelled("v"), JobSubmitted(of("b", "y", size)), after_ms=1_000)
    plan = world.submit(of("a", "due", 2), after_ms=1_000)
    assert [(claim.job, claim.waits) for claim in plan.claims] == [("due", True)]
    assert plan.withdrawn == ("y/1",)


def test_what_would_be_promised_to_one_who_borrows_is_promised_to_who_is_due_it_in_the_same_decision() -> None:
    """v leaves 2 GPUs. late goes first and would borrow them, and due deserves them."""
    world = world_of(Queue("a", deserved=gpus(2)), Queue("b", deserved=gpus(0)), policy="fair", nodes=1, each=2)
    world.run(of("b", "v", 2))
    world.submit(of("b", "late", 2, max_wait_ms=1_000))
    world.turn(after_ms=2_000)
    plan = world.turn(JobCancelled("v"), JobSubmitted(of("a", "due", 2)), after_ms=1_000)
    assert [(claim.job, claim.waits) for claim in plan.claims] == [("due", True)]
    assert not decide(world.state, world.now).claims


def test_what_would_be_promised_to_one_in_time_goes_to_who_is_due_it_where_somebody_may_wait_too_long() -> None:
    """v leaves 2 GPUs. borrows stands first and would have them, and due deserves them."""
    queues = (Queue("a", deserved=gpus(4)), Queue("b", deserved=gpus(0)))
    world = world_of(*queues, policy="fifo:skip=true", nodes=1, each=4)
    world.run(of("a", "keeps", 2), of("b", "v", 2))
    borrows, due = of("b", "borrows", 2, max_wait_ms=HOUR_MS), of("a", "due", 2)
    plan = world.turn(JobCancelled("v"), JobSubmitted(borrows), JobSubmitted(due), after_ms=1_000)
    assert [(claim.job, claim.waits) for claim in plan.claims] == [("due", True)]
    assert not decide(world.state, world.now).claims


def test_what_is_due_is_not_lent_also_where_somebody_else_must_leave_as_well() -> None:
    """runs has one of two GPUs, and late goes first and would borrow the other. due deserves both."""
    world = world_of(Queue("a", deserved=gpus(2)), Queue("b", deserved=gpus(0)), policy="fair", nodes=1, each=2)
    world.run(of("b", "runs"), of("b", "ends"))
    world.submit(of("b", "late", max_wait_ms=1_000))
    world.turn(after_ms=2_000)
    plan = world.turn(AttemptEnded("ends", 1, Outcome.SUCCEEDED), JobSubmitted(of("a", "due", 2)), after_ms=1_000)
    assert [(claim.job, claim.victims) for claim in plan.claims] == [("due", ("runs/1",))]
    assert stops(plan) == ["runs"]


def test_what_is_due_is_not_lent_also_where_it_is_reserved_for_one_who_goes_first() -> None:
    """late goes before due and would borrow a node until 90 s, when both are reserved for whole. a is due it."""
    queues = (Queue("a", deserved=gpus(8)), Queue("b", deserved=gpus(0)))
    world = world_of(*queues, policy="fair", nodes=2, each=4)
    world.run(of("b", "runs", 4, duration_ms=90_000), of("b", "ends", 4, duration_ms=60_000))
    world.submit(a_job("whole", 4, 2, queue="b", duration_ms=90_000, max_wait_ms=1_000))
    world.submit(of("b", "late", 4, duration_ms=10_000, max_wait_ms=2_000))
    world.turn(after_ms=3_000)
    plan = world.turn(
        AttemptEnded("ends", 1, Outcome.SUCCEEDED), JobSubmitted(of("a", "due", 4, duration_ms=900_000)), after_ms=1_000
    )
    assert starts(plan) == ["due"]
    again = decide(world.state, world.now)
    assert (again.claims, again.actions) == ((), ())


def half_reserved(policy: str, *queues: Queue, head: str = "c", **low: Any) -> World:
    """Four nodes of 4 GPUs in two racks. n1 has one that may be stopped, n3 is free, and head has n2 and n3 reserved
    from 100 s on: it needs a rack.
    """
    nodes = tuple(Node(f"n{i}", (f"r{i // 2}",), 4) for i in range(4))
    world = World(Cluster(nodes, ("rack", "node"), queues=queues), policy)
    keeps: dict[str, Any] = {"preemptible": False, "priority": 5}
    world.run(of("b", "stays", 4, duration_ms=9 * HOUR_MS, **keeps))
    world.run(of("b", "lent", 4, duration_ms=8 * HOUR_MS, **low))
    world.run(of("b", "ends", 4, duration_ms=100_000, **keeps))
    world.submit(a_job("head", 4, 2, required="rack", queue=head, duration_ms=50_000, priority=5), after_ms=1_000)
    assert [(each.at_ms, each.placement.nodes) for each in world.state.reservations] == [(100_000, ("n2", "n3"))]
    return world


@pytest.mark.parametrize("policy", ["backfill", "backfill:mode=conservative", "fair:backfill=easy"])
def test_who_reclaims_takes_nothing_that_is_reserved_for_one_before_it_who_is_due_as_much(policy: str) -> None:
    queues = Queue("a", deserved=gpus(8)), Queue("b", deserved=gpus(0)), Queue("c", deserved=gpus(8))
    world = half_reserved(policy, *queues)
    plan = world.submit(a_job("due", 4, 2, queue="a", duration_ms=HOUR_MS, priority=5), after_ms=1_000)
    assert (plan.claims, stops(plan)) == ((), [])
    assert (world.state.reservations[0].job, world.state.reservations[0].at_ms) == ("head", 100_000)


def test_who_reclaims_takes_what_is_reserved_for_one_who_would_borrow_it() -> None:
    world = half_reserved("backfill", Queue("a", deserved=gpus(8)), Queue("b", deserved=gpus(0)), Queue("c"))
    plan = world.submit(a_job("due", 4, 2, queue="a", duration_ms=HOUR_MS, priority=5), after_ms=1_000)
    assert [(claim.job, claim.placement.nodes) for claim in plan.claims] == [("due", ("n1", "n3"))]
    assert stops(plan) == ["lent"]


@pytest.mark.parametrize("queue", ["a", "b"])
def test_where_there_are_no_quotas_who_stops_another_delays_nobody_whosever_queue_that_is(queue: str) -> None:
    world = half_reserved("priority:backfill=easy")
    plan = world.submit(a_job("late", 4, 2, queue=queue, duration_ms=HOUR_MS, priority=5), after_ms=1_000)
    assert (plan.claims, stops(plan)) == ((), [])


def test_one_who_is_overdue_and_has_nothing_back_does_not_keep_others_from_what_they_have_back() -> None:
    """1 GPU is free on each of 4 nodes, and a has 2 more than it deserves: too few on one node for 4, enough for 2."""
    queues = (Queue("a", deserved=gpus(14)), Queue("b", deserved=gpus(6)))
    world = world_of(*queues, policy="fair", nodes=4, each=5)
    world.run(*(of("a", f"keeps{i}", 4, preemptible=False) for i in range(3)))
    world.run(*(of("a", f"lent{i}", checkpoint=Checkpointing()) for i in range(8)))
    beside = {next(iter(world.where(f"lent{i}"))): f"lent{i}" for i in range(8)}
    for lent in beside.values():
        world.end(lent)
    world.submit(of("b", "whole", 4, max_wait_ms=1_000))
    plan = world.submit(of("b", "due", 2), after_ms=2_000)
    assert [claim.job for claim in plan.claims] == ["due"]
    assert len(stops(plan)) == 1


def test_who_lacks_quota_and_no_devices_need_not_wait_until_who_borrows_has_left() -> None:
    world = world_of(Queue("r", limit=gpus(4)), Queue("r/a"), Queue("r/b", deserved=gpus(2)))
    world.run(of("r/a", "a1", 4))
    plan = world.submit(of("r/b", "b1", 2), after_ms=1_000)
    assert stops(plan) == ["a1"]
    assert starts(plan) == ["b1"]


def test_of_those_who_borrow_the_cheapest_makes_way_where_nothing_but_quota_is_short() -> None:
    """r may have 6, which a has: lo loses 4 GPU-hours, lo2 loses 2, and 2 GPUs are due to b. There are free ones."""
    queues = (Queue("r", limit=gpus(6)), Queue("r/a", deserved=gpus(4)), Queue("r/b", deserved=gpus(2)))
    world = world_of(*queues, policy="priority", each=4)
    world.run(of("r/a", "lo", 4))
    world.run(of("r/a", "lo2", 2))
    plan = world.submit(of("r/b", "due", 2), after_ms=HOUR_MS)
    assert stops(plan) == ["lo2"]
    assert starts(plan) == ["due"]


def test_who_borrows_cpus_keeps_the_gpus_that_its_queue_deserves() -> None:
    """b has its 4 GPUs and more CPUs than its 50; c has 8 GPUs and deserves 4. The 4 GPUs of a come from c."""
    cluster = replace(
        flat(3, 4),
        nodes=tuple(replace(node, cpus_milli=100_000) for node in flat(3, 4).nodes),
        queues=tuple(Queue(name, deserved=(4_000, 50_000, None)) for name in "abc"),
    )
    world = World(cluster, "priority")
    for name, queue, on, cpus in (("c1", "c", 4, 4), ("c2", "c", 4, 4), ("cpus", "b", 0, 80), ("b1", "b", 4, 4)):
        world.run(a_job(name, on, queue=queue, task={"cpus_milli": 1000 * cpus}), after_ms=1_000)
    plan = world.submit(a_job("a1", 4, queue="a", task={"cpus_milli": 4000}), after_ms=1_000)
    assert stops(plan) in (["c1"], ["c2"])


@pytest.mark.parametrize("policy", ["fifo", "fifo:skip=true", "priority", "backfill", "fair", "kai", "srtf"])
def test_who_is_due_takes_what_the_same_decision_would_lend_before_anybody_is_stopped(policy: str) -> None:
    """a has what it deserves and b nothing. Of the free node a2 would borrow, b1 is due it: a1 need not stop for b1."""
    world = world_of(Queue("a", deserved=gpus(4)), Queue("b", deserved=gpus(4)), policy=policy)
    world.run(a_job("a1", 4, queue="a", duration_ms=10 * HOUR_MS))
    long = [a_job(name, 4, queue=queue, duration_ms=20 * HOUR_MS) for name, queue in (("a2", "a"), ("b1", "b"))]
    plan = world.submit(*long, after_ms=HOUR_MS)
    assert starts(plan) == ["b1"]
    assert not stops(plan)
    assert world.status("a2") is JobState.WAITING


@pytest.mark.parametrize("policy", ["fifo", "fair", "fair-tree", "multifactor", "backfill", "drf"])
def test_who_has_what_another_queue_is_due_moves_if_it_lands_elsewhere_at_once(policy: str) -> None:
    """Two nodes are half used by a, which borrows 2: b is due a whole node, and there is room for both of a on one."""
    world = world_of(Queue("a", deserved=gpus(2)), Queue("b", deserved=gpus(4)), policy=policy)
    for name in ("a1", "x", "a2"):
        world.run(of("a", name, 2))
    world.end("x", after_ms=1_000)
    world.turn(*(Progress(name, 1, step=1, durable_step=1) for name in ("a1", "a2")), after_ms=1_000)
    plan = world.submit(of("b", "b1", 4), after_ms=HOUR_MS)
    assert not stops(plan)
    assert [type(action).__name__ for action in plan.actions] == ["Resize"]


def test_who_fits_on_what_is_free_starts_while_another_is_promised_what_an_elastic_job_gives_back() -> None:
    nodes = (Node("n0", ("r0",), 2, cpus_milli=8_000), Node("n1", ("r0",), 1, cpus_milli=1_000))
    queues = (Queue("a", deserved=gpus(1)), Queue("b", deserved=gpus(1)), Queue("c"))
    world = World(Cluster(nodes, ("rack", "node"), queues=queues), "fair")
    world.run(a_job("elastic", 1, (1, 2), task={"cpus_milli": 2_000}, queue="a"))
    plan = world.submit(of("b", "due", 1, task={"cpus_milli": 4_000}), of("c", "small", 1))
    assert {claim.job: claim.waits for claim in plan.claims} == {"due": True, "small": False}


@pytest.mark.parametrize("policy", ["priority", "fair:preempt=true", "kai", "volcano", "srtf", "edf:preempt=true"])
def test_who_goes_before_gets_what_another_of_its_queue_was_promised(policy: str) -> None:
    """Else the other would start on all that the queue may have, only to be stopped at once."""
    world = World(replace(flat(1, 4), queues=(Queue("q"),)), policy)
    world.run(a_job("low", 4, queue="q", duration_ms=900_000, deadline_ms=3_000_000))
    world.submit(a_job("mid", 4, queue="q", priority=5, duration_ms=500_000, deadline_ms=2_000_000), after_ms=70_000)
    plan = world.submit(a_job("top", 4, queue="q", priority=10, duration_ms=100_000, deadline_ms=1_000_000))
    assert (plan.withdrawn, plan.starts) == (("mid/1",), ("top",))


ANY_POLICY = ("fifo", "fair", "fair-tree", "drf", "kai", "volcano", "priority", "phalanx", "las", "srtf", "yarn-cs")


@pytest.mark.parametrize("policy", ANY_POLICY)
def test_one_job_larger_than_what_its_queue_deserves_keeps_nobody_from_his_due(policy: str) -> None:
    """The queue has more than it deserves while the job runs. That it has less without it is no reason to keep it."""
    queues = (Queue("a", deserved=gpus(1)), Queue("b", deserved=gpus(1)))
    world = world_of(*queues, policy=policy, nodes=1, each=2)
    world.run(of("a", "large", 2))
    plan = world.submit(of("b", "due", 1), after_ms=1_000)
    assert (stops(plan), plan.starts) == (["large"], ("due",))
    world.done("large")
    assert not stops(world.done("due")), "what is due to b is not had back of it"
    assert starts(world.end("due")) == ["large"]


@pytest.mark.parametrize("policy", ["kai", "volcano"])
def test_of_a_queue_with_more_than_it_deserves_no_more_jobs_go_than_have_to(policy: str) -> None:
    """a has 5 and deserves 3: once one of 3 GPUs is gone it has less, so that the other stays."""
    queues = (Queue("a", deserved=gpus(3)), Queue("b", deserved=gpus(5)))
    world = world_of(*queues, policy=policy, nodes=1, each=8)
    world.run(of("b", "b1", 3), of("a", "a1", 3), of("a", "a2", 2))
    assert stops(world.submit(of("b", "b2", 2), after_ms=1_000)) == ["a2"]
    world.done("a2")
    assert not stops(world.submit(of("b", "b3", 1)))


def test_under_volcano_what_a_queue_deserves_is_its_own_before_the_rest_falls_to_all_by_weight() -> None:
    """Of 8 GPUs a deserves 6 and b nothing, and both weigh the same: what is left are 2, of which each is due 1."""
    world = world_of(Queue("a", deserved=gpus(6)), Queue("b"), policy="volcano", nodes=1, each=8)
    world.run(*(of("b", f"b{i}") for i in range(8)))
    plan = world.submit(*(of("a", f"a{i}") for i in range(8)), after_ms=1_000)
    assert len(stops(plan)) == 7


@pytest.mark.parametrize("policy", ANY_POLICY)
def test_a_queue_gets_what_it_deserves_also_if_one_around_it_has_more_by_what_others_there_borrow(policy: str) -> None:
    """c deserves 6 and has 3 by c/s, which deserves nothing. With the 4 of c/q it would have 7, were s not to leave."""
    inside = (Queue("c/q", deserved=gpus(4)), Queue("c/s", deserved=gpus(0)))
    queues = (Queue("c", deserved=gpus(6)), *inside, Queue("b", deserved=gpus(0)))
    world = world_of(*queues, policy=policy, nodes=1, each=6)
    world.run(*(of("b", f"b{i}") for i in range(3)), *(of("c/s", f"s{i}") for i in range(3)))
    plan = world.submit(of("c/q", "due", 4), after_ms=1_000)
    assert plan.starts == ("due",)
    assert len(stops(plan)) == 4
    assert sorted(name[0] for name in stops(plan)) == ["b", "b", "b", "s"], "without one of s, c has what it deserves"
    assert not stops(world.done(*stops(plan))), "and nobody of c has anything back from b in turn"


@pytest.mark.parametrize("policy", ["priority", "kai", "volcano", "fair:preempt=true"])
def test_what_a_queue_has_counts_without_those_of_its_own_who_make_way_for_the_same_job(policy: str) -> None:
    """q has 3 of the 4 it deserves. The 4 of urgent are its due as soon as the others of q leave for it."""
    world = world_of(Queue("q", deserved=gpus(4)), Queue("b", deserved=gpus(0)), policy=policy, nodes=1, each=8)
    world.run(*(of("b", f"b{i}") for i in range(5)), *(of("q", f"q{i}") for i in range(3)))
    plan = world.submit(of("q", "urgent", 4, priority=9), after_ms=1_000)
    assert plan.starts == ("urgent",)
    assert len(stops(plan)) == 4


@pytest.mark.parametrize("policy", [policy for policy in ANY_POLICY if policy != "srtf"])
def test_a_team_that_deserves_nothing_itself_has_back_what_its_department_deserves(policy: str) -> None:
    queues = (Queue("research", deserved=gpus(6)), Queue("research/llm"), Queue("prod", deserved=gpus(2)))
    world = world_of(*queues, policy=policy, nodes=1, each=8)
    world.run(*(of("prod", f"p{i}") for i in range(8)))
    plan = world.submit(of("research/llm", "first", 2), after_ms=1_000)
    assert [(claim.job, len(claim.victims)) for claim in plan.claims] == [("first", 2)]
    world.done(*stops(plan))
    world.done("first")
    plan = world.submit(of("research/llm", "rest", 4), after_ms=1_000)
    assert [(claim.job, len(claim.victims)) for claim in plan.claims] == [("rest", 4)]
    world.done(*stops(plan))
    world.done("rest")
    assert not stops(world.submit(of("research/llm", "more"), after_ms=1_000)), "research has all that it deserves"


def test_inside_a_department_each_team_has_back_what_it_deserves_of_one_that_deserves_nothing() -> None:
    """llm has what research has back of prod. vision deserves 2 of that, and no more is taken of prod for llm."""
    teams = (Queue("research/llm"), Queue("research/vision", deserved=gpus(2)))
    queues = (Queue("research", deserved=gpus(6)), *teams, Queue("prod", deserved=gpus(2)))
    world = world_of(*queues, policy="fair", nodes=1, each=8)
    world.run(*(of("prod", f"p{i}") for i in range(2)), *(of("research/llm", f"l{i}", 2) for i in range(3)))
    plan = world.submit(of("research/vision", "v", 2), after_ms=1_000)
    assert [name[0] for name in stops(plan)] == ["l"]
    world.done(*stops(plan))
    assert not stops(world.done("v")), "research has all that it deserves"


@pytest.mark.parametrize("lent_priority", [0, 5])
@pytest.mark.parametrize("policy", ["priority", "fair:preempt=true", "kai", "volcano", "phalanx"])
def test_one_who_may_have_back_what_is_lent_stops_nobody_of_its_own_queue_who_would_have_it_back_in_turn(
    policy: str, lent_priority: int
) -> None:
    world = World(replace(flat(1, 4), queues=(Queue("lent"), Queue("own", deserved=Quota(4_000)))), policy)
    world.run(*(a_job(f"own{i}", 1, queue="own", priority=1) for i in range(2)))
    world.run(*(a_job(f"lent{i}", 1, queue="lent", priority=lent_priority) for i in range(2)))
    (stopped,) = stops(world.submit(a_job("head", 1, queue="own", priority=3), after_ms=1_000))
    assert stopped.startswith("lent")
    assert not stops(world.done(stopped))


@pytest.mark.parametrize("policy", ["priority", "fair", "kai", "volcano", "phalanx"])
def test_one_who_may_have_back_what_is_lent_further_out_stops_nobody_beside_it_who_would_have_it_back_in_turn(
    policy: str,
) -> None:
    department = Queue("c", deserved=Quota(6_000))
    queues = (Queue("lent"), department, Queue("c/team", deserved=Quota(4_000)), Queue("c/beside"))
    world = World(replace(flat(1, 6), queues=queues), policy)
    world.run(*(a_job(f"beside{i}", 1, queue="c/beside") for i in range(3)))
    world.run(*(a_job(f"lent{i}", 1, queue="lent", priority=5) for i in range(3)))
    (stopped,) = stops(world.submit(a_job("head", 1, queue="c/team"), after_ms=1_000))
    assert stopped.startswith("lent")
    assert not stops(world.done(stopped))
