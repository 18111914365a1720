"""Patience: under no policy that lets jobs pass is a gang passed for ever."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from builders import World, a_job, everything, starts, stops
from phalanx.cluster.cluster import Cluster, flat
from phalanx.cluster.queues import Queue, Quota
from phalanx.engine.fold import patience
from phalanx.engine.turn import replay, verify
from phalanx.engine.why.why import why
from phalanx.policy.policy import never
from phalanx.policy.registry import BUILTIN, policy
from phalanx.protocol.event import ClusterChanged, Event, JobCancelled, JobHeld, JobReleased, JobSubmitted
from phalanx.simulate.run import Run
from phalanx.simulate.world.costs import NO_COSTS
from phalanx.simulate.world.virtual import VirtualBackend
from phalanx.simulate.world.work import Work
from phalanx.words.evidence import evidence
from phalanx.workload.job import Checkpointing, Job

MINUTE_MS = 60_000
PATIENCE_MS = 30 * MINUTE_MS
ADVISED = [name for name in BUILTIN if policy(name if name != "tiresias-gittins" else f"{name}:samples=1/2/3").adviser]
POLICIES = [
    name
    for name in BUILTIN
    if name not in ("tiresias-gittins", *ADVISED) and policy(name).backfill is not never and not policy(name).sets_sizes
]


def patient(cluster: Cluster, patience_ms: int = PATIENCE_MS) -> Cluster:
    return replace(cluster, patience_ms=patience_ms)


def first_starts(cluster: Cluster, name: str, arrivals: list[tuple[int, Event]], works: dict[str, Work]) -> Run:
    run = Run.of(cluster, name, VirtualBackend(works, NO_COSTS), arrivals)
    while run.step() is not None and run.state.now < 4 * 60 * MINUTE_MS:
        pass
    return run


@pytest.mark.parametrize("says", [True, False])
@pytest.mark.parametrize("name", POLICIES)
def test_a_gang_starts_though_small_jobs_come_without_end(name: str, says: bool) -> None:
    """Two nodes of 4 GPUs, a job of one GPU and a minute every 20 s, and a gang of 8 that never finds all free."""
    arrivals: list[tuple[int, Event]] = []
    works: dict[str, Work] = {}
    for i in range(4 * 180):
        small = a_job(f"s{i}", 1, duration_ms=MINUTE_MS if says else None)
        arrivals.append((i * 20_000, JobSubmitted(small)))
        works[small.id] = Work(MINUTE_MS, job=small)
    gang = a_job("gang", 4, 2, duration_ms=10 * MINUTE_MS if says else None)
    arrivals.append((100_000, JobSubmitted(gang)))
    works["gang"] = Work(10 * MINUTE_MS, job=gang)
    arrivals.sort(key=lambda arrival: arrival[0])
    run = first_starts(patient(flat(2, 4)), name, arrivals, works)
    started_ms = run.state.record("gang").first_start_ms
    assert started_ms is not None
    assert started_ms - 100_000 <= PATIENCE_MS + MINUTE_MS


@pytest.mark.parametrize("name", ["phalanx", "priority", "fair:preempt=true", "kai", "volcano"])
def test_a_gang_that_was_preempted_is_not_passed_for_ever(name: str) -> None:
    """It has run for a minute when a job of higher priority takes one of its GPUs, and small jobs come from then on."""
    jobs = [(0, a_job("gang", 4, 2, duration_ms=3 * MINUTE_MS))]
    jobs.append((MINUTE_MS, a_job("higher", 1, priority=5, duration_ms=MINUTE_MS)))
    jobs += [(MINUTE_MS + i * 20_000, a_job(f"s{i}", 1, duration_ms=MINUTE_MS)) for i in range(180)]
    works = {job.id: Work(job.duration_ms or 0, job=job) for _, job in jobs}
    run = first_starts(patient(flat(2, 4)), name, [(at_ms, JobSubmitted(job)) for at_ms, job in jobs], works)
    gang = run.state.record("gang")
    assert gang.preemptions == 1
    assert gang.ended_ms is not None
    assert gang.ended_ms <= MINUTE_MS + PATIENCE_MS + MINUTE_MS + 3 * MINUTE_MS


def preempted(**asked: object) -> World:
    """A gang that has run, and that others pass since it was preempted."""
    world = World(patient(flat(1, 4)), "priority")
    world.run(a_job("gang", 4, **asked))
    world.turn(after_ms=PATIENCE_MS - MINUTE_MS)
    world.submit(a_job("higher", 2, priority=5))
    world.done("gang")
    world.done("higher")
    return world


@pytest.mark.parametrize("max_wait_ms", [None, MINUTE_MS])
def test_a_preempted_job_is_passed_for_as_long_as_the_patience_from_then_on(max_wait_ms: int | None) -> None:
    world = preempted(max_wait_ms=max_wait_ms)
    world.turn(after_ms=PATIENCE_MS - 1)
    assert not world.job("gang").overdue
    assert starts(world.submit(a_job("passes", 1))) == ["passes"]
    world.turn(after_ms=1)
    assert [each.job for each in world.state.reservations] == ["gang"]
    assert not starts(world.submit(a_job("late", 1)))
    told = evidence(why(world.state, "gang"), world.state.now)["overdue"]
    assert told.startswith("it has waited 0s longer than the patience of its queue")
    assert everything(replay(world.journal)) == everything(world.state)
    verify(world.journal)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("say", [1.0, 0.5])
@pytest.mark.parametrize("name", ["phalanx", "priority", "fifo:skip=true", "sjf", "fair"])
def test_at_moderate_load_a_gang_waits_no_longer_than_patience_and_the_longest_run(
    name: str, say: float, seed: int
) -> None:
    """Small jobs take 0.7 of what there is, and a gang that takes all of it comes every hour: 0.8 together.

    Until those have left who do not say when they end, those who say so may still begin: once more the longest run.
    """
    rng = random.Random(seed)
    patience_ms, longest_ms = 10 * MINUTE_MS, 8 * MINUTE_MS
    jobs: list[tuple[int, Job]] = []
    now_ms = 0.0
    while now_ms < 230 * MINUTE_MS:
        gpus, length_ms = rng.choice((1, 1, 2, 4)), rng.randrange(MINUTE_MS, longest_ms)
        said_ms = length_ms if rng.random() < say else None
        now_ms += gpus * length_ms / 8 / 0.7
        jobs.append((int(now_ms), a_job(f"j{len(jobs)}", gpus, duration_ms=said_ms, labels=(("ms", str(length_ms)),))))
    gangs = [f"gang{hour}" for hour in range(3)]
    for hour, gang in enumerate(gangs):
        jobs.append((hour * 60 * MINUTE_MS + 1, a_job(gang, 4, 2, labels=(("ms", str(6 * MINUTE_MS)),))))
    jobs.sort(key=lambda arrival: arrival[0])
    works = {job.id: Work(int(dict(job.labels)["ms"]), job=job) for _, job in jobs}
    run = first_starts(
        patient(flat(2, 4), patience_ms), name, [(at_ms, JobSubmitted(job)) for at_ms, job in jobs], works
    )
    for gang in gangs:
        record = run.state.record(gang)
        assert record.first_start_ms is not None
        assert record.first_start_ms - record.submitted_ms <= patience_ms + longest_ms * (1 if say == 1.0 else 2)


def passed() -> World:
    """A gang that has waited longer than the patience behind small jobs of which nobody knows when they end."""
    world = World(patient(flat(1, 4)), "fifo:skip=true")
    world.run(a_job("small", 2))
    world.submit(a_job("gang", 4))
    world.run(a_job("beside", 1))
    world.turn(after_ms=PATIENCE_MS)
    return world


def test_past_the_patience_nobody_passes_and_why_says_so() -> None:
    world = passed()
    assert [each.job for each in world.state.reservations] == ["gang"]
    assert not starts(world.submit(a_job("late", 1)))
    told = evidence(why(world.state, "gang"), world.state.now)["overdue"]
    assert told.endswith("longer than the patience of its queue: it goes first, and devices are reserved for it")
    world.end("small")
    assert starts(world.end("beside")) == ["gang"]


@pytest.mark.parametrize("name", ["phalanx", "las", "srtf", "tiresias-las"])
def test_patience_stops_nobody_whom_the_order_would_not(name: str) -> None:
    """The second waits behind the first, its equal, which runs longer than the patience."""
    works = {}
    arrivals: list[tuple[int, Event]] = []
    for job in ("first", "second"):
        asked = a_job(job, 4, duration_ms=60 * MINUTE_MS, checkpoint=Checkpointing())
        arrivals.append((0, JobSubmitted(asked)))
        works[job] = Work(60 * MINUTE_MS, job=asked)
    stopped = [
        first_starts(cluster, name, arrivals, works).state.record("first").preemptions
        for cluster in (flat(1, 4), patient(flat(1, 4)))
    ]
    assert stopped[0] == stopped[1]


def test_one_of_a_queue_goes_first_at_a_time() -> None:
    world = passed()
    world.submit(a_job("second", 4))
    world.turn(after_ms=PATIENCE_MS)
    assert (world.job("gang").overdue, world.job("second").overdue) == (True, False)
    world.end("small")
    world.end("beside")
    world.done("gang")
    assert (world.job("gang").overdue, world.job("second").overdue) == (False, True)


@pytest.mark.parametrize("gone", [JobCancelled("gang"), JobHeld("gang")])
def test_who_goes_leaves_its_place_to_the_next(gone: Event) -> None:
    world = passed()
    world.submit(a_job("second", 4))
    world.turn(after_ms=PATIENCE_MS)
    world.turn(gone)
    world.turn(after_ms=PATIENCE_MS)
    assert world.job("second").overdue
    assert not world.job("gang").overdue


def test_jobs_that_wait_for_quota_are_not_all_looked_at_for_each_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    limited = replace(flat(1, 4), queues=(Queue("small", limit=Quota(gpus_permille=1000)),), patience_ms=PATIENCE_MS)
    world = World(limited, "fifo:skip=true")
    world.run(a_job("runs", 1, queue="small"))
    for number in range(99):
        world.submit(a_job(f"j{number}", 1, queue="small"))
    looks: list[int] = []
    look = patience._look_at
    monkeypatch.setattr(
        patience, "_look_at", lambda state, queue, since_ms: looks.append(since_ms) or look(state, queue, since_ms)
    )
    world.turn(after_ms=PATIENCE_MS)
    assert len(looks) == 1
    assert world.state.next_wakeup() is None


def test_queues_have_a_patience_of_their_own() -> None:
    queues = (Queue("hasty", patience_ms=MINUTE_MS), Queue("patient", patience_ms=0), Queue("plain"))
    world = World(replace(flat(1, 4), queues=queues, patience_ms=10 * MINUTE_MS), "fair")
    world.run(a_job("runs", 4, queue="plain"))
    for queue in ("hasty", "patient", "plain"):
        world.submit(a_job(queue, 4, queue=queue))
    world.turn(after_ms=MINUTE_MS)
    assert [name for name in ("hasty", "patient", "plain") if world.job(name).overdue] == ["hasty"]
    world.turn(after_ms=9 * MINUTE_MS)
    assert [name for name in ("hasty", "patient", "plain") if world.job(name).overdue] == ["hasty", "plain"]


def test_a_cluster_that_says_nothing_of_it_has_none() -> None:
    world = World(flat(1, 4), "fifo:skip=true")
    world.run(a_job("small", 2))
    world.submit(a_job("gang", 4))
    assert world.state.next_wakeup() is None
    world.turn(ClusterChanged(patient(flat(1, 4))), after_ms=PATIENCE_MS)
    assert world.job("gang").overdue


def test_under_the_default_policy_one_who_went_first_is_not_stopped_for_the_next_who_comes() -> None:
    """It has filled its first level, and waits for half as long as it takes to rise from that by itself."""
    world = World(patient(flat(1, 4), 10 * MINUTE_MS), "phalanx")
    world.run(a_job("gang", 4, checkpoint=Checkpointing(saves=True)))
    world.turn(after_ms=6 * MINUTE_MS)
    assert stops(world.submit(a_job("small", 1))) == ["gang"]
    world.done("gang")
    world.done("small")
    world.turn(after_ms=10 * MINUTE_MS)
    world.turn(after_ms=MINUTE_MS)
    assert starts(world.end("small")) == ["gang"]
    world.done("gang")
    assert not stops(world.submit(a_job("next", 1), after_ms=MINUTE_MS))


def test_a_patience_that_is_raised_is_waited_for() -> None:
    world = World(patient(flat(1, 4)), "fifo:skip=true")
    world.run(a_job("small", 2))
    world.submit(a_job("gang", 4))
    world.turn(ClusterChanged(patient(flat(1, 4), 2 * PATIENCE_MS)))
    world.turn(after_ms=PATIENCE_MS)
    assert not world.job("gang").overdue
    world.turn(after_ms=PATIENCE_MS)
    assert world.job("gang").overdue


def test_histories_with_patience_are_replayed_and_decided_again() -> None:
    world = passed()
    assert everything(replay(world.journal)) == everything(world.state)
    verify(world.journal)


def test_a_queue_wakes_up_once_and_not_for_each_of_its_pending_jobs() -> None:
    world = World(patient(flat(1, 4)), "fifo:skip=true")
    world.run(a_job("small", 2))
    for number in range(50):
        world.submit(a_job(f"gang-{number}", 4), after_ms=1_000)
    wakes = 0
    while (at_ms := world.state.next_wakeup()) is not None:
        wakes += 1
        world.turn(after_ms=at_ms - world.now)
    assert wakes == 1
    assert world.job("gang-0").overdue


def test_a_job_goes_first_once_its_quota_is_not_what_it_lacks() -> None:
    queues = (Queue("small", limit=Quota(gpus_permille=1000)), Queue("large"))
    world = World(replace(flat(1, 4), queues=queues, patience_ms=PATIENCE_MS), "fifo:skip=true")
    world.run(a_job("runs", 1, queue="small"), a_job("beside", 1, queue="large"))
    world.submit(a_job("gang", 4, queue="large"), a_job("limited", 1, queue="small"))
    world.turn(after_ms=PATIENCE_MS)
    assert not world.job("limited").overdue
    world.end("runs")
    assert world.job("limited").overdue
    verify(world.journal)


def test_a_job_that_becomes_eligible_late_goes_first_by_when_it_was_submitted() -> None:
    world = World(patient(flat(1, 4)), "fifo:skip=true")
    world.run(a_job("small", 2))
    world.submit(a_job("gang", 4))
    world.turn(JobHeld("gang"))
    world.turn(after_ms=2 * PATIENCE_MS)
    assert not world.job("gang").overdue
    world.turn(JobReleased("gang"))
    assert world.job("gang").overdue


def test_where_no_job_may_pass_lengths_count_from_the_moment_at_which_the_patience_is_over() -> None:
    """Which classes are tried again depends on it."""
    world = World(patient(flat(1, 4)), "fifo")
    world.run(a_job("small", 2))
    world.submit(a_job("gang", 4))
    world.turn(after_ms=PATIENCE_MS)
    assert world.state.waits_are_limited
    assert not world.job("gang").overdue
    assert world.state.next_wakeup() is None
