"""Worlds that the scheduler plans: which epoch comes next, and how the plan is read."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from phalanx.train.launch.coordinator import Coordinator, Report, Rules
from phalanx.train.launch.epoch import Agent, Epoch
from phalanx.train.launch.plan import GangFile, Plan, Seat


def agent(task: int) -> Agent:
    return Agent(f"a{task}", f"h{task}", 1000 + task, slots=2, task=task)


def plan(*tasks: int) -> Plan:
    return Plan(tasks, (1,) * len(tasks))


class World:
    """A coordinator whose world is planned, and the agents that report to it."""

    def __init__(self, *tasks: int) -> None:
        self.coordinator = Coordinator(Rules(2, 2, last_call_s=100.0), 0.0)
        self.coordinator.planned(plan(*tasks))
        self.epoch = Epoch(0, (agent(tasks[-1]),))

    def report(self, task: int, now: float, leaving: bool = False) -> None:
        self.coordinator.heard(Report(agent(task), self.epoch.number, "running", leaving=leaving), now)

    def next(self, now: float) -> Epoch | None:
        found = self.coordinator.next(self.epoch, now)
        self.epoch = found or self.epoch
        return found

    def running(self) -> list[int] | None:
        """The tasks of the epoch in the order of ranks, if it runs."""
        return [member.task for member in self.epoch.members] if self.epoch.state == "running" else None


@pytest.fixture
def world() -> World:
    """Two agents that run, of those that were planned."""
    world = World(0, 1)
    for task in (1, 0):
        world.report(task, 0.0)
    world.next(0.0)
    for task in (1, 0):
        world.report(task, 0.0)
    return world


def test_a_planned_world_begins_when_the_last_has_come_in_the_order_of_tasks(world: World) -> None:
    assert world.running() == [0, 1]


def test_a_planned_world_is_not_begun_without_one_of_its_agents() -> None:
    world = World(0, 1, 2)
    for task in (0, 1):
        world.report(task, 0.0)
    assert world.next(99.0) is None
    over = world.next(600.0)
    assert over is not None
    assert over.why == "3 agents are planned, missing of task 2, 2 came in 600 s: h0, h1"


def test_a_grown_world_begins_at_once_when_all_are_there_and_the_old_one_goes_on_until_then(world: World) -> None:
    world.coordinator.planned(plan(0, 1, 2, 3))
    world.report(2, 5.0)
    assert world.next(60.0) is None
    world.report(3, 60.0)
    world.next(60.0)
    assert world.running() == [0, 1, 2, 3]
    assert world.epoch.restarts == 0


def test_a_shrunk_world_begins_at_once_also_before_the_others_have_heard_of_it(world: World) -> None:
    world.coordinator.planned(plan(1))
    world.next(5.0)
    assert world.running() == [1]


def test_a_swap_is_one_change(world: World) -> None:
    world.coordinator.planned(plan(0, 2))
    world.report(1, 5.0, leaving=True)
    assert world.next(5.0) is None
    world.next(5.3)
    assert world.epoch.state == "gathering"
    assert world.next(5.4) is None
    world.report(2, 9.0)
    world.next(9.0)
    assert world.running() == [0, 2]


def test_an_agent_of_no_planned_task_is_not_taken_in(world: World) -> None:
    world.report(7, 5.0)
    assert world.next(60.0) is None


def test_a_second_agent_of_one_task_waits_until_the_first_is_lost(world: World) -> None:
    second = replace(agent(1), name="second")
    world.coordinator.heard(Report(second, -1, "idle"), 5.0)
    assert world.next(60.0) is None
    assert world.coordinator.why_spare(second, world.epoch) == "has an agent of task 1 already"
    assert world.coordinator.why_spare(agent(2), world.epoch) == ""
    world.coordinator.lost("a1", 61.0)
    world.next(61.0)
    world.next(61.5)
    assert world.epoch.names == ("a0", "second")
    assert world.coordinator.why_spare(second, world.epoch) == ""


def test_of_two_agents_of_one_task_the_first_that_came_has_its_place() -> None:
    world = World(0, 1)
    world.report(0, 0.0)
    world.coordinator.heard(Report(replace(agent(0), name="second"), -1, "idle"), 0.1)
    assert world.next(1.0) is None, "task 1 has no agent yet"
    world.report(1, 2.0)
    world.next(2.0)
    assert world.epoch.names == ("a0", "a1")


def test_agents_that_are_told_to_leave_one_after_another_all_leave(world: World) -> None:
    world.report(0, 5.0, leaving=True)
    assert world.next(5.0) is None
    world.next(5.3)
    assert world.epoch.state == "gathering"
    world.report(1, 6.0, leaving=True)
    world.next(6.0)
    assert world.epoch.state == "left"


def task(rank: int, role: str = "worker", since: int = 1) -> dict[str, object]:
    return {"rank": rank, "role": role, "node": "n0", "devices": [rank], "since": since}


def test_the_plan_is_that_of_the_role_and_of_the_gang_as_it_will_be(tmp_path: Path) -> None:
    path = tmp_path / "gang.json"
    seat = Seat.of({"PHALANX_GANG_FILE": str(path), "PHALANX_ROLE": "worker", "PHALANX_RANK": "1"})
    assert seat is not None
    gang = GangFile(seat)
    assert gang.plan() is None
    path.write_text(json.dumps({"version": 1, "tasks": [task(0), task(1), task(2, "evaluator")]}))
    assert gang.plan() == Plan((0, 1), (1, 1))
    assert gang.is_founder()
    new = tmp_path / "new"
    coming = [task(1), task(3, since=2)]
    new.write_text(json.dumps({"version": 2, "tasks": [task(0), task(1)], "next": {"tasks": coming}}))
    new.replace(path)
    assert gang.plan() == Plan((1, 3), (1, 2))
    assert not GangFile(Seat(str(path), "worker", 3)).is_founder()
    path.unlink()
    assert gang.plan() == Plan((1, 3), (1, 2))


def test_a_task_that_comes_back_under_its_number_makes_another_plan() -> None:
    assert Plan((0, 1), (1, 1)).name != Plan((0, 1), (1, 4)).name


def test_outside_of_a_job_there_is_no_plan() -> None:
    assert Seat.of({"PHALANX_RANK": "0"}) is None
