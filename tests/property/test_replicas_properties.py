"""Services whose sizes change at random among jobs that come and go: no device is given twice, a second decision adds
nothing, and once all actions are answered and no more happens, nothing is stopped or resized for ever.
"""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import World, a_job, everything
from phalanx.cluster.cluster import flat
from phalanx.engine.decide.cycle import decide
from phalanx.engine.decide.scaling import scaled
from phalanx.engine.state.records import Phase
from phalanx.engine.turn import verify
from phalanx.protocol.event import Done, JobChanged
from phalanx.workload.job import Job, Kind
from phalanx.workload.scale import Metric, Scale

ROUNDS_MAX = 60
"""Rounds of answers in which everything must have come to rest: far more than any sequence of preemptions takes."""


def a_service(rng: Random, number: int) -> Job:
    least = rng.choice([0, 1, 1, 2])
    scale = Scale(Metric.QUERY, 10.0, least, 6, query="up")
    return a_job(
        f"s{number}",
        rng.choice([1, 1, 2]),
        max(least, 1),
        kind=Kind.SERVICE,
        priority=rng.choice([0, 1, 2]),
        min_available=least,
        scale=scale,
    )


def a_training(rng: Random, number: int) -> Job:
    count = rng.choice([1, 1, 2, (1, 3)])
    return a_job(f"t{number}", rng.choice([1, 1, 2, 4]), count, priority=rng.choice([0, 1, 2]), duration_ms=60_000)


def step(world: World, rng: Random, number: int) -> None:
    """Something happens."""
    running = [attempt.job.id for attempt in world.state.attempts_present() if attempt.phase is Phase.RUNNING]
    kind = rng.random()
    if kind < 0.2:
        world.submit(a_service(rng, number), after_ms=1)
    elif kind < 0.45:
        world.submit(a_training(rng, number), after_ms=1)
    elif kind < 0.7 and world.state.scaled:
        job = world.job(rng.choice(list(world.state.scaled))).job
        assert job.scale is not None
        world.turn(JobChanged(scaled(job, rng.randint(job.scale.least, 6), world.now)), after_ms=1)
    elif kind < 0.9 and world.asked:
        world.turn(Done(rng.choice(list(world.asked))), after_ms=1)
    elif running:
        world.end(rng.choice(running), after_ms=1)


def check(world: World) -> None:
    """A job whose claim was withdrawn is told why it waits by the next decision; nothing else is left to that."""
    world.state.capacity.check()
    again = decide(world.state, world.state.now)
    assert (again.actions, again.claims, again.withdrawn) == ((), (), ()), again


@pytest.mark.parametrize("policy", ["priority", "phalanx", "backfill", "fair", "fifo"])
@settings(deadline=None, max_examples=25)
@given(seed=st.integers(0, 1_000_000))
def test_services_and_jobs_come_to_rest(policy: str, seed: int) -> None:
    rng = Random(seed)
    world = World(flat(2, 4), policy)
    for number in range(25):
        step(world, rng, number)
        check(world)
    for _ in range(ROUNDS_MAX):
        if not world.asked:
            break
        world.turn(Done(next(iter(world.asked))), after_ms=1)
        check(world)
    assert not world.asked
    assert everything(verify(world.journal)) == everything(world.state)
