"""A canary runs on a suspect node, where no decision places anything."""

from __future__ import annotations

import re

import pytest

from builders import World, a_job, starts
from phalanx.cluster.cluster import Health, flat
from phalanx.engine.state.records import JobState
from phalanx.engine.turn import replay, verify
from phalanx.protocol.event import CanaryPlaced, DeviceHealthChanged, JobHeld, JobSubmitted, Outcome
from phalanx.workload.job import Job


@pytest.fixture
def world() -> World:
    """Two nodes of four GPUs; n1 is suspect."""
    world = World(flat(2, 4))
    world.health("n1", Health.SUSPECT)
    return world


def place(world: World, job: Job, node: str = "n1") -> list[str]:
    return starts(world.turn(JobSubmitted(job), JobHeld(job.id), CanaryPlaced(job.id, node)))


def test_it_starts_on_its_node_while_other_jobs_stay_away_from_it(world: World) -> None:
    assert place(world, a_job("canary", 4)) == ["canary"]
    assert world.where("canary") == {"n1": (0, 1, 2, 3)}
    world.submit(a_job("other", 4), a_job("more", 4))
    assert world.where("other") == {"n0": (0, 1, 2, 3)}
    assert not world.where("more")
    world.done("canary")
    world.end("canary")
    assert world.status("canary") is JobState.SUCCEEDED
    assert not world.where("more"), "its node is suspect still"
    world.health("n1", Health.HEALTHY)
    assert world.where("more")


def test_it_takes_devices_that_are_well_and_that_no_job_holds(world: World) -> None:
    world.health("n1", Health.HEALTHY)
    world.health("n0", Health.DRAINING)
    world.run(a_job("runs", 1))
    world.turn(DeviceHealthChanged("n1", 1, Health.FAILED))
    world.health("n1", Health.SUSPECT)
    assert place(world, a_job("canary", 2)) == ["canary"]
    assert world.where("canary") == {"n1": (2, 3)}


def test_one_that_fails_has_failed_and_holds_nothing(world: World) -> None:
    place(world, a_job("canary", 4))
    world.done("canary")
    world.end("canary", Outcome.FAILED)
    assert world.status("canary") is JobState.FAILED
    assert world.state.capacity.unused(1).bit_count() == 4


def test_one_that_is_lost_stays_held_and_starts_nowhere_else(world: World) -> None:
    place(world, a_job("canary", 4))
    world.done("canary")
    world.end("canary", Outcome.LOST)
    assert world.status("canary") is JobState.WAITING
    assert not world.where("canary")


def test_a_node_that_fails_meanwhile_ends_it(world: World) -> None:
    place(world, a_job("canary", 4))
    world.done("canary")
    world.health("n1", Health.FAILED)
    world.done("canary")
    assert not world.where("canary")


@pytest.mark.parametrize(
    ("job", "node", "told"),
    [
        (a_job("canary", 4), "n0", "node n0 is healthy, only a suspect one needs a canary"),
        (a_job("canary", 4), "n7", "there is no node 'n7'"),
        (a_job("canary", 2, count=2), "n1", "expected a job of one task with whole GPUs"),
        (a_job("canary", 8), "n1", "node n1 has no 8 devices that nothing holds"),
    ],
)
def test_what_cannot_be_is_refused_by_name(world: World, job: Job, node: str, told: str) -> None:
    with pytest.raises(ValueError, match=re.escape(told)):
        place(world, job, node)


def test_a_job_that_is_not_held_is_refused(world: World) -> None:
    with pytest.raises(ValueError, match="only a held job that is pending is placed"):
        world.turn(JobSubmitted(a_job("canary", 4)), CanaryPlaced("canary", "n1"))


def test_the_journal_tells_the_same_and_its_decisions_are_made_again(world: World) -> None:
    place(world, a_job("canary", 4))
    world.submit(a_job("other", 4))
    world.done("canary")
    world.end("canary")
    world.health("n1", Health.HEALTHY)
    assert replay(world.journal).fingerprint() == world.state.fingerprint()
    assert verify(world.journal).fingerprint() == world.state.fingerprint()
