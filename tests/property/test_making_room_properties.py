"""Making room: victims are the cheapest there are, and no two jobs stop one another in turn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from itertools import combinations
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import World, a_job, racked, stops
from phalanx.cluster.cluster import Cluster, flat
from phalanx.cluster.queues import Queue, Quota
from phalanx.engine.state.records import AttemptRecord, Phase
from phalanx.engine.transaction.transaction import Transaction
from phalanx.protocol.event import JobSubmitted, Progress
from phalanx.protocol.plan import Plan
from phalanx.workload.job import Job

SIZES = st.integers(1, 4)


def settle(world: World, plan: Plan) -> list[tuple[str, str]]:
    """Has everything done that is asked for, until nothing is; who was stopped for whom."""
    pairs: list[tuple[str, str]] = []
    for _ in range(100):
        pairs += [(claim.job, key.rpartition("/")[0]) for claim in plan.claims for key in claim.victims]
        asked = list(world.asked)
        if not asked:
            return pairs
        plan = world.done(*dict.fromkeys(action.job for action in asked))
    raise AssertionError("it never comes to rest")


@st.composite
def crowded(draw: st.DrawFn) -> World:
    """A few nodes full of jobs of low priority that have lost more or less of their work if they are stopped."""
    world = World(draw(st.sampled_from([flat(1, 4), flat(2, 4), flat(3, 4), racked(2, 2, gpus=4)])), "priority")
    count = draw(st.sampled_from([1, 2]))
    jobs = [a_job(f"j{i}", draw(SIZES), count, priority=draw(st.integers(0, 2))) for i in range(8)]
    world.turn(*map(JobSubmitted, jobs))
    settle(world, world.turn())
    for job in jobs:
        if draw(st.booleans()) and world.job(job.id).attempt is not None:
            world.turn(Progress(job.id, 1, durable_step=1), after_ms=draw(st.integers(1, 50)) * 1_000)
    return world


Price = tuple[tuple[int, ...], int, int]


def price(victims: Iterable[AttemptRecord], lower: Iterable[AttemptRecord], now: int) -> Price:
    """How many of each priority above the lowest make way, the highest first; what is lost; how many there are."""
    chosen = list(victims)
    above = sorted({attempt.job.priority for attempt in lower}, reverse=True)[:-1]
    counts = tuple(sum(victim.job.priority == priority for victim in chosen) for priority in above)
    return counts, sum(victim.lost_gpu_ms(now) for victim in chosen), len(chosen)


def optimum(world: World, head: Job) -> Price | None:
    """The lowest priorities, then the least loss, then the fewest, over all sets with which the head fits."""
    lower = lower_than(world, head)
    found = [
        price(victims, lower, world.state.now)
        for count in range(len(lower) + 1)
        for victims in combinations(lower, count)
        if _fits_without(world, head, victims)
    ]
    return min(found, default=None)


def lower_than(world: World, head: Job) -> list[AttemptRecord]:
    running = [attempt for attempt in world.state.attempts() if attempt.phase is Phase.RUNNING]
    return [attempt for attempt in running if attempt.job.priority < head.priority]


def _fits_without(world: World, head: Job, victims: tuple[AttemptRecord, ...]) -> bool:
    with Transaction(world.state) as transaction:
        for victim in victims:
            transaction.release(victim.bookings)
        return transaction.seat_job(head) is not None


@settings(max_examples=80)
@given(crowded(), SIZES, st.integers(1, 3), st.booleans())
def test_the_victims_of_a_head_are_the_cheapest_there_are(world: World, gpus: int, count: int, in_rack: bool) -> None:
    required = "rack" if in_rack and "rack" in world.state.cluster.levels else ""
    head = a_job("head", gpus, count, required=required, priority=9)
    best = optimum(world, head)
    lower, now = lower_than(world, head), world.state.now
    price_of = {attempt.key: attempt for attempt in lower}
    plan = world.submit(head)
    (claim,) = [claim for claim in plan.claims if claim.job == "head"] or [None]
    if best is None:
        assert claim is None
        return
    assert claim is not None
    # Moves may make room where only stopping others was tried: then there is less to lose than the optimum says.
    assert price((price_of[key] for key in claim.victims), lower, now) <= best


def shared(kind: str) -> Cluster:
    """Clusters in which jobs have many reasons to stop one another."""
    if kind == "racks":
        return racked(2, 2, gpus=4)
    tenants = (Queue("a", deserved=Quota(6_000)), Queue("b", deserved=Quota(4_000)), Queue("c"))
    if kind == "tree":
        inner = (Queue("d", deserved=Quota(10_000)), *(replace(each, path=f"d/{each.path}") for each in tenants[:2]))
        tenants = (*inner, Queue("e", deserved=Quota(4_000)), Queue("e/c", deserved=Quota(2_000)))
    return replace(flat(4, 4), queues=tenants)


def path_of(kind: str, queue: str) -> str:
    return queue if kind != "tree" else f"{'e' if queue == 'c' else 'd'}/{queue}"


@settings(max_examples=40)
@given(
    st.sampled_from(["racks", "queues", "tree"]),
    st.sampled_from(["priority", "fair:preempt=true", "kai", "volcano"]),
    st.lists(st.tuples(SIZES, st.integers(1, 3), st.integers(0, 3), st.sampled_from("abc")), min_size=4, max_size=24),
)
def test_no_two_jobs_stop_one_another_in_turn(kind: str, policy: str, wishes: list[tuple[int, int, int, str]]) -> None:
    world = World(shared(kind), policy)
    pairs: list[tuple[str, str]] = []
    for i, (gpus, count, priority, queue) in enumerate(wishes):
        required = "rack" if kind == "racks" and i % 3 == 0 else ""
        job = a_job(f"j{i}", gpus, count, required=required, priority=priority, queue=path_of(kind, queue))
        pairs += settle(world, world.submit(job, after_ms=1_000))
    assert not [pair for pair in pairs if pair[::-1] in pairs], (pairs, kind, policy, wishes)
    assert not stops(world.turn(after_ms=60_000)), "at rest nobody is stopped any more"


@st.composite
def departments(draw: st.DrawFn) -> tuple[Queue, ...]:
    """Two departments that deserve at most 8 together, with teams that deserve some of that, or nothing."""
    found: list[Queue] = []
    left = 8
    for name in ("d", "e"):
        own = draw(st.integers(0, left))
        left -= own
        found.append(Queue(name, deserved=Quota(1_000 * own)))
        for team in ("p", "q", "r"):
            part = draw(st.integers(0, own))
            own -= part
            found.append(Queue(f"{name}/{team}", deserved=Quota(1_000 * part)))
    return tuple(found)


@settings(max_examples=40)
@given(
    departments(),
    st.sampled_from(["fifo", "fair", "fair-tree", "drf", "kai", "volcano", "priority", "phalanx"]),
    st.lists(st.tuples(st.sampled_from("de"), st.sampled_from("pqr")), min_size=9, max_size=24),
)
def test_no_job_waits_for_what_its_queue_or_one_around_it_deserves_while_others_borrow_it(
    queues: tuple[Queue, ...], policy: str, wishes: list[tuple[str, str]]
) -> None:
    world = World(replace(flat(2, 4), queues=queues), policy)
    for i, path in enumerate(wishes):
        settle(world, world.submit(a_job(f"j{i}", queue="/".join(path), duration_ms=3_600_000), after_ms=1_000))
    waiting = [record.job for record in world.state.jobs.values() if record.attempt is None]
    assert not [job.id for job in waiting if is_due(world, job)], (queues, policy, wishes)


def is_due(world: World, job: Job) -> bool:
    """Whether a queue on the way up to the top could have one GPU more, and one beside it, or further out, borrows."""
    trail = world.state.quotas.accounts[job.queue].trail
    return any(
        other not in trail and other.used[0] > other.deserved[0]
        for i, around in enumerate(trail[:-1])
        if any(each.used[0] < each.deserved[0] for each in trail[i + 1 :])
        for other in around.inside
    )


@settings(max_examples=40)
@given(
    st.sampled_from(["queues", "tree"]),
    st.sampled_from(["phalanx:first=2", "las:quantum=600", "tiresias-las", "srtf"]),
    st.lists(st.tuples(SIZES, st.integers(1, 3), st.integers(0, 3), st.sampled_from("abc")), min_size=4, max_size=16),
)
def test_where_running_jobs_stand_in_order_nobody_is_stopped_again_and_again(
    kind: str, policy: str, wishes: list[tuple[int, int, int, str]]
) -> None:
    world = World(shared(kind), policy)
    for i, (gpus, count, priority, queue) in enumerate(wishes):
        job = a_job(f"j{i}", gpus, count, priority=priority, queue=path_of(kind, queue), duration_ms=3_600_000)
        settle(world, world.submit(job, after_ms=1_000))
    counted = Counter(victim for _ in range(30) for _, victim in settle(world, world.turn(after_ms=1_000)))
    # Levels of service grow, so that who goes before whom changes less and less often.
    assert max(counted.values(), default=0) <= 4, (counted, kind, policy, wishes)


@pytest.mark.parametrize("policy", ["priority", "fair:preempt=true", "kai", "volcano", "phalanx"])
def test_for_one_gpu_one_job_is_stopped_and_none_for_that_in_turn(policy: str) -> None:
    """Full clusters of jobs of one GPU each, with all sorts of priorities in queues with all sorts of quotas."""
    made_room = 0
    for seed in range(40):
        rng = Random(seed)
        gpus, leaves = rng.choice((4, 6, 8)), rng.choice((("a", "b", "c"), ("d/a", "d/b", "e/c")))
        deserved = {leaf: rng.choice((0, 1_000, 2_000)) for leaf in leaves[:2]} | {leaves[2]: rng.choice((0, 1_000))}
        within = {"d": deserved.get("d/a", 0) + deserved.get("d/b", 0), "e": deserved.get("e/c", 0)}
        tops = [Queue(top, deserved=Quota(sum_of)) for top, sum_of in within.items() if "d/a" in leaves]
        queues = (*tops, *(Queue(leaf, deserved=Quota(amount)) for leaf, amount in deserved.items()))
        world = World(replace(flat(1, gpus), queues=queues), policy)
        for number in range(gpus):
            job = a_job(f"j{number}", 1, queue=rng.choice(leaves), priority=rng.randint(0, 4))
            settle(world, world.submit(job, after_ms=1_000))
        pairs = settle(world, world.submit(a_job("head", 1, queue=rng.choice(leaves), priority=3), after_ms=1_000))
        made_room += bool(pairs)
        assert len(pairs) <= 1, (seed, pairs)
    assert made_room > 10


@pytest.mark.parametrize("policy", ["phalanx", "las:quantum=600", "tiresias-las"])
def test_nobody_leaves_in_place_of_a_victim_who_need_not_give_way_itself(policy: str) -> None:
    """What b has is borrowed. e has no more than it deserves, and has not run for as long as it may."""
    deserves = Quota(4_000)
    queues = (Queue("a", deserved=deserves), Queue("e", deserved=deserves, min_run_ms=1_800_000), Queue("b"))
    world = World(replace(flat(1, 8), queues=queues), policy)
    settle(world, world.submit(a_job("borrower", 4, queue="b", priority=9)))
    settle(world, world.submit(a_job("within", 4, queue="e", priority=-5), after_ms=10_000))
    plan = world.submit(a_job("head", 4, queue="a"), after_ms=590_000)
    assert stops(plan) == ["borrower"]
    assert not stops(world.done("borrower")), "one victim was enough"
