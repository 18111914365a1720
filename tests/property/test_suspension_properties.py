"""Random histories in which jobs are suspended: nothing is booked twice, kept for nobody, or forgotten."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import HEALTHS, World, a_job, everything
from phalanx.cluster.capacity import MEMORY, MEMORY_LIMIT
from phalanx.cluster.cluster import Cluster, Health, Node
from phalanx.engine.state.journal import Journal
from phalanx.engine.state.records import Phase
from phalanx.engine.state.state import State
from phalanx.engine.turn import record, replay, verify
from phalanx.protocol.action import Action
from phalanx.protocol.event import (
    AttemptEnded,
    ClusterDefined,
    DeviceMemoryMeasured,
    Done,
    Event,
    Failed,
    JobCancelled,
    JobSubmitted,
    Lost,
    NodeHealthChanged,
    Outcome,
    PolicyChanged,
    SuspendRates,
)
from phalanx.workload.job import Checkpointing, Job

GB = 1024
POLICIES = ("priority", "phalanx:first=5", "fifo", "las", "backfill:mode=conservative")


def world_of(policy: str, memory_gb: int) -> World:
    nodes = tuple(Node(f"n{i}", (), 4, gpu_memory_gb=16.0, cpus_milli=8_000, memory_mb=memory_gb * GB) for i in "012")
    cluster = Cluster(nodes)
    world = World(cluster, policy)
    world.state, world.journal = State(), Journal()
    record(world.state, world.journal, ClusterDefined(cluster, policy, suspend=SuspendRates(2048, 8192)), 0)
    return world


def a_random_job(rng: random.Random, number: int) -> Job:
    return a_job(
        str(number),
        rng.choice((1, 2, 4)),
        count=rng.choice((1, 1, 1, 2)),
        task={"memory_mb": rng.choice((0, 1, 8, 40)) * GB, "cpus_milli": 500},
        checkpoint=Checkpointing(saves=rng.random() < 0.3),
        priority=rng.choice((0, 0, 1, 5)),
        duration_ms=rng.choice((None, 10_000, 60_000)),
        max_wait_ms=rng.choice((None, None, 30_000)),
    )


def something(rng: random.Random, world: World, asked: list[Action]) -> list[Event]:
    """What happens next: an answer, an end, a job more or less, a node that fails or comes back."""
    dice = rng.random()
    state = world.state
    running = [a for a in state.attempts_present() if a.phase is Phase.RUNNING]
    if asked and dice < 0.55:
        action = rng.choice(asked)
        asked.remove(action)
        return [rng.choices([Done(action.id), Failed(action.id, "no"), Lost(action.id)], [18, 1, 1])[0]]
    if dice < 0.6 and running:
        return [DeviceMemoryMeasured((it := rng.choice(running)).job.id, it.number, rng.randrange(1, 32 * GB))]
    if dice < 0.68 and running:
        return [AttemptEnded((it := rng.choice(running)).job.id, it.number, rng.choice(list(Outcome)))]
    if dice < 0.71 and state.kept:
        kept = state.jobs[rng.choice(list(state.kept))]
        if kept.kept is not None and kept.attempt is None:
            return [AttemptEnded(kept.job.id, kept.kept.attempt, rng.choice((Outcome.LOST, Outcome.FAILED)))]
    if dice < 0.75:
        open_jobs = [r.job.id for r in state.jobs.values() if r.final is None and not r.cancelled]
        return [JobCancelled(rng.choice(open_jobs))] if open_jobs else []
    if dice < 0.78:
        return [NodeHealthChanged(f"n{rng.randrange(3)}", rng.choice(HEALTHS))]
    if dice < 0.79:
        return [PolicyChanged(rng.choice(POLICIES))]
    return [JobSubmitted(a_random_job(rng, len(state.jobs)))]


def check(world: World) -> None:
    state = world.state
    state.capacity.check()
    for attempt in state.attempts():
        kept = state.jobs[attempt.job.id].kept
        assert kept is None or attempt.next_seq >= kept.next_seq
    for job, each in state.jobs.items():
        assert (each.kept is not None) == (job in state.kept)
    for number in (MEMORY, MEMORY_LIMIT):
        amount = state.capacity.amounts[number]
        for node in range(3):
            held = sum(
                need
                for attempt in state.attempts()
                if not attempt.waits
                for booking in attempt.bookings
                if booking.node == node
                for which, need in booking.needs
                if which == number
            )
            held += sum(
                need
                for job in state.kept
                if (kept := state.jobs[job].kept) is not None and kept.booking.node == node
                for which, need in kept.booking.needs
                if which == number
            )
            held += sum(
                need
                for attempt in state.attempts()
                if attempt.keeping is not None and attempt.keeping[1].node == node
                for which, need in attempt.keeping[1].needs
                if which == number
            )
            assert amount.held[node] == held
            assert amount.held[node] <= amount.total[node]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 1 << 30))
def test_whatever_happens_memory_is_kept_for_who_is_suspended_and_for_nobody_else(seed: int) -> None:
    rng = random.Random(seed)
    world = world_of(rng.choice(POLICIES), rng.choice((32, 96, 256)))
    asked: list[Action] = []
    for _ in range(60):
        events = something(rng, world, asked)
        asked += world.turn(*events, after_ms=rng.choice((0, 500, 5_000))).actions
        check(world)
    assert everything(replay(world.journal)) == everything(world.state)
    verify(world.journal)


@pytest.mark.parametrize("policy", POLICIES)
def test_once_all_is_over_nothing_is_kept(policy: str) -> None:
    rng = random.Random(policy)
    world = world_of(policy, 128)
    asked: list[Action] = []
    for _ in range(120):
        asked += world.turn(*something(rng, world, asked), after_ms=1_000).actions
    world.turn(*(NodeHealthChanged(f"n{i}", Health.HEALTHY) for i in range(3)))
    world.turn(*(JobCancelled(r.job.id) for r in world.state.jobs.values() if r.final is None and not r.cancelled))
    for _ in range(400):
        actions = [action for attempt in world.state.attempts() for action in attempt.in_flight.values()]
        world.turn(*(Done(action.id) for action in actions), after_ms=10_000)
    assert all(r.final is not None for r in world.state.jobs.values())
    assert not world.state.kept
    assert world.state.capacity.amounts[MEMORY].held == [0, 0, 0]
