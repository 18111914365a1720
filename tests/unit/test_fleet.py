"""Unlike GPUs under phalanx: what is learned of them, what they are worth, and who goes where."""

from __future__ import annotations

from itertools import product
from math import inf, log

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import World, a_job, stops
from phalanx.cluster.cluster import Cluster, Health, Node
from phalanx.policy.fleet import kind_of, preferred, speeds
from phalanx.policy.market import WAITING, Group, prices
from phalanx.protocol.event import NodeHealthChanged, PolicyChanged, Progress
from phalanx.workload.job import Job


def unlike(*types: str, gpus: int = 1) -> Cluster:
    return Cluster(tuple(Node(f"n{i}", (), gpus, name) for i, name in enumerate(types)))


def of_model(name: str, model: str, gpus: int = 1) -> Job:
    return a_job(name, gpus, labels=(("model", model),))


def told(world: World, job: str, step_ms: float) -> Progress:
    return Progress(job, world.job(job).attempts, 1, metrics={"step_ms": step_ms})


def test_what_nobody_else_wants_costs_nothing_and_what_is_short_what_it_would_gain() -> None:
    slow_or_fast = (-1.5, 0.0)
    assert prices([Group(slow_or_fast, 4)], (8, 4)) == (0.0, 0.0)
    assert prices([Group(slow_or_fast, 5)], (8, 4)) == (0.0, 1.5)


def test_who_gains_least_makes_way_and_sets_the_price() -> None:
    indifferent, gains = Group((0.0, 0.0), 4), Group((-2.0, 0.0), 4)
    assert prices([indifferent, gains], (4, 4)) == (0.0, 0.0)
    assert prices([indifferent, gains], (5, 3)) == (0.0, 2.0)


def test_types_that_some_cannot_use_are_worth_more_when_those_wait() -> None:
    free, bound = Group((-0.5, 0.0), 2), Group((-inf, 0.0), 3)
    assert prices([free, bound], (2, 3)) == (0.0, 0.5)
    assert prices([bound], (2, 2)) == (0.0, -WAITING)


Values = st.lists(st.integers(0, 3).map(lambda value: -value / 2), min_size=2, max_size=2).map(tuple)


@given(st.lists(Values, min_size=1, max_size=4), st.tuples(st.integers(0, 3), st.integers(0, 3)))
def test_a_price_is_what_one_more_gpu_would_gain(jobs: list[tuple[float, float]], capacity: tuple[int, int]) -> None:
    found = prices([Group(values, 1) for values in jobs], capacity)
    for place in range(2):
        more = [count + (at == place) for at, count in enumerate(capacity)]
        assert found[place] == pytest.approx(_best(jobs, more) - _best(jobs, capacity), abs=1e-6)


def _best(jobs: list[tuple[float, float]], capacity: tuple[int, ...] | list[int]) -> float:
    """The greatest sum of values, over all ways to place jobs."""
    ways = product(range(3), repeat=len(jobs))
    fitting = (way for way in ways if all(way.count(at) <= count for at, count in enumerate(capacity)))
    return max(sum((*values, WAITING)[at] for values, at in zip(jobs, way, strict=True)) for way in fitting)


def test_where_all_gpus_are_alike_nothing_is_kept() -> None:
    world = World(unlike("V100", "V100"), "phalanx")
    world.submit(of_model("a", "vgg16"))
    assert "types" not in world.state.memory
    assert preferred(world.state.memory, of_model("b", "vgg16")) == []


def test_what_is_not_known_of_a_kind_is_taken_from_its_other_sizes_and_else_from_the_catalogue() -> None:
    world = World(unlike("K80", "V100", gpus=2), "phalanx")
    world.submit(of_model("a", "vgg16"))
    catalogue = speeds(world.state.memory, "model vgg16", 1)
    assert catalogue["V100"] - catalogue["K80"] == pytest.approx(log(1 / 0.21))
    world.submit(of_model("b", "vgg16", 2))
    assert world.where("a").keys() == {"n1"}
    assert world.where("b").keys() == {"n0"}
    world.turn(told(world, "a", 100), told(world, "b", 100), after_ms=1000)
    own = speeds(world.state.memory, "model vgg16", 1)
    assert own["V100"] - own["K80"] == pytest.approx(log(1 / 0.21)), "another size on another type tells nothing"
    memory = world.state.memory
    memory["paces"]["model vgg16"][1]["K80"] = (1, log(1 / 200))
    large = speeds(memory, "model vgg16", 2)
    assert large["V100"] - large["K80"] == pytest.approx(log(2))


def test_reports_of_an_earlier_attempt_and_without_sense_teach_nothing() -> None:
    world = World(unlike("K80", "V100"), "phalanx")
    world.submit(of_model("a", "vgg16"))
    world.turn(told(world, "a", 0), told(world, "a", -1), Progress("a", 7, metrics={"step_ms": 5.0}), after_ms=1000)
    assert world.state.memory["paces"] == {}


def test_jobs_without_a_model_are_compared_by_user_and_name() -> None:
    assert kind_of(a_job("1", 1, name="bert-lr3", user="ada")) == kind_of(a_job("2", 1, name="bert-lr17", user="ada"))
    assert kind_of(a_job("1", 1, name="bert", user="ada")) != kind_of(a_job("2", 1, name="bert", user="bob"))
    assert kind_of(a_job("1", 1, user="ada")) == ""


def test_nobody_is_sent_to_a_node_that_is_down() -> None:
    world = World(unlike("K80", "V100"), "phalanx")
    world.run(a_job("a", 1))
    world.run(a_job("b", 1))
    assert world.where("b").keys() == {"n0"}
    world.end("a")
    world.turn(NodeHealthChanged("n1", Health.FAILED))
    assert not [plan for plan in (world.turn(after_ms=600_000) for _ in range(4)) if plan.actions]
    plan = world.turn(NodeHealthChanged("n1", Health.HEALTHY))
    assert stops(plan) == ["b"]


def test_a_cluster_that_is_told_to_decide_by_phalanx_knows_who_lies_where() -> None:
    world = World(unlike("K80", "V100"), "fifo")
    world.run(of_model("a", "vgg16"))
    assert world.where("a").keys() == {"n0"}
    plan = world.turn(PolicyChanged("phalanx"), after_ms=1000)
    assert world.state.memory["lies"]["a"].gpu_type == "K80"
    assert not plan.actions
    assert stops(world.turn(after_ms=600_000)) == ["a"]
