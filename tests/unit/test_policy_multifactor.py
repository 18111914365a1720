from __future__ import annotations

import pytest

from builders import World, a_job, starts
from phalanx.cluster.cluster import Cluster, Node
from phalanx.cluster.queues import Queue
from phalanx.engine.turn import verify
from phalanx.policy.registry import policy
from phalanx.protocol.reason import Reason
from phalanx.workload.job import Job

MINUTE_MS = 60_000
DAY_MS = 24 * 60 * MINUTE_MS

QUEUES = (Queue("a"), Queue("b", priority=4), Queue("c", priority=-3))


def world(spec: str = "multifactor", gpus: int = 10) -> World:
    """A full cluster, so that everybody waits."""
    made = World(Cluster((Node("n0", (), gpus),), queues=QUEUES), spec)
    made.run(a_job("all", gpus, queue="a"))
    return made


def worth(spec: str, job: Job, after_ms: int = 0) -> dict[str, float]:
    made = world(spec)
    made.submit(job)
    made.turn(after_ms=after_ms)
    return {each.name: each.value for each in made.state.policy.factors(made.job(job.id), made.state)}


def test_every_factor_is_told_from_0_to_1() -> None:
    assert worth("multifactor", a_job("j", 5, queue="b", priority=250), DAY_MS) == {
        "age": 1 / 7,
        "fairshare": 1.0,
        "size": 0.5,
        "queue": 1.0,
        "priority": 0.25,
    }


def test_a_queue_that_used_all_there_was_has_the_last_rank() -> None:
    assert worth("multifactor", a_job("j", 1, queue="a"), 5 * MINUTE_MS)["fairshare"] == 1 / 3


def test_factors_stay_between_0_and_1() -> None:
    assert worth("multifactor", a_job("j", 1, queue="b"), 30 * DAY_MS)["age"] == 1
    assert worth("multifactor", a_job("j", 1, queue="c", priority=-5))["queue"] == 0
    assert worth("multifactor", a_job("j", 1, queue="c", priority=-5))["priority"] == 0
    assert worth("multifactor:priority_max=10", a_job("j", 1, queue="b", priority=99))["priority"] == 1


def test_small_jobs_can_be_favored_instead() -> None:
    assert worth("multifactor:favor=small", a_job("j", 2, queue="a"))["size"] == 0.8


def test_age_counts_from_when_a_job_could_have_run() -> None:
    job = a_job("j", 1, queue="a", begin_ms=3 * DAY_MS)
    assert worth("multifactor:max_age=2d", job, 4 * DAY_MS)["age"] == 0.5


def test_points_add_up_to_the_place_in_the_order() -> None:
    made = world("multifactor:age=10,fairshare=20,size=30,queue=40,priority=50")
    made.submit(a_job("j", 5, queue="b", priority=100))
    points = sum(each.points for each in made.state.policy.factors(made.job("j"), made.state))
    assert points == 20 + 15 + 40 + 5
    key = made.job("j").queued
    assert key is not None
    assert key[0] == -80


def test_priorities_are_worked_out_once_a_period_for_all_at_the_same_moments() -> None:
    made = world("multifactor:fairshare=0,size=0,max_age=1000m")
    made.submit(a_job("one", 1, queue="a"))
    made.submit(a_job("two", 1, queue="a"), after_ms=4 * MINUTE_MS)
    keys = lambda: [-(made.job(job).queued or (0,))[0] for job in ("one", "two")]  # noqa: E731
    assert keys() == [0, 0]
    assert made.state.next_wakeup() == 5 * MINUTE_MS
    made.turn(after_ms=MINUTE_MS)
    assert keys() == [5, 1]
    made.turn(after_ms=4 * MINUTE_MS)
    assert keys() == [5, 1]
    made.turn(after_ms=MINUTE_MS)
    assert keys() == [10, 6]
    verify(made.journal)


def test_who_runs_is_not_looked_at_again() -> None:
    made = world()
    assert made.state.next_wakeup() is None


def test_nothing_wakes_for_a_job_that_can_never_run_once_it_is_as_old_as_counts() -> None:
    made = World(Cluster((Node("n0", (), 2),)), "multifactor:max_age=10m")
    made.submit(a_job("huge", 4, queue="a"))
    assert made.reason("huge") is Reason.NEVER_FITS
    made.turn(after_ms=5 * MINUTE_MS)
    assert made.state.next_wakeup() == 10 * MINUTE_MS
    made.turn(after_ms=5 * MINUTE_MS)
    assert made.state.next_wakeup() is None


def test_who_waits_long_enough_passes_a_better_queue() -> None:
    made = world("multifactor:age=3000,fairshare=0,size=0,queue=1000,max_age=3h")
    made.submit(a_job("old", 1, queue="a"))
    made.submit(a_job("new", 1, queue="b"), after_ms=2 * 60 * MINUTE_MS)
    assert starts(made.end("all")) == ["old", "new"]


def test_with_backfill_the_head_is_promised_a_time() -> None:
    made = World(Cluster((Node("n0", (), 4),)), "multifactor:backfill=easy")
    made.run(a_job("runs", 3, queue="a", duration_ms=10 * MINUTE_MS))
    made.submit(a_job("head", 4, queue="a", duration_ms=MINUTE_MS, priority=500))
    made.submit(a_job("long", 1, queue="a", duration_ms=20 * MINUTE_MS))
    assert made.reason("long") is Reason.RESERVED
    assert starts(made.submit(a_job("short", 1, queue="a", duration_ms=5 * MINUTE_MS))) == ["short"]
    assert [each.at_ms for each in made.state.reservations] == [10 * MINUTE_MS]


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ("multifactor:age=-1", "age=-1: expected at least 0"),
        ("multifactor:period=0s", "period=0s: expected a time above 0"),
        ("multifactor:favor=me", "favor=me: expected one of large, small"),
        ("multifactor:nice=3", "has no parameter 'nice'"),
    ],
)
def test_parameters_that_make_no_sense_are_refused(spec: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        policy(spec)
