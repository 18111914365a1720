"""What guaranteed and opportunistic jobs get of a device in virtual time, and where the memory of the latter is."""

from __future__ import annotations

import pytest

from builders import World, a_job
from phalanx.cluster.cluster import Cluster, Node
from phalanx.engine.event import AttemptEnded, Outcome
from phalanx.engine.journal import Journal
from phalanx.engine.turn import verify
from phalanx.simulate.costs import NO_COSTS
from phalanx.simulate.simulation import Setup, Simulation
from phalanx.simulate.trace import Trace, TraceJob

HOUR_MS = 3_600_000
QUOTA = "antman:quota=a:1/b:1"


def ends_s(policy: str, *jobs: TraceJob) -> dict[str, float]:
    journal = Journal()
    simulation = Simulation(Setup(Cluster((Node("n0", (), 1),)), Trace("few", jobs), policy, costs=NO_COSTS), journal)
    simulation.begin()
    simulation.go()
    verify(Journal.read(list(journal.lines())))
    return {name: (record.ended_ms or 0) / 1000 for name, record in simulation.run.state.jobs.items()}


def test_a_guaranteed_job_keeps_its_step_time_beside_an_opportunistic_one() -> None:
    alone = ends_s(QUOTA, TraceJob("own", 0, HOUR_MS, 1, queue="a"))
    beside = ends_s(
        QUOTA, TraceJob("own", 0, HOUR_MS, 1, queue="a"), TraceJob("extra", 0, HOUR_MS, 1, queue="c", priority=-1)
    )
    assert beside["own"] == alone["own"] == 3600
    # It had 5 % of the hour that the other ran, and all of the device from then on.
    assert beside["extra"] == pytest.approx(3600 + 3600 - 0.05 * 0.925 * 3600, rel=0.001)


def test_without_throttling_the_guaranteed_job_suffers() -> None:
    jobs = (TraceJob("own", 0, HOUR_MS, 1, queue="a"), TraceJob("extra", 0, HOUR_MS, 1, queue="c", priority=-1))
    assert ends_s(f"{QUOTA},throttle=false", *jobs)["own"] > 3600


def test_a_guaranteed_job_starts_at_once_where_an_opportunistic_one_is() -> None:
    jobs = (
        TraceJob("extra", 0, HOUR_MS, 1, queue="c", priority=-1),
        TraceJob("own", 1_000_000, HOUR_MS, 1, queue="a"),
    )
    assert ends_s(QUOTA, *jobs)["own"] == 1000 + 3600


def test_the_memory_of_an_opportunistic_job_is_on_the_host() -> None:
    node = Node("n0", (), 1, gpu_memory_gb=80, memory_mb=100 * 1024)
    world = World(Cluster((node,)), QUOTA)
    needs = {"gpu_memory_gb": 40.0, "memory_mb": 1024}
    world.run(a_job("own", 1, task=needs, queue="a"))
    world.run(a_job("extra", 1, task=needs, queue="c", priority=-1))
    attempt = world.job("extra").attempt
    assert attempt is not None
    assert attempt.is_revocable
    assert [booking.portion.memory_mb for booking in attempt.bookings if booking.portion] == [0]
    assert world.state.capacity.amounts[1].held[0] == 1024 + 1024 + 40 * 1024
    # Another 40 GB and more do not fit the host: the third waits.
    world.run(a_job("fits", 1, task=needs, queue="c", priority=-1))
    world.submit(a_job("waits", 1, task=needs, queue="c", priority=-1))
    assert world.job("waits").attempt is None


def test_who_is_promoted_keeps_its_place_if_nobody_else_is_guaranteed_there() -> None:
    world = World(Cluster((Node("n0", (), 1), Node("n1", (), 1))), QUOTA)
    world.run(a_job("first", queue="a"))
    world.run(a_job("second", queue="a"))
    world.turn(AttemptEnded("first", 1, Outcome.SUCCEEDED))
    world.done("second")
    attempt = world.job("second").attempt
    assert attempt is not None
    assert not attempt.is_revocable
    assert list(world.where("second")) == ["n1"]
    assert not world.state.revocable


def test_quotas_are_equal_if_none_are_given_and_priorities_below_0_are_opportunistic() -> None:
    world = World(Cluster((Node("n0", (), 4),)), "antman")
    world.run(
        *(a_job(f"a{i}", queue="a") for i in range(3)), a_job("b0", queue="b"), a_job("low", queue="b", priority=-1)
    )
    told = {name: bool(record.sizes) for name, record in world.state.jobs.items()}
    assert told == {"a0": True, "a1": True, "a2": False, "b0": True, "low": False}
