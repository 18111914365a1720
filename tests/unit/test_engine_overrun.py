"""Jobs that run longer than they said: what is reserved for others holds all the same."""

from __future__ import annotations

import random
from typing import Any

import pytest

from builders import World, a_job, everything, starts, virtual_backend
from phalanx.cluster.cluster import flat
from phalanx.engine.fold import snapshot
from phalanx.engine.state.ends import OVERRUN_MIN_MS, still_ms
from phalanx.engine.turn import replay, verify
from phalanx.protocol.event import JobSubmitted
from phalanx.protocol.reason import Reason
from phalanx.simulate.run import Run

HOUR_MS = 3_600_000
LATE_MAX_MS = 20_000


def stream(policy: str, start_ms: int = 0, length_ms: int = 60_000, late_max_ms: int = LATE_MAX_MS, **head: Any) -> Run:
    """Two nodes kept busy for an hour by short jobs that end a little late, and from 30 s on a job that wants both."""
    rng = random.Random(1)
    arrivals, lengths_ms = [], {"head": 60_000}
    for at_ms in range(0, HOUR_MS, length_ms // 3):
        job = f"j{at_ms}"
        lengths_ms[job] = length_ms + rng.randint(0, late_max_ms)
        arrivals.append((at_ms, JobSubmitted(a_job(job, 4, duration_ms=length_ms))))
    arrivals.append((30_000, JobSubmitted(a_job("head", 4, 2, duration_ms=60_000, **head))))
    arrivals.sort(key=lambda arrival: arrival[0])
    return Run.of(flat(2, 4), policy, virtual_backend(lengths_ms, start_ms=start_ms), arrivals)


def told_and_started(run: Run) -> tuple[int, int]:
    """What the head was told first, and when it started; that it started within the hour."""
    told = None
    while run.state.now < HOUR_MS and run.step() is not None:
        reserved = [each.at_ms for each in run.state.reservations if each.job == "head"]
        told = reserved[0] if reserved and told is None else told
        head = run.state.jobs.get("head")
        if head is not None and head.attempt is not None:
            assert told is not None
            return told, head.attempt.created_ms
    raise AssertionError("the head has not started within an hour")


@pytest.mark.parametrize("policy", ["backfill", "backfill:mode=conservative", "priority:backfill=easy"])
def test_a_head_starts_by_the_time_it_was_told_and_the_longest_overrun(policy: str) -> None:
    told_ms, started_ms = told_and_started(stream(policy))
    assert started_ms <= told_ms + LATE_MAX_MS


@pytest.mark.parametrize("policy", ["fifo:skip=true", "sjf", "priority", "fair", "drf", "backfill"])
def test_a_job_past_its_max_wait_starts_by_the_time_it_was_told_and_the_longest_overrun(policy: str) -> None:
    told_ms, started_ms = told_and_started(stream(policy, max_wait_ms=300_000))
    assert started_ms <= told_ms + LATE_MAX_MS


def test_starts_that_take_long_put_off_a_head_once_and_not_again_and_again() -> None:
    """Jobs of 5 s whose start takes 5 s end 5 s later than was expected when they were let pass."""
    told_ms, started_ms = told_and_started(stream("backfill", start_ms=5_000, length_ms=5_000, late_max_ms=0))
    assert started_ms <= told_ms + 5_000


def late(policy: str = "backfill") -> World:
    """One of two nodes is in use by a job that is 1 s past its 60 s; the head wants both."""
    world = World(flat(2, 4), policy)
    world.run(a_job("late", 4, duration_ms=60_000))
    world.submit(a_job("head", 4, 2, duration_ms=10_000))
    world.turn(after_ms=61_000)
    return world


def test_nobody_passes_a_head_that_waits_for_a_job_past_its_time_however_short() -> None:
    world = late()
    assert not starts(world.submit(a_job("brief", 4, duration_ms=1)))
    assert world.reason("brief") is Reason.RESERVED
    assert not starts(world.submit(a_job("another", 1, duration_ms=1), after_ms=500))
    for told in (replay(world.journal), snapshot.load(snapshot.dump(world.state))):
        assert told.reservations == world.state.reservations
        assert everything(told) == everything(world.state)
    assert starts(world.end("late", after_ms=500)) == ["head"]
    verify(world.journal)


def test_who_takes_nothing_from_a_head_that_waits_for_a_job_past_its_time_passes() -> None:
    world = World(flat(3, 4), "backfill")
    world.run(a_job("late", 4, duration_ms=60_000), a_job("endless", 2), a_job("gap", 4, duration_ms=90_000))
    world.submit(a_job("head", 4, 2, duration_ms=10_000))
    world.end("gap", after_ms=61_000)
    assert starts(world.submit(a_job("small", 2))) == ["small"]
    assert starts(world.end("late", after_ms=1_000)) == ["head"]


def test_nobody_has_a_head_wait_for_one_more_job_past_its_time() -> None:
    """The head waits for late and has n2, which is free. It could have n1 instead, once later has left, too."""
    world = World(flat(3, 4), "backfill")
    world.run(a_job("late", 4, duration_ms=60_000), a_job("later", 4, duration_ms=70_000))
    world.submit(a_job("head", 4, 2, duration_ms=10_000))
    world.turn(after_ms=71_000)
    assert not starts(world.submit(a_job("small", 4, duration_ms=600_000)))
    assert starts(world.end("late", after_ms=1_000)) == ["head"]


def test_a_job_passes_that_ends_before_others_have_left_who_are_not_past_their_time() -> None:
    world = World(flat(3, 4), "backfill")
    world.run(a_job("late", 4, duration_ms=60_000), a_job("long", 4, duration_ms=200_000))
    world.submit(a_job("head", 4, 3, duration_ms=10_000))
    world.turn(after_ms=100_000)
    assert [each.at_ms for each in world.state.reservations] == [200_000]
    assert starts(world.submit(a_job("passes", 4, duration_ms=100_000))) == ["passes"]


def test_what_a_job_past_its_time_holds_stays_reserved_however_long_it_runs() -> None:
    """Half of n0 is free and late may leave the rest at any moment; what long holds is free in an hour."""
    world = World(flat(2, 4), "backfill")
    world.run(a_job("half", 2, duration_ms=60_000), a_job("late", 2, duration_ms=60_000))
    world.run(a_job("long", 4, duration_ms=HOUR_MS))
    world.submit(a_job("head", 4, duration_ms=10_000))
    world.end("half", after_ms=60_000)
    world.turn(after_ms=HOUR_MS - 120_000)
    assert not starts(world.submit(a_job("small", 2, duration_ms=600_000)))
    assert starts(world.end("late", after_ms=1_000)) == ["head"]


def test_a_job_past_its_time_is_expected_to_run_a_little_longer_and_then_a_tenth_of_what_it_has_run() -> None:
    hour = HOUR_MS
    assert still_ms(0, hour) == OVERRUN_MIN_MS
    assert still_ms(60_000, hour) == 60_000
    assert still_ms(hour, hour) == 2 * hour // 10
    assert still_ms(100, 1_000) == OVERRUN_MIN_MS


def test_a_job_that_runs_a_day_too_long_wakes_nobody_a_hundred_times() -> None:
    world = late()
    wakes = 0
    while (at_ms := world.state.next_wakeup()) is not None and at_ms < 24 * HOUR_MS:
        world.turn(after_ms=at_ms - world.state.now)
        wakes += 1
    assert 10 < wakes < 100
    assert world.state.reservations[0].at_ms > world.state.now
