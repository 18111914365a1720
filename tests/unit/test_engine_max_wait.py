"""Jobs that say how long they may wait: past it they rise, and devices are reserved for them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from builders import World, a_job, everything, of_roles, starts, stops, workers
from phalanx.cluster.cluster import Health, flat
from phalanx.cluster.queues import Queue, Quota
from phalanx.engine.turn import replay, verify
from phalanx.engine.why.why import why
from phalanx.policy import registry
from phalanx.policy.policy import Policy
from phalanx.policy.registry import BUILTIN, register
from phalanx.protocol.action import Stop
from phalanx.protocol.reason import Reason
from phalanx.words.evidence import evidence

POLICIES = [name if name != "tiresias-gittins" else f"{name}:samples=1/2/3" for name in BUILTIN]


def starved(policy: str = "fifo:skip=true", preemptible: bool = True) -> World:
    """One node of 4 GPUs, half of it in use, and a job that wants all of it and may wait a minute."""
    world = World(flat(1, 4), policy)
    world.run(a_job("small0", 2, duration_ms=90_000, preemptible=preemptible))
    world.submit(a_job("large", 4, duration_ms=50_000, max_wait_ms=60_000))
    return world


def leave(world: World, job: str) -> None:
    """Has a job gone that was told to stop."""
    if any(isinstance(action, Stop) for action in world.asks(job)):
        world.done(job)


def test_until_its_time_is_up_others_pass_it() -> None:
    world = starved()
    assert starts(world.submit(a_job("small1", 2, duration_ms=500_000), after_ms=59_000)) == ["small1"]


def test_past_it_nobody_who_would_delay_it_starts() -> None:
    world = starved()
    world.turn(after_ms=60_000)
    assert [reservation.job for reservation in world.state.reservations] == ["large"]
    assert not starts(world.submit(a_job("small1", 2, duration_ms=500_000)))
    assert world.reason("small1") is Reason.RESERVED
    assert starts(world.submit(a_job("short", 2, duration_ms=20_000))) == ["short"]
    world.done("short")
    world.end("short", after_ms=20_000)
    assert starts(world.end("small0", after_ms=10_000)) == ["large"]
    world.done("large")
    assert not world.job("large").overdue


def test_of_an_overdue_job_it_is_said_that_devices_are_reserved_only_where_some_are() -> None:
    world = World(flat(2, 4), "fifo:skip=true")
    late = {"duration_ms": 50_000, "max_wait_ms": 60_000}
    world.health("n1", Health.FAILED)
    world.submit(a_job("beyond", 5, **late), of_roles("both", workers(2, 4), **late))
    world.turn(after_ms=70_000)

    def overdue(job: str) -> str:
        return evidence(why(world.state, job), world.state.now)["overdue"].partition("longer than its max_wait")[2]

    assert not world.state.reservations
    assert overdue("beyond") == ", but nothing is kept for it: it can never start as it is"
    assert overdue("both") == ": it goes first, and devices are reserved for it once enough nodes are healthy"
    world.run(a_job("small", 1, duration_ms=90_000))
    world.health("n1", Health.HEALTHY)
    assert [each.job for each in world.state.reservations] == ["both"]
    assert overdue("both") == ": it goes first, and devices are reserved for it"


@pytest.mark.parametrize("preemptible", [True, False])
@pytest.mark.parametrize("policy", POLICIES)
def test_under_every_policy_the_overdue_has_its_devices_in_time(policy: str, preemptible: bool) -> None:
    """By 90 s, when the one that runs has ended, whatever comes in between; before, where that gives way to it."""
    world = starved(policy, preemptible)
    leave(world, "small0")
    world.turn(after_ms=60_000)
    for priority in (0, 9, 1000):
        world.submit(a_job(f"p{priority}", 2, duration_ms=500_000, priority=priority))
    leave(world, "small0")
    if world.job("small0").attempt is not None:
        world.end("small0", after_ms=30_000)
    attempt = world.job("large").attempt
    assert attempt is not None
    assert not attempt.waits
    assert everything(verify(world.journal)) == everything(world.state)


@pytest.mark.parametrize("policy", ["priority", "kai"])
def test_nobody_is_moved_together_for_one_who_would_delay_the_overdue(policy: str) -> None:
    """Both small ones would fit, were the first to move; that makes no more room than there is, and it is reserved."""
    world = starved(policy)
    world.turn(after_ms=60_000)
    plan = world.submit(a_job("small1", 2, duration_ms=500_000))
    assert not plan.claims
    assert not plan.actions
    assert world.reason("small1") is Reason.RESERVED


def test_for_one_who_would_delay_the_overdue_others_give_way_elsewhere() -> None:
    """n0 is reserved from 90 s on. What runs there has done less than what runs on n1, and yet it is left alone."""
    world = World(flat(2, 4), "priority")
    world.run(a_job("b", 4, duration_ms=900_000))
    world.run(a_job("a", 2, duration_ms=90_000), after_ms=1_000)
    world.submit(a_job("large", 4, duration_ms=50_000, max_wait_ms=60_000))
    world.turn(after_ms=60_000)
    (reserved,) = world.state.reservations
    assert reserved.placement.nodes == ("n1",) != tuple(world.where("b"))
    assert stops(world.submit(a_job("high", 2, duration_ms=500_000, priority=9))) == ["b"]
    assert starts(world.end("a", after_ms=30_000)) == ["large"]


def test_what_a_queue_deserves_is_had_back_also_where_it_is_reserved_and_that_is_reserved_anew() -> None:
    """Both deserve 4 of 8. a has 8, and its overdue job has a place from 90 s on; b has back its 4 at once."""
    queues = (Queue("a", deserved=Quota(4_000)), Queue("b", deserved=Quota(4_000)))
    world = World(replace(flat(2, 4), queues=queues), "fair")
    world.run(a_job("a1", 4, queue="a", duration_ms=90_000), a_job("a2", 4, queue="a", duration_ms=80_000))
    world.submit(a_job("late", 4, queue="a", duration_ms=50_000, max_wait_ms=60_000))
    world.turn(after_ms=60_000)
    (reserved,) = world.state.reservations
    assert (reserved.job, reserved.at_ms) == ("late", 80_000)
    (stopped,) = stops(world.submit(a_job("b1", 4, queue="b", duration_ms=500_000)))
    (again,) = world.state.reservations
    assert again.job == "late"
    assert set(again.placement.nodes).isdisjoint(world.where("b1"))
    assert stopped in ("a1", "a2")


def test_nobody_grows_onto_what_is_reserved_for_the_overdue(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_REGISTERED", {})
    register("wide", lambda parameters: Policy("wide", sizes=lambda jobs, at: {"elastic": {"worker": 4}}))
    world = World(flat(1, 4), "wide")
    world.run(a_job("elastic", 1, count=(1, 4), duration_ms=90_000, preemptible=False))
    world.submit(a_job("large", 4, duration_ms=50_000, max_wait_ms=60_000))
    assert not world.turn(after_ms=60_000).actions
    assert [each.job for each in world.state.reservations] == ["large"]


@pytest.mark.parametrize("policy", ["fifo:skip=true", "priority", "drf", "backfill"])
def test_the_overdue_goes_before_everybody_else(policy: str) -> None:
    world = World(flat(1, 4), policy)
    world.run(a_job("runs", 4, priority=9))
    world.submit(a_job("first", 4, priority=5), a_job("late", 4, max_wait_ms=60_000), after_ms=1_000)
    world.turn(after_ms=60_000)
    assert starts(world.end("runs", after_ms=1_000)) == ["late"]
    assert everything(replay(world.journal)) == everything(world.state)
    assert everything(verify(world.journal)) == everything(world.state)


def test_a_job_that_has_started_in_time_never_rises() -> None:
    world = World(flat(1, 4), "priority")
    world.run(a_job("early", 4, max_wait_ms=60_000))
    world.turn(after_ms=61_000)
    assert not world.job("early").overdue
