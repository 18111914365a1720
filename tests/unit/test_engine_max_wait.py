"""Jobs that say how long they may wait: past it they rise, and devices are reserved for them."""

from __future__ import annotations

import pytest

from builders import World, a_job, everything, starts
from phalanx.cluster.cluster import flat
from phalanx.engine.plan import Reason
from phalanx.engine.turn import replay, verify


def starved(policy: str = "fifo:skip=true") -> World:
    """One node of 4 GPUs, half of it in use, and a job that wants all of it and may wait a minute."""
    world = World(flat(1, 4), policy)
    world.run(a_job("small0", 2, duration_ms=90_000))
    world.submit(a_job("large", 4, duration_ms=50_000, max_wait_ms=60_000))
    return world


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
