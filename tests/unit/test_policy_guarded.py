"""Policies from outside: what they return or raise is checked, and what is wrong is named."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import pytest

from builders import World, a_job, starts
from phalanx.cluster.cluster import flat
from phalanx.cluster.queues import Queue
from phalanx.engine.why.explain import explain
from phalanx.errors import PhalanxError
from phalanx.policy import registry
from phalanx.policy.guarded import RULES, PolicyError, guarded
from phalanx.policy.parameters import Parameters
from phalanx.policy.policy import Policy, Targets, by_submission, never
from phalanx.policy.registry import BUILTIN, policy, register
from phalanx.workload.gang import Gang
from phalanx.workload.job import Job


@pytest.fixture(autouse=True)
def nothing_stays_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_REGISTERED", {})


def world_of(gpus: int = 1, **parts: Any) -> World:
    """One node under a registered policy with these parts."""
    register("mine", lambda parameters: Policy("whatever", **parts))
    return World(flat(1, gpus), "mine")


def misbehaves(world: World, *jobs: Job) -> str:
    with pytest.raises(PolicyError) as error:
        world.submit(*(jobs or (a_job("a"),)))
    return str(error.value)


@pytest.mark.parametrize(
    ("key", "shown"),
    [(3, "3"), ((1.5, 2), "(1.5, 2)"), ([1], "[1]"), (None, "None"), (("x",), "('x',)")],
)
def test_an_order_that_is_no_tuple_of_whole_numbers_is_refused(key: object, shown: str) -> None:
    told = misbehaves(world_of(order=lambda job, at: key))
    assert told == f"policy mine: order(job a) returned {shown}: expected a tuple of whole numbers"


def test_a_key_of_a_queue_that_is_no_tuple_is_refused() -> None:
    told = misbehaves(world_of(queue_order=lambda queue, usage, at: 0.5), a_job("a"), a_job("b"))
    assert told == "policy mine: queue_order(queue default) returned 0.5: expected a tuple of whole numbers"


def test_what_is_shown_of_a_queue_must_be_measures() -> None:
    world = world_of(queue_order=lambda queue, usage, at: (0,), measures=lambda queue, usage, at: ("half", 0.5))
    world.run(a_job("a"))
    world.submit(a_job("b"))
    with pytest.raises(PolicyError, match=r"measures\(queue default\) returned .*: expected a tuple of Measure"):
        explain(world.state, "b")


def test_what_a_policy_raises_is_named_with_its_part_job_and_line() -> None:
    def order(job: object, at: object) -> tuple[int, ...]:
        raise KeyError("weight")

    told = misbehaves(world_of(order=order))
    line = order.__code__.co_firstlineno + 1
    assert told == f"policy mine: order(job a) raised KeyError: 'weight' (test_policy_guarded.py, line {line})"


def test_a_policy_that_ends_the_program_is_named_and_does_not() -> None:
    def order(job: object, at: object) -> tuple[int, ...]:
        sys.exit(3)

    told = misbehaves(world_of(order=order))
    line = order.__code__.co_firstlineno + 1
    assert told == f"policy mine: order(job a) raised SystemExit: 3 (test_policy_guarded.py, line {line})"


def test_victims_must_say_true_or_false() -> None:
    world = world_of(victims=lambda head, victim, at: victim.gpus)
    world.run(a_job("a"))
    assert misbehaves(world, a_job("b")) == ("policy mine: victims(head b, job a) returned 1: expected True or False")


def test_backfill_must_say_true_or_false() -> None:
    told = misbehaves(world_of(backfill=lambda head, job: None), a_job("a"), a_job("b"), a_job("c", 0))
    assert told == "policy mine: backfill(head b, job c) returned None: expected True or False"


@pytest.mark.parametrize("kept", [-1, 0.5, None])
def test_what_a_queue_keeps_must_be_a_number_of_gpus(kept: object) -> None:
    world = world_of(victims=lambda head, victim, at: True, keeps=lambda queue, at: kept)
    world.run(a_job("a"))
    world.turn(after_ms=1)
    told = misbehaves(world, a_job("b", queue="other"))
    assert f"keeps(queue default) returned {kept}: expected thousandths of GPUs" in told


@pytest.mark.parametrize("gang", [None, Gang(())])
def test_a_shape_must_be_a_gang_of_somebody(gang: object) -> None:
    told = misbehaves(world_of(shape=lambda job, at: gang))
    assert told.startswith("policy mine: shape(job a) returned ")
    assert told.endswith("expected a Gang with at least one role")


@pytest.mark.parametrize("at_ms", [0, -5, 1.5, True])
def test_a_change_in_the_past_is_refused(at_ms: object) -> None:
    told = misbehaves(world_of(changes=lambda job, at: at_ms))
    assert told == (
        f"policy mine: changes(job a) returned {at_ms}: expected None or a moment in milliseconds after now, which is 0"
    )


def test_marks_must_be_whole_numbers() -> None:
    def due(job: Any, at: Any) -> None:
        job.marks["age"] = 0.5

    world = world_of(changes=lambda job, at: at.now + 10, due=due)
    world.submit(a_job("a", 8))
    with pytest.raises(PolicyError, match=r"due\(job a\) wrote the mark 'age': 0.5: expected names and whole numbers"):
        world.turn(after_ms=10)


def test_what_observe_raises_is_named_with_the_event() -> None:
    def observe(memory: Any, event: Any, now: int) -> None:
        memory["jobs"] += 1

    register("mine", lambda parameters: Policy("mine", observe=observe))
    with pytest.raises(PolicyError, match=r"policy mine: observe\(ClusterDefined\) raised KeyError: 'jobs'"):
        World(flat(1, 1), "mine")


def test_a_wake_up_that_is_no_moment_is_refused() -> None:
    told = misbehaves(world_of(next_wakeup=lambda memory, now: now + 0.5))
    assert told == "policy mine: next_wakeup(now 0) returned 0.5: expected None or a moment in milliseconds"


def test_a_wake_up_that_stays_in_the_past_once_it_was_observed_is_refused() -> None:
    world = world_of(next_wakeup=lambda memory, now: 10)
    world.submit(a_job("a"))
    with pytest.raises(PolicyError, match=r"next_wakeup\(now 12\) returned 10: expected None or a moment after 12"):
        world.turn(after_ms=12)


def test_a_wake_up_may_lie_in_the_past_until_it_is_observed() -> None:
    def observe(memory: Any, event: object, now: int) -> None:
        memory["next_ms"] = (now // 10 + 1) * 10

    world = world_of(observe=observe, next_wakeup=lambda memory, now: memory["next_ms"])
    world.submit(a_job("a"))
    world.turn(after_ms=25)
    assert world.state.next_wakeup() == 30


def aging(period_ms: int) -> Policy:
    """The newest first, but everybody's key turns round with every period."""

    def order(job: Any, at: Any) -> tuple[int, ...]:
        return (job.number if at.now // period_ms % 2 else -job.number,)

    return Policy("aging", order=order, next_wakeup=lambda memory, now: (now // period_ms + 1) * period_ms)


def test_at_a_wake_up_everybody_is_asked_for_their_keys_anew() -> None:
    register("mine", lambda parameters: aging(100))
    world = World(flat(1, 1), "mine")
    world.run(a_job("running"))
    world.submit(a_job("a"), a_job("b"))
    world.turn(after_ms=100)
    assert starts(world.end("running")) == ["a"]


def test_a_wake_up_at_the_moment_of_an_event_is_not_missed() -> None:
    register("mine", lambda parameters: aging(100))
    world = World(flat(1, 1), "mine")
    world.run(a_job("running"))
    world.submit(a_job("a"), a_job("b"))
    assert starts(world.end("running", after_ms=100)) == ["a"]


def test_a_wake_up_can_put_another_job_at_the_head() -> None:
    def order(job: Any, at: Any) -> tuple[int, ...]:
        return (job.gpus if at.now >= 100 else -job.gpus,)

    def next_wakeup(memory: Any, now: int) -> int | None:
        return 100 if now < 100 else None

    register("mine", lambda parameters: Policy("mine", order=order, backfill=never, next_wakeup=next_wakeup))
    world = World(flat(1, 3), "mine")
    world.run(a_job("running", 2))
    assert starts(world.submit(a_job("large", 2), a_job("small"))) == []
    assert starts(world.turn(after_ms=100)) == ["small"]


def test_a_change_can_put_another_job_at_the_head() -> None:
    def order(job: Any, at: Any) -> tuple[int, ...]:
        return (9 if job.gpus == 2 and at.now >= 100 else -job.gpus,)

    def changes(job: Any, at: Any) -> int | None:
        return 100 if job.gpus == 2 and at.now < 100 else None

    register("mine", lambda parameters: Policy("mine", order=order, backfill=never, changes=changes))
    world = World(flat(1, 3), "mine")
    world.run(a_job("running", 2))
    world.submit(a_job("large", 2), a_job("large too", 2), a_job("small"))
    assert starts(world.turn(after_ms=100)) == ["small"]


def test_under_a_strict_policy_one_that_goes_first_is_looked_at_though_others_like_it_stand_behind_a_head() -> None:
    def order(job: Any, at: Any) -> tuple[int, ...]:
        return (job.job.deadline_ms, job.number)

    register("mine", lambda parameters: Policy("mine", order=order, backfill=never))
    world = World(flat(1, 3), "mine")
    world.run(a_job("running", 2, deadline_ms=0))
    world.submit(a_job("head", 2, deadline_ms=5), a_job("behind", deadline_ms=6))
    assert starts(world.submit(a_job("first", deadline_ms=4))) == ["first"]


@pytest.mark.parametrize(
    ("parts", "told"),
    [
        ({"targets": "rank"}, "policy mine: targets is 'rank': expected a Targets"),
        ({"reserve": None}, "policy mine: reserve is None: expected a Reserve"),
        ({"about": "good"}, "policy mine: about is 'good': expected an About"),
        ({"order": 3}, "policy mine: order is 3: expected a function"),
        ({"adviser": None}, "policy mine: adviser is None: expected a str"),
    ],
)
def test_a_part_of_the_wrong_kind_is_refused_before_anything_happens(parts: dict[str, Any], told: str) -> None:
    with pytest.raises(PolicyError) as error:
        world_of(**parts)
    assert str(error.value) == told


def test_a_policy_error_is_one_that_users_are_meant_to_read() -> None:
    assert issubclass(PolicyError, PhalanxError)
    assert issubclass(PolicyError, ValueError)


def test_every_function_of_a_policy_has_a_guard() -> None:
    plain = Policy("plain")
    functions = [field.name for field in fields(Policy) if callable(getattr(plain, field.name))]
    assert functions == list(RULES)


def test_what_a_policy_does_not_name_stays_the_engines_own() -> None:
    made = guarded(Policy("mine", order=lambda job, at: (1,)))
    plain = Policy("plain")
    same = [name for name in RULES if getattr(made, name) is getattr(plain, name)]
    assert same == [name for name in RULES if name != "order"]


def test_built_in_policies_are_not_guarded() -> None:
    assert policy("fifo").order is by_submission
    assert all(not policy_of(make).order.__module__.endswith("guarded") for make in BUILTIN.values())


def policy_of(make: Callable[[Parameters], Policy]) -> Policy:
    return make(Parameters("any", {"samples": "1"}))


def test_a_registered_policy_is_known_by_its_name_and_written_as_it_is_read() -> None:
    def make(parameters: Parameters) -> Policy:
        return Policy("x", targets=Targets.RANK if parameters.boolean("hard", default=False) else Targets.KEEP)

    register("mine", make)
    assert policy("mine:hard=true").spec == "mine:hard=true"
    assert policy("mine:hard=true").targets is Targets.RANK
    with pytest.raises(ValueError, match="policy mine: hard=very: expected true or false"):
        policy("mine:hard=very")
    with pytest.raises(ValueError, match=r"policy mine has no parameter 'soft' \(it has: hard\)"):
        policy("mine:soft=true")


def test_the_names_of_built_in_policies_are_taken() -> None:
    with pytest.raises(ValueError, match="policy 'fifo' is built in: register yours under another name"):
        register("fifo", lambda parameters: Policy("fifo"))


@pytest.mark.parametrize("name", ["a:b", "mine.py", "mine.py:a:b"])
def test_a_name_that_could_not_be_read_again_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"expected a name without ':', or FILE\.py:NAME"):
        register(name, lambda parameters: Policy("x"))


def test_a_factory_that_fails_is_named() -> None:
    def make(parameters: Parameters) -> Policy:
        raise ValueError("no luck")

    register("mine", make)
    with pytest.raises(PolicyError, match=r"policy mine: making it raised ValueError: no luck \(test_policy_guarded"):
        policy("mine")


def test_a_factory_that_ends_the_program_is_named_and_does_not() -> None:
    def make(parameters: Parameters) -> Policy:
        sys.exit("enough")

    register("mine", make)
    with pytest.raises(PolicyError, match=r"policy mine: making it raised SystemExit: enough \(test_policy_guarded"):
        policy("mine")


def test_a_factory_that_makes_no_policy_is_named() -> None:
    register("mine", lambda parameters: "fifo")  # type: ignore[arg-type, return-value]
    with pytest.raises(PolicyError, match="policy mine: making it returned 'fifo': expected a Policy"):
        policy("mine")


def test_what_a_policy_allows_a_job_must_be_a_number_of_gpus_or_none() -> None:
    register("mine", lambda parameters: Policy("whatever", allows=lambda job, at: 0.5))  # type: ignore[arg-type,return-value]
    world = World(replace(flat(1, 1), queues=(Queue("default"),)), "mine")
    assert "allows(job a) returned 0.5: expected None or thousandths of GPUs" in misbehaves(world)


def test_who_reclaims_must_say_true_or_false() -> None:
    register("mine", lambda parameters: Policy("whatever", reclaims=lambda head, run, at: 1))  # type: ignore[arg-type,return-value]
    world = World(replace(flat(1, 1), queues=(Queue("default"), Queue("other"))), "mine")
    world.run(a_job("a"))
    told = misbehaves(world, a_job("b", queue="other"))
    assert told == "policy mine: reclaims(head b, job a) returned 1: expected True or False"
