"""Counsel: policies that ask a solver are advised when it is time, and go on without where nobody can advise."""

from __future__ import annotations

import pytest

from builders import World, a_job
from phalanx.cluster.cluster import flat
from phalanx.engine.event import Advice, JobSubmitted
from phalanx.engine.turn import record
from phalanx.errors import PhalanxError
from phalanx.server.loop import counsel as room
from phalanx.server.loop.counsel import Counsel


def test_a_policy_that_asks_nobody_is_not_advised() -> None:
    world = World(flat(1, 8), "fifo")
    assert Counsel(lambda line: None).due(world.state, 10) == []


@pytest.mark.needs("highspy")
def test_a_policy_is_advised_when_it_is_time_and_not_before_the_next() -> None:
    world = World(flat(1, 8), "gavel")
    record(world.state, world.journal, JobSubmitted(a_job("a", 1, duration_ms=60_000)), world.now)
    counsel = Counsel(lambda line: None)
    (advice,) = counsel.due(world.state, world.now)
    world.turn(advice)
    assert counsel.due(world.state, world.now) == []


@pytest.mark.needs("highspy")
def test_where_the_solver_fails_it_is_told_and_asked_again_at_the_next_time(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(name: str) -> object:
        raise PhalanxError("there is no solver")

    monkeypatch.setattr(room, "adviser", broken)
    world = World(flat(1, 8), "gavel")
    record(world.state, world.journal, JobSubmitted(a_job("a", 1, duration_ms=60_000)), world.now)
    told: list[str] = []
    counsel = Counsel(told.append)
    (nothing,) = counsel.due(world.state, world.now)
    assert isinstance(nothing, Advice)
    assert "there is no solver" in told[0]
    world.turn(nothing)
    assert counsel.due(world.state, world.now) == [], "it is not asked again and again"
