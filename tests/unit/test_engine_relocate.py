"""Places and relocations: what a policy may say of where jobs go, and what the engine makes of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from builders import World, a_job
from phalanx.cluster.cluster import Cluster, Health, Node
from phalanx.engine.state.records import Phase
from phalanx.engine.turn import verify
from phalanx.policy.guarded import PolicyError, guarded
from phalanx.policy.policy import Policy
from phalanx.policy.view import Place
from phalanx.protocol.action import Resize, Stop
from phalanx.protocol.event import AttemptEnded, NodeHealthChanged, Outcome


def spread_out() -> World:
    """Two nodes of 2 GPUs under gandiva without turns; wide has one GPU of each, x and y the others."""
    world = World(Cluster((Node("n0", (), 2), Node("n1", (), 2))), "gandiva:turns=1,threshold=10")
    world.run(*(a_job(name) for name in ("x", "v", "w", "y")))
    world.turn(*(AttemptEnded(name, 1, Outcome.SUCCEEDED) for name in ("v", "w")))
    world.run(a_job("wide", 1, 2))
    assert world.where("wide") == {"n0": (1,), "n1": (0,)}
    return world


def ended(name: str) -> AttemptEnded:
    return AttemptEnded(name, 1, Outcome.SUCCEEDED)


def test_a_task_that_is_there_already_stays_and_the_other_comes_to_it() -> None:
    world = spread_out()
    plan = world.turn(ended("y"))
    (move,) = [action for action in plan.actions if isinstance(action, Resize)]
    before = world.state.jobs["wide"].attempt
    assert before is not None
    assert before.placement.slots[1] in move.placement.slots
    world.done("wide")
    assert world.where("wide") == {"n1": (0, 1)}
    verify(world.journal)


def test_the_devices_that_are_left_are_free_when_the_backend_says_so() -> None:
    world = spread_out()
    world.turn(ended("y"))
    assert world.state.capacity.free_total == 0
    world.done("wide")
    assert world.state.capacity.free_total == 1


def test_a_move_that_fails_ends_in_a_stop() -> None:
    world = spread_out()
    world.turn(ended("y"))
    plan = world.failed("wide")
    assert [action.id.job for action in plan.actions if isinstance(action, Stop)] == ["wide"]


def test_nobody_moves_to_a_node_that_takes_no_work() -> None:
    world = spread_out()
    world.turn(NodeHealthChanged("n1", Health.DRAINING))
    assert not [action for action in world.turn(ended("y")).actions if isinstance(action, Resize)]


def test_nobody_moves_while_another_does() -> None:
    world = spread_out()
    world.turn(ended("y"))
    assert world.state.jobs["wide"].attempt is not None
    assert world.state.jobs["wide"].attempt.phase is Phase.RESIZING
    assert not world.turn().actions


def test_who_may_not_be_stopped_is_not_moved() -> None:
    world = World(Cluster((Node("n0", (), 2), Node("n1", (), 2))), "gandiva:turns=1,threshold=10")
    world.run(*(a_job(name) for name in ("x", "v", "w", "y")))
    world.turn(ended("v"), ended("w"))
    world.run(a_job("wide", 1, 2, preemptible=False))
    assert not world.turn(ended("y")).actions


@pytest.mark.parametrize(
    ("part", "answer", "told"),
    [
        ("places", "n0", r"places\(job a\) returned 'n0': expected a sequence of Places"),
        ("relocates", [("a",)], r"relocates\(now 0\) returned \[\('a',\)\]: expected pairs of a job and a node"),
        ("sizes", {"a": {"worker": -1}}, r"sizes\(job a\) returned {'worker': -1}: expected by job, the members"),
    ],
)
def test_what_a_policy_from_outside_says_wrongly_is_named(part: str, answer: object, told: str) -> None:
    policy = guarded(replace(Policy("mine"), **{part: lambda *_: answer}))  # type: ignore[arg-type]
    world = World(Cluster((Node("n0", (), 2),)))
    world.submit(a_job("a"))
    subjects = {"places": (world.job("a"), world.state), "relocates": (world.state,), "sizes": ([], world.state)}
    with pytest.raises(PolicyError, match=told):
        getattr(policy, part)(*subjects[part])


def test_places_are_tried_in_turn_and_no_others() -> None:
    world = World(Cluster((Node("n0", (), 1), Node("n1", (), 1), Node("n2", (), 1))))
    world.state.policy = replace(world.state.policy, places=lambda job, at: (Place(("n2",)), Place(("n1",))))
    world.run(a_job("a"))
    world.run(a_job("b"))
    world.submit(a_job("c"))
    assert (list(world.where("a")), list(world.where("b"))) == (["n2"], ["n1"])
    assert world.job("c").attempt is None
