"""drf: whose dominant share is least goes next."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import World, a_job, starts
from phalanx.cluster.cluster import Cluster, Node
from phalanx.policy.drf import dominant
from phalanx.policy.registry import policy
from phalanx.policy.view import Usage
from phalanx.workload.job import Job


def room(gpus: int = 0, cpus: int = 0, memory_gb: int = 0) -> Cluster:
    return Cluster((Node("n0", (), gpus, cpus_milli=1000 * cpus, memory_mb=1024 * memory_gb),))


def ask(name: str, queue: str, gpus: int = 0, cpus: int = 0, memory_gb: int = 0) -> Job:
    return a_job(name, gpus, queue=queue, task={"cpus_milli": 1000 * cpus, "memory_mb": 1024 * memory_gb})


def many(queue: str, count: int, **task: int) -> list[Job]:
    return [ask(f"{queue}{i}", queue, **task) for i in range(count)]


def counts(started: list[str]) -> dict[str, int]:
    return {queue: sum(name.startswith(queue) for name in started) for queue in "ab"}


def test_the_textbook_case_gives_three_tasks_and_two() -> None:
    world = World(room(cpus=9, memory_gb=18), "drf")
    plan = world.submit(*many("a", 9, cpus=1, memory_gb=4), *many("b", 9, cpus=3, memory_gb=1))
    assert counts(starts(plan)) == {"a": 3, "b": 2}


def test_with_one_resource_it_is_max_min_fair() -> None:
    world = World(room(gpus=6), "drf")
    assert counts(starts(world.submit(*many("a", 9, gpus=1), *many("b", 9, gpus=1)))) == {"a": 3, "b": 3}


def test_weights_divide_in_their_proportion() -> None:
    world = World(room(gpus=6), "drf:weights=a:2/b:1")
    assert counts(starts(world.submit(*many("a", 9, gpus=1), *many("b", 9, gpus=1)))) == {"a": 4, "b": 2}
    world = World(room(gpus=6), "drf:weights=b:0.5")
    assert counts(starts(world.submit(*many("a", 9, gpus=1), *many("b", 9, gpus=1)))) == {"a": 4, "b": 2}


def test_who_runs_already_counts() -> None:
    world = World(room(gpus=4), "drf")
    world.run(*many("a", 3, gpus=1))
    plan = world.submit(ask("a8", "a", gpus=1), ask("b8", "b", gpus=1))
    assert starts(plan) == ["b8"]


def test_what_a_queue_that_wants_nothing_leaves_goes_to_others() -> None:
    world = World(room(gpus=4), "drf")
    assert counts(starts(world.submit(*many("a", 4, gpus=1)))) == {"a": 4, "b": 0}


def test_names_of_queues_may_hold_slashes() -> None:
    assert policy("drf:weights=research/llm:2/prod:1").spec == "drf:weights=research/llm:2/prod:1"


def test_what_the_cluster_does_not_have_does_not_count() -> None:
    assert dominant(Usage(0, 5, 0), Usage(8_000, 0, 0)) == 0
    assert dominant(Usage(), Usage()) == 0


@pytest.mark.parametrize("weights", ["a", "a:", "a:0", "a:-1", "a:1/a:2", "a:1/", ":1"])
def test_weights_that_make_no_sense_are_refused(weights: str) -> None:
    with pytest.raises(ValueError, match=f"policy drf: weights={weights}: expected a number above 0 for each queue"):
        policy(f"drf:weights={weights}")


USAGES = st.builds(Usage, st.integers(0, 8_000), st.integers(0, 96_000), st.integers(0, 10**6))


@given(USAGES, USAGES)
def test_shares_are_compared_exactly(one: Usage, other: Usage) -> None:
    total = Usage(8_000, 96_000, 1_031_168)

    def share(usage: Usage) -> Fraction:
        return max(Fraction(used, all_) for used, all_ in zip(usage, total, strict=True))

    assert (dominant(one, total) < dominant(other, total)) == (share(one) < share(other))
