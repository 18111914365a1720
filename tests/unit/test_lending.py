"""Memory of a device that is lent to opportunistic jobs: how much, when it is had back, and what never happens."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import World, a_job
from phalanx.cluster.cluster import Cluster, Node
from phalanx.cluster.device import Portion
from phalanx.engine.fold.snapshot import dump, load
from phalanx.engine.state.records import JobState
from phalanx.engine.turn import replay, verify
from phalanx.policy.lending import divided
from phalanx.protocol.action import Resize, Suspend
from phalanx.protocol.event import Done, PolicyChanged, Progress

DEVICE_GB = 80
QUOTA = "antman:quota=a:2"


def world_of(*extras_gb: float, own_gb: float = 30.0, gpus: int = 1, policy: str = QUOTA) -> World:
    """A guaranteed job, and opportunistic ones beside it, on GPUs of 80 GB."""
    node = Node("n0", (), gpus, gpu_memory_gb=DEVICE_GB, memory_mb=1 << 20)
    world = World(Cluster((node,)), policy)
    for number in range(gpus):
        world.run(a_job(f"own{number}", task={"gpu_memory_gb": own_gb}, queue="a"))
    for number, need_gb in enumerate(extras_gb):
        task = {"gpu_memory_gb": need_gb}
        world.run(a_job(f"extra{number}", gpus, task=task, queue="c", priority=-1))
    carry_out(world)
    return world


def carry_out(world: World) -> None:
    while world.asked:
        world.turn(*(Done(action) for action in list(world.asked)))


def report(world: World, job: str, memory_gb: float, after_ms: int = 1_000) -> None:
    world.turn(Progress(job, 1, memory_gb=memory_gb), after_ms=after_ms)


def portion(world: World, job: str) -> Portion:
    attempt = world.job(job).attempt
    assert attempt is not None
    found = attempt.bookings[0].portion
    assert found is not None
    assert all(booking.portion == found for booking in attempt.bookings)
    return found


def lent_gb(world: World, job: str = "extra0") -> float:
    return portion(world, job).lent_mb / 1024


def test_what_a_guaranteed_job_asked_for_counts_until_it_has_reported() -> None:
    world = world_of(60.0)
    assert lent_gb(world) == 46
    report(world, "own0", 40.0)
    carry_out(world)
    assert lent_gb(world) == 36


def test_beside_a_job_of_which_nothing_is_known_nothing_is_lent() -> None:
    assert lent_gb(world_of(60.0, own_gb=0.0)) == 0


def test_nobody_is_lent_more_than_it_needs_and_one_that_does_not_say_nothing() -> None:
    world = world_of(10.0, 0.0)
    assert (lent_gb(world), lent_gb(world, "extra1")) == (10, 0)
    report(world, "extra1", 6.0)
    carry_out(world)
    assert lent_gb(world, "extra1") == 6


def test_who_lies_beside_two_guaranteed_jobs_is_lent_what_both_leave() -> None:
    world = world_of(60.0, gpus=2)
    assert lent_gb(world) == 46
    report(world, "own1", 70.0)
    carry_out(world)
    assert lent_gb(world) == 6


def test_less_is_lent_at_once_and_more_only_after_four_reports() -> None:
    world = world_of(60.0)
    for memory_gb, lent in ((50, 26), (20, 26), (20, 26), (20, 26), (20, 56), (75, 1)):
        report(world, "own0", memory_gb)
        carry_out(world)
        assert lent_gb(world) == lent


def test_memory_goes_back_before_a_job_is_suspended() -> None:
    world = world_of(60.0)
    world.turn(Progress("own0", 1, metrics={"step_ms": 1000.0}), after_ms=60_000)
    carry_out(world)
    asked = []
    while world.status("extra0") is not JobState.SUSPENDED:
        world.turn(Progress("own0", 1, metrics={"step_ms": 9000.0}), after_ms=60_000)
        while world.asked:
            asked += [type(action) for action in world.asks("extra0")]
            world.turn(*(Done(action) for action in list(world.asked)))
    assert asked[-2:] == [Resize, Suspend]
    assert lent_gb(world) == 0
    world.end("own0")
    carry_out(world)
    assert world.status("extra0") is JobState.RUNNING
    assert lent_gb(world) == 60
    verify(world.journal)


def test_a_change_that_fails_is_tried_again_and_nothing_is_lost_by_it() -> None:
    world = world_of(60.0)
    report(world, "own0", 70.0)
    world.failed("extra0")
    assert lent_gb(world) == 46
    world.turn(after_ms=1_000)
    carry_out(world)
    assert lent_gb(world) == 6
    world.state.capacity.check()
    verify(world.journal)


def test_who_is_promoted_holds_its_memory() -> None:
    world = world_of(60.0, policy="antman:quota=a:1/c:1")
    world.run(a_job("later", task={"gpu_memory_gb": 10.0}, queue="a"))
    carry_out(world)
    assert portion(world, "later").revocable
    world.end("own0")
    carry_out(world)
    assert not portion(world, "later").revocable
    assert portion(world, "later").lent_mb == 0
    assert portion(world, "later").memory_mb == DEVICE_GB * 1024
    assert lent_gb(world) == 60


def test_one_that_is_being_promoted_elsewhere_is_lent_what_it_has_until_it_goes() -> None:
    """moves has its old share beside own0 and its new one on the other GPU, until the backend has moved it."""
    node = Node("n0", (), 2, gpu_memory_gb=DEVICE_GB, memory_mb=1 << 20)
    world = World(Cluster((node,)), "antman:quota=a:1/c:1")
    world.run(a_job("own0", task={"gpu_memory_gb": 30.0}, queue="a"))
    world.run(a_job("ends", queue="c"))
    world.run(a_job("moves", task={"gpu_memory_gb": 60.0}, queue="c"))
    carry_out(world)
    assert lent_gb(world, "moves") == 46
    world.end("ends")
    assert [type(action) for action in world.asks("moves")] == [Resize]
    report(world, "own0", 20.0)
    carry_out(world)
    assert not portion(world, "moves").revocable
    assert world.where("moves") == {"n0": (1,)}
    verify(world.journal)


def test_under_another_policy_nothing_is_lent() -> None:
    world = world_of(60.0)
    world.turn(PolicyChanged("fifo"))
    carry_out(world)
    assert lent_gb(world) == 0
    verify(world.journal)


def test_what_is_lent_is_in_journals_and_snapshots() -> None:
    world = world_of(60.0)
    for state in (replay(world.journal), load(dump(world.state))):
        attempt = state.jobs["extra0"].attempt
        assert attempt is not None
        assert attempt.bookings[0].portion == portion(world, "extra0")
        assert state.fingerprint() == world.state.fingerprint()


@given(st.dictionaries(st.text("abcdef", min_size=1, max_size=3), st.integers(0, 200_000)), st.integers(0, 200_000))
def test_no_more_is_lent_than_is_left_and_none_is_left_that_somebody_needs(needs: dict[str, int], left_mb: int) -> None:
    parts = divided(left_mb, needs)
    assert sum(parts.values()) <= left_mb
    assert all(0 <= parts[name] <= needs[name] for name in needs)
    lacking = [name for name in needs if parts[name] < needs[name]]
    if lacking:
        assert left_mb - sum(parts.values()) < len(needs)
        assert min(parts[name] for name in lacking) + 1 >= max(parts.values())


@given(st.lists(st.tuples(st.sampled_from(["own0", "extra0", "extra1"]), st.floats(0.5, 80.0)), max_size=12))
def test_a_guaranteed_job_never_loses_a_byte_of_what_it_said_it_has(told: list[tuple[str, float]]) -> None:
    world = world_of(60.0, 25.0)
    said_gb = 30.0
    for job, memory_gb in told:
        report(world, job, memory_gb)
        carry_out(world)
        said_gb = memory_gb if job == "own0" else said_gb
        assert said_gb + lent_gb(world) + lent_gb(world, "extra1") <= DEVICE_GB
        assert portion(world, "own0").memory_mb == DEVICE_GB * 1024
        world.state.capacity.check()


@pytest.mark.parametrize("throttle", ["true", "false"])
def test_where_nothing_is_lent_memory_is_on_the_host_for_good(throttle: str) -> None:
    world = world_of(60.0, policy=f"{QUOTA},lend=false,throttle={throttle}")
    report(world, "own0", 1.0)
    carry_out(world)
    assert lent_gb(world) == 0
