"""Shares that change where they are: what a policy may say of them, and what the engine makes of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from builders import World, a_job
from phalanx.cluster.cluster import flat
from phalanx.cluster.device import Mode, Portion
from phalanx.engine.decide.cycle import decide
from phalanx.engine.turn import verify
from phalanx.placement.placement import Placement, Slot, in_place
from phalanx.policy import registry
from phalanx.policy.guarded import PolicyError
from phalanx.policy.policy import Policy
from phalanx.policy.registry import register
from phalanx.policy.view import Adjustment, JobView, Moment
from phalanx.protocol.action import Resize
from phalanx.protocol.event import Progress
from phalanx.workload.share import turn_ask

TURNS = {"share": turn_ask(2)}
TURN = Portion(Mode.TURNS, 500, 100, turns=2, turn=0)
LEFT = Portion(Mode.FRACTION, 500, 0, revocable=True)


@pytest.fixture(autouse=True)
def nothing_stays_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_REGISTERED", {})


def placed(*portions: Portion | None) -> Placement:
    return Placement(tuple(Slot(i, "worker", "n0", (i,), portion) for i, portion in enumerate(portions)))


@pytest.mark.parametrize(
    ("old", "new", "so"),
    [
        (placed(TURN), placed(replace(TURN, beside="b")), True),
        (placed(LEFT, None), placed(replace(LEFT, compute_permille=20), None), True),
        (placed(TURN), placed(TURN), False),
        (placed(TURN), placed(replace(TURN, turn=1)), False),
        (placed(TURN), placed(replace(TURN, compute_permille=400)), False),
        (placed(LEFT), placed(replace(LEFT, revocable=False)), False),
        (placed(LEFT), placed(replace(LEFT, memory_mb=1)), False),
        (placed(TURN), placed(None), False),
        (placed(TURN, TURN), placed(replace(TURN, beside="b")), False),
        (placed(TURN), Placement((Slot(0, "worker", "n1", (0,), replace(TURN, beside="b")),)), False),
        (placed(TURN), Placement((Slot(1, "worker", "n0", (0,), replace(TURN, beside="b")),)), False),
    ],
)
def test_only_what_nobody_else_could_have_changes_in_place(old: Placement, new: Placement, so: bool) -> None:
    assert in_place(old, new) is so


def test_only_jobs_that_take_turns_are_packed() -> None:
    with pytest.raises(ValueError, match="only turns are shared"):
        Portion(Mode.FRACTION, 500, 0, beside="b")


def world_of(adjustments: Any) -> World:
    """Two jobs in turns, under a policy that says this of shares whenever it is asked."""

    def adjusts(memory: dict[str, Any], job: JobView, at: Moment) -> Mapping[str, Adjustment]:
        memory["asked"] = (*memory.get("asked", ()), job.job.id)
        return adjustments  # type: ignore[no-any-return]

    register("mine", lambda parameters: Policy("whatever", adjusts=adjusts))
    world = World(flat(1, 1), "mine")
    world.run(a_job("a", task=TURNS), a_job("b", task=TURNS))
    return world


def test_a_policy_is_asked_of_all_on_a_device_where_something_has_changed_and_of_who_reports() -> None:
    world = world_of({})
    # When a begins b does not run yet; when b begins both do.
    assert world.state.memory["asked"] == ("a", "b", "a")
    world.turn(Progress("a", 1))
    assert world.state.memory["asked"][3:] == ("a",)
    world.end("a")
    assert world.state.memory["asked"][4:] == ("b",)


def test_what_has_come_about_is_forgotten_and_asked_for_once() -> None:
    world = world_of({"b": Adjustment(beside="a")})
    assert [type(action) for action in world.asks("b")] == [Resize]
    assert not decide(world.state, world.now).actions
    world.done("b")
    assert not world.state.adjustments
    assert not world.asked
    world.turn(Progress("a", 1))
    assert not world.state.adjustments
    verify(world.journal)


def test_jobs_that_are_not_there_and_shares_that_are_not_revocable_are_left_alone() -> None:
    world = world_of({"nobody": Adjustment(beside="a"), "a": Adjustment(compute_permille=0)})
    assert not world.asked
    assert not world.state.adjustments


@pytest.mark.parametrize("said", [None, {"a": 5}, {"a": Adjustment(compute_permille=1001)}, {"a": Adjustment(7)}])  # type: ignore[arg-type]
def test_what_is_no_adjustment_is_refused_and_named(said: object) -> None:
    with pytest.raises(PolicyError, match=r"policy mine: adjusts\(job a\) returned .*: expected by job, an Adjustment"):
        world_of(said)
