"""Resizing by hand: in the engine, over HTTP, and across a restart."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from running import Server, eventually

from builders import World, a_job, everything, of_roles
from phalanx.cluster.cluster import flat
from phalanx.engine.fold.lacks import plan_without
from phalanx.engine.fold.snapshot import dump, load
from phalanx.engine.turn import replay, verify
from phalanx.protocol.action import Resize
from phalanx.protocol.event import JobChanged, JobHeld, JobReleased, JobRequeued
from phalanx.protocol.plan import Plan
from phalanx.workload.gang import Role, Task
from phalanx.workload.job import Job


def ranged(job: Job, least: int, most: int) -> Job:
    (role,) = job.gang.roles
    return replace(job, gang=replace(job.gang, roles=(replace(role, replicas_min=least, replicas_max=most),)))


def resizes(plan: Plan) -> dict[str, int]:
    return {action.id.job: len(action.placement.slots) for action in plan.actions if isinstance(action, Resize)}


@pytest.fixture
def world() -> World:
    """Eight GPUs, all held by an elastic job of two to eight."""
    world = World(flat(1, 8), "fifo")
    world.run(a_job("e", 1, (2, 8)))
    return world


def test_a_running_job_shrinks_to_a_smaller_most_and_grows_to_a_larger(world: World) -> None:
    job = world.job("e").job
    assert resizes(world.turn(JobChanged(ranged(job, 2, 3)))) == {"e": 3}
    world.done("e")
    assert world.job("e").gpus == 3
    assert not world.turn().actions, "it does not grow beyond its most"
    assert resizes(world.turn(JobChanged(ranged(job, 2, 6)))) == {"e": 6}
    world.done("e")
    world.state.capacity.check()
    assert everything(verify(world.journal)) == everything(world.state)


def test_what_a_shrunk_job_gave_up_goes_to_who_waits(world: World) -> None:
    world.submit(a_job("w", 4))
    world.turn(JobChanged(ranged(world.job("e").job, 2, 4)))
    plan = world.done("e")
    assert [action.id.job for action in plan.actions] == ["w"]


def test_a_size_asked_for_while_the_job_is_resized_is_had_afterwards(world: World) -> None:
    job = world.job("e").job
    world.turn(JobChanged(ranged(job, 2, 6)))
    assert not world.turn(JobChanged(ranged(job, 2, 4))).actions
    assert resizes(world.done("e")) == {"e": 4}


def test_a_size_asked_for_while_the_job_starts_is_had_once_it_runs() -> None:
    world = World(flat(1, 8), "fifo")
    world.submit(a_job("e", 1, (1, 8)))
    assert not world.turn(JobChanged(ranged(world.job("e").job, 1, 1))).actions
    assert resizes(world.done("e")) == {"e": 1}
    world.done("e")
    assert world.job("e").gpus == 1
    assert everything(load(dump(world.state))) == everything(world.state)


def test_a_job_that_starts_again_has_the_size_it_was_given_last(world: World) -> None:
    world.turn(JobChanged(ranged(world.job("e").job, 2, 3)))
    world.done("e")
    state = load(dump(world.state))
    assert state.jobs["e"].asked.gang.gpus_max == 3
    assert everything(replay(world.journal)) == everything(state)


@pytest.mark.parametrize(
    "change",
    [
        lambda job: replace(ranged(job, 2, 4), priority=9),
        lambda job: ranged(job, 9, 9),
        lambda job: replace(job, gang=of_roles(Role("worker", 2, 8, Task(gpus=2))).gang),
    ],
)
def test_nothing_else_of_a_running_job_can_be_changed(world: World, change: object) -> None:
    assert callable(change)
    before = everything(world.state)
    with pytest.raises(ValueError, match="only a pending job can be changed"):
        world.turn(JobChanged(change(world.job("e").job)))
    assert everything(world.state) == before


def test_a_job_of_a_fixed_size_cannot_be_resized_while_it_runs() -> None:
    world = World(flat(1, 8), "fifo")
    world.run(a_job("f", 4))
    with pytest.raises(ValueError, match="only a pending job can be changed"):
        world.turn(JobChanged(ranged(world.job("f").job, 1, 2)))


def test_where_nothing_that_runs_is_resized_the_way_around_it_is_told_and_works(world: World) -> None:
    plan_without(world.state, ("resize",))
    with pytest.raises(ValueError, match="hold and requeue the job, change it, and release it"):
        world.turn(JobChanged(ranged(world.job("e").job, 2, 4)))
    world.turn(JobHeld("e"))
    world.turn(JobRequeued("e"))
    world.done("e")
    world.turn(JobChanged(ranged(world.job("e").job, 2, 4)))
    world.turn(JobReleased("e"))
    world.done("e")
    assert (world.job("e").attempts, len(world.where("e")["n0"])) == (2, 4)


def elastic(server: Server, least: int, most: int) -> str:
    gang = [{"role": "worker", "replicas": {"min": least, "max": most}, "gpus": 1}]
    return str(server.submit(gang=gang, duration="10m")["id"])


def test_resize_over_http_is_seen_in_the_job_and_in_the_audit_log(rehearsal: Server) -> None:
    job = elastic(rehearsal, 1, 4)
    eventually(lambda: rehearsal.job(job)["gpus"] == 4)
    answer = rehearsal.client.post(f"/jobs/{job}:resize", json={"replicas": 2})
    assert answer.status_code == 200, answer.text
    eventually(lambda: rehearsal.job(job)["gpus"] == 2)
    assert rehearsal.job(job)["spec"]["gang"]["roles"][0]["replicas_max"] == 2
    rehearsal.client.post(f"/jobs/{job}:resize", json={"replicas": 3}).raise_for_status()
    eventually(lambda: rehearsal.job(job)["gpus"] == 3)
    entry = rehearsal.client.get("/audit", params={"target": job, "limit": 1}).json()["items"][0]
    assert (entry["verb"], entry["detail"]) == ("resize job", "3 replicas")
    rehearsal.client.post(f"/jobs/{job}:cancel")


def test_what_cannot_be_resized_is_told_why(rehearsal: Server) -> None:
    job = elastic(rehearsal, 2, 3)
    below = rehearsal.client.post(f"/jobs/{job}:resize", json={"replicas": 1})
    assert (below.status_code, "fewer than 2" in below.text) == (409, True)
    assert rehearsal.client.post(f"/jobs/{job}:resize", json={"replicas": 2, "min": 3}).status_code == 422
    role = rehearsal.client.post(f"/jobs/{job}:resize", json={"replicas": 2, "role": "server"})
    assert (role.status_code, "it has: worker" in role.text) == (409, True)
    old = rehearsal.client.post(f"/jobs/{job}:resize", json={"replicas": 3}, headers={"If-Match": '"0"'})
    assert old.status_code == 412
    rehearsal.client.post(f"/jobs/{job}:cancel")


def test_a_job_that_waits_has_exactly_as_many_as_it_is_given(tmp_path: Path) -> None:
    server = Server(tmp_path, "--backend", "rehearsal", "--nodes", "1", "--gpus", "4").start()
    try:
        first = server.submit(gpus=4, duration="10m")["id"]
        job = server.submit(gang=[{"replicas": 4, "gpus": 1}], duration="10m")["id"]
        server.client.post(f"/jobs/{job}:resize", json={"replicas": 2}).raise_for_status()
        server.client.post(f"/jobs/{first}:cancel").raise_for_status()
        assert server.wait(job, "running")["gpus"] == 2
        server.kill()
        server.start()
        assert server.job(job)["gpus"] == 2
    finally:
        server.stop()
