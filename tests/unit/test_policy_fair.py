from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import World, a_job, starts, stops
from phalanx.cluster.cluster import Cluster, Node
from phalanx.cluster.queues import Queue, Quota
from phalanx.policy.fair import is_due_more
from phalanx.policy.registry import described, policy
from phalanx.policy.view import Usage
from phalanx.workload.job import Job

HOUR_MS = 3_600_000


def room(*queues: Queue, gpus: int = 12, cpus: int = 0) -> Cluster:
    return Cluster((Node("n0", (), gpus, cpus_milli=1000 * cpus),), queues=queues)


def many(queue: str, count: int, gpus: int = 1, cpus: int = 0, **job: object) -> list[Job]:
    name = queue.rpartition("/")[2]
    return [a_job(f"{name}{i}", gpus, queue=queue, task={"cpus_milli": 1000 * cpus}, **job) for i in range(count)]


def counts(started: list[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for name in started:
        found[name[0]] = found.get(name[0], 0) + 1
    return found


def test_weights_count_at_every_level_of_the_tree() -> None:
    tree = (Queue("d", weight=2), Queue("d/x", weight=3), Queue("d/y"), Queue("e"))
    world = World(room(*tree), "fair")
    plan = world.submit(*many("d/x", 12), *many("d/y", 12), *many("e", 12))
    assert counts(starts(plan)) == {"x": 6, "y": 2, "e": 4}


def test_what_one_team_leaves_goes_to_its_own_department_first() -> None:
    tree = (Queue("d"), Queue("d/x"), Queue("d/y"), Queue("e"))
    world = World(room(*tree), "fair")
    plan = world.submit(*many("d/x", 1), *many("d/y", 12), *many("e", 12))
    assert counts(starts(plan)) == {"x": 1, "y": 5, "e": 6}


def test_the_dominant_resource_counts() -> None:
    # a wants 1 GPU and 1 CPU, b 1 GPU and 4 CPUs, of 12 and 24: b is dominated by CPUs, 1/6 with each.
    world = World(room(Queue("a"), Queue("b"), cpus=24), "fair")
    plan = world.submit(*many("a", 12, cpus=1), *many("b", 12, cpus=4))
    assert counts(starts(plan)) == {"a": 8, "b": 4}


def test_nobody_starts_on_what_others_deserve_only_to_be_stopped() -> None:
    quotas = Queue("p", deserved=Quota(4000), priority=10), Queue("q", deserved=Quota(8000))
    world = World(room(*quotas), "fair")
    plan = world.submit(*many("p", 12), *many("q", 12))
    assert counts(starts(plan)) == {"p": 4, "q": 8}
    assert not stops(world.done(*starts(plan)))


def test_what_nobody_deserves_goes_by_priority() -> None:
    quotas = Queue("p", deserved=Quota(2000), priority=10), Queue("q", deserved=Quota(4000))
    plan = World(room(*quotas), "fair").submit(*many("p", 12), *many("q", 12))
    assert counts(starts(plan)) == {"p": 8, "q": 4}


def test_in_a_queue_higher_priorities_go_first() -> None:
    world = World(room(Queue("a"), gpus=1), "fair")
    world.run(*many("a", 1))
    world.submit(a_job("low", queue="a"), a_job("high", queue="a", priority=7))
    assert starts(world.end("a0")) == ["high"]


def test_with_preempt_higher_priorities_stop_lower_ones_in_their_own_queue_only() -> None:
    world = World(room(Queue("a"), Queue("b"), gpus=2), "fair:preempt=true")
    world.run(a_job("low", queue="a"), a_job("other", queue="b"))
    assert stops(world.submit(a_job("high", queue="a", priority=7), after_ms=1)) == ["low"]
    world = World(room(Queue("a"), Queue("b"), gpus=2), "fair:preempt=true")
    world.run(*many("b", 2))
    assert not stops(world.submit(a_job("high", queue="a", priority=7), after_ms=1))


def test_without_described_queues_it_is_fair_between_those_that_jobs_name() -> None:
    world = World(room(), "fair")
    plan = world.submit(*many("d/x", 12), *many("e", 12), *many("f", 12))
    assert counts(starts(plan)) == {"x": 4, "e": 4, "f": 4}


def test_what_a_queue_has_had_counts_less_the_longer_it_is_ago() -> None:
    def next_four(hours_ago: int) -> dict[str, int]:
        world = World(room(Queue("a"), Queue("b"), gpus=4), "fair:half_life=1h")
        world.run(*many("a", 1, gpus=4))
        world.end("a0", after_ms=HOUR_MS)
        return counts(starts(world.submit(*many("a", 5)[1:], *many("b", 4), after_ms=hours_ago * HOUR_MS)))

    assert next_four(hours_ago=0) == {"a": 1, "b": 3}
    assert next_four(hours_ago=24) == {"a": 2, "b": 2}


def test_queues_that_are_due_more_have_less_of_everything_that_they_deserve() -> None:
    queue = Queue("a", deserved=Quota(8000, 0, None))
    assert is_due_more(queue, Usage(7999, 0, 10**9)), "nothing is said of memory"
    assert not is_due_more(queue, Usage(8000, 0, 0))
    assert not is_due_more(queue, Usage(0, 1, 0)), "it deserves no CPUs"
    assert not is_due_more(Queue("b"), Usage())
    assert not is_due_more(Queue("b", deserved=Quota(0, 0, 0)), Usage())


GPUS = st.integers(0, 12)
WEIGHTS = st.integers(1, 10**6)


@given(GPUS, WEIGHTS, GPUS, WEIGHTS)
def test_shares_for_weights_are_compared_exactly(used: int, weight: int, other: int, other_weight: int) -> None:
    world = World(room(Queue("a", weight=weight), Queue("b", weight=other_weight), gpus=24), "fair")
    order = policy("fair").level_order
    one = order("a", Usage(1000 * used), world.state)
    two = order("b", Usage(1000 * other), world.state)
    assert (one < two) == (Fraction(used, weight) < Fraction(other, other_weight))
    assert (one == two) == (Fraction(used, weight) == Fraction(other, other_weight))


@given(GPUS, WEIGHTS, GPUS, WEIGHTS, st.integers(0, 96), WEIGHTS)
def test_each_resource_counts_for_its_own_weight(
    used: int, weight: int, other: int, other_weight: int, cpus: int, cpu_weight: int
) -> None:
    """The greatest share for its weight is what counts (weighted DRF), compared exactly."""
    queues = (Queue("a", weight=weight, cpu_weight=cpu_weight), Queue("b", weight=other_weight))
    world = World(room(*queues, gpus=24, cpus=96), "fair")
    order = policy("fair").level_order
    one = order("a", Usage(1000 * used, 1000 * cpus), world.state)
    two = order("b", Usage(1000 * other), world.state)
    share = max(Fraction(used, 24 * weight), Fraction(cpus, 96 * cpu_weight))
    assert (one < two) == (share < Fraction(other, 24 * other_weight))
    assert (one == two) == (share == Fraction(other, 24 * other_weight))


@pytest.mark.parametrize("text", ["0", "-1d", "soon", "1000000d"])
def test_a_half_life_that_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=f"policy fair: half_life={text}: expected a time above 0 as 7d or 90s"):
        policy(f"fair:half_life={text}")


def test_the_half_life_is_listed_with_its_default() -> None:
    _, parameters = described("fair")
    assert [(each.name, each.default) for each in parameters] == [
        ("half_life", "off"),
        ("preempt", "false"),
        ("backfill", "off"),
    ]
    assert policy("fair").half_life_ms is None
    assert policy("fair:half_life=7d").half_life_ms == 7 * 24 * HOUR_MS
