"""Solver client: policies that ask a solver are advised when it is time, and go on without where nobody can advise."""

from __future__ import annotations

from copy import deepcopy

import msgspec
import pytest

from builders import World, a_job
from phalanx.advice.solver import NotSolvedError
from phalanx.cluster.cluster import flat
from phalanx.engine.turn import record, verify
from phalanx.errors import PhalanxError
from phalanx.protocol.event import Advice, JobSubmitted
from phalanx.server.loop import solver_client as room
from phalanx.server.loop.loop_metrics import Figures, LoopMetrics
from phalanx.server.loop.solver_client import SolverClient


def a_counsel() -> SolverClient:
    return SolverClient(lambda line: None, lambda: None)


def test_a_policy_that_asks_nobody_is_not_advised() -> None:
    world = World(flat(1, 8), "fifo")
    assert a_counsel().due(world.state, 10) == []


@pytest.mark.needs("highspy")
def test_a_policy_is_advised_when_it_is_time_and_not_before_the_next() -> None:
    world = World(flat(1, 8), "gavel")
    record(world.state, world.journal, JobSubmitted(a_job("a", 1, duration_ms=60_000)), world.now)
    solver_client = a_counsel()
    (advice,) = solver_client.due(world.state, world.now)
    world.turn(advice)
    assert solver_client.due(world.state, world.now) == []


def two_in_turn(policy: str) -> World:
    """Two jobs who both want all there is, and have been advised, and one who has come since."""
    world = World(flat(1, 8), policy)
    for job in ("a", "b"):
        record(world.state, world.journal, JobSubmitted(a_job(job, 8, duration_ms=3_600_000)), world.now)
    world.turn(*a_counsel().due(world.state, world.now))
    world.submit(a_job("c", 8, duration_ms=3_600_000), after_ms=1_000)
    return world


def due_again(world: World) -> int:
    due_ms = world.state.policy.next_wakeup(world.state.memory, world.now)
    assert due_ms is not None
    return due_ms


ANSWERS = ("ranks", "targets", "shares", "owed", "types", "leases", "up")


@pytest.mark.parametrize("error", [PhalanxError("it is broken"), KeyError("no such job"), RuntimeError("a defect")])
@pytest.mark.parametrize("policy", [pytest.param("gavel", marks=pytest.mark.needs("highspy")), "themis"])
def test_where_the_adviser_fails_the_last_advice_holds_and_it_is_told_and_counted(
    policy: str, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = two_in_turn(policy)
    before = deepcopy({key: world.state.memory[key] for key in ANSWERS if key in world.state.memory})
    assert before["ranks"]

    def fails(state: object, now: int) -> Advice:
        raise error

    monkeypatch.setattr(room, "adviser", lambda name: fails)
    told: list[str] = []
    counted: list[None] = []
    solver_client = SolverClient(told.append, lambda: counted.append(None))
    at_ms = due_again(world)
    (kept,) = solver_client.due(world.state, at_ms)
    assert kept.body == {"kept": 1.0}
    world.now = at_ms
    world.turn(kept)
    assert {key: world.state.memory[key] for key in before} == before
    assert world.state.memory["kept"] == len(counted) == len(told) == 1
    assert str(error) in told[0]
    assert solver_client.due(world.state, world.now) == [], "it is not asked again and again"
    assert due_again(world) > at_ms
    verify(world.journal)


@pytest.mark.needs("highspy")
def test_a_solver_that_gives_up_by_itself_is_told_and_counted_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def gives_up(*_: object) -> None:
        raise NotSolvedError("it takes too long")

    world = two_in_turn("gavel")
    monkeypatch.setattr("phalanx.advice.gavel.allocate", gives_up)
    told: list[str] = []
    counted: list[None] = []
    (kept,) = SolverClient(told.append, lambda: counted.append(None)).due(world.state, due_again(world))
    assert kept.body == {"kept": 1.0}
    assert len(counted) == 1
    assert "found no answer, or not in time: the last advice is kept" in told[0]


def test_how_often_advice_was_kept_is_published() -> None:
    published: list[bytes] = []
    loop_metrics = LoopMetrics(published.append, 0)
    loop_metrics.advice_kept()
    loop_metrics.measure(World(flat(1, 8), "fifo").state)
    assert msgspec.json.decode(published[0], type=Figures).advice_kept == 1
