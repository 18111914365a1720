"""What guaranteed and opportunistic jobs get of a device in virtual time, and where the memory of the latter is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import World, a_job
from phalanx.cluster.cluster import Cluster, Node
from phalanx.cluster.device import FULL_PERMILLE
from phalanx.engine.state.journal import Journal
from phalanx.engine.state.records import JobState
from phalanx.engine.turn import verify
from phalanx.policy.throttle import CLOSE_PERMILLE, LEAST_PERMILLE, Level, Throttle
from phalanx.protocol.action import Stop, Suspend
from phalanx.protocol.event import AttemptEnded, Done, JobCancelled, Outcome, PolicyChanged, Progress
from phalanx.protocol.reason import Reason
from phalanx.simulate.run import Run
from phalanx.simulate.simulation import Setup, Simulation
from phalanx.simulate.trace import Trace, TraceJob
from phalanx.simulate.world.adopt import adopted
from phalanx.simulate.world.costs import NO_COSTS
from phalanx.simulate.world.work import Work
from phalanx.workload.share import ShareAsk, ShareKind

HOUR_MS = 3_600_000
QUOTA = "antman:quota=a:1/b:1"


def ends_s(policy: str, *jobs: TraceJob) -> dict[str, float]:
    journal = Journal()
    simulation = Simulation(Setup(Cluster((Node("n0", (), 1),)), Trace("few", jobs), policy, costs=NO_COSTS), journal)
    simulation.begin()
    simulation.go()
    verify(Journal.read(list(journal.lines())))
    return {name: (record.ended_ms or 0) / 1000 for name, record in simulation.run.state.jobs.items()}


def own_and_extra(own: str = "", extra: str = "", extra_at_ms: int = 600_000) -> tuple[TraceJob, TraceJob]:
    """A guaranteed job of an hour, and one that comes to share its device."""
    return (
        TraceJob("own", 0, HOUR_MS, 1, queue="a", model=own),
        TraceJob("extra", extra_at_ms, HOUR_MS, 1, queue="c", priority=-1, model=extra),
    )


@pytest.mark.parametrize(("own", "extra"), [("resnet50", "dlrm"), ("bert", "resnet50"), ("dlrm", "dlrm"), ("", "")])
def test_a_guaranteed_job_keeps_its_step_time_beside_an_opportunistic_one(own: str, extra: str) -> None:
    """Beyond the tolerance only while it is found out how much is too much."""
    ends = ends_s(QUOTA, *own_and_extra(own, extra))
    assert 3600 < ends["own"] < 3600 * 1.05
    assert ends["own"] < ends_s(f"{QUOTA},throttle=false", *own_and_extra(own, extra))["own"]


def test_without_throttling_the_guaranteed_job_suffers_what_its_neighbour_costs_it() -> None:
    ends = ends_s(f"{QUOTA},throttle=false", *own_and_extra("bert", "resnet50", extra_at_ms=0))
    # Beside a convolution a transformer keeps 0.42 of its speed, and that 0.64; a twentieth goes into idle moments.
    assert ends["extra"] == pytest.approx(3600 / 0.64, rel=0.001)
    assert ends["own"] == pytest.approx(ends["extra"] + 3600 - ends["extra"] * (1 - 0.95 * 0.58), rel=0.001)


def test_who_does_less_harm_is_given_more() -> None:
    """A recurrent model keeps 0.8 beside a recommendation and 0.56 beside a convolution."""
    little = ends_s(QUOTA, *own_and_extra("lstm", "dlrm"))
    much = ends_s(QUOTA, *own_and_extra("lstm", "resnet50"))
    done_beside = {name: 3600 - (ends["extra"] - ends["own"]) for name, ends in (("little", little), ("much", much))}
    assert done_beside["little"] > 1.3 * done_beside["much"] > 0


def test_a_guaranteed_job_starts_at_once_where_an_opportunistic_one_is() -> None:
    """It never ran alone: its own step time is that beside one who has a twentieth of the device."""
    jobs = (
        TraceJob("extra", 0, HOUR_MS, 1, queue="c", priority=-1),
        TraceJob("own", 1_000_000, HOUR_MS, 1, queue="a"),
    )
    assert 1000 + 3600 <= ends_s(QUOTA, *jobs)["own"] < 1000 + 3600 * 1.05


def beside_own(*extras: str, policy: str = QUOTA) -> World:
    """A guaranteed job whose steps take a second, and opportunistic ones on its device."""
    world = World(Cluster((Node("n0", (), 1),)), policy)
    world.run(a_job("own", queue="a"))
    world.turn(a_report("own", 1000), after_ms=60_000)
    for name in extras:
        world.run(a_job(name, queue="c", priority=-1))
    carry_out(world)
    return world


def a_report(job: str, step_ms: float) -> Progress:
    return Progress(job, 1, metrics={"step_ms": step_ms})


def carry_out(world: World) -> None:
    while world.asked:
        world.turn(*(Done(action) for action in list(world.asked)))


def compute(world: World, job: str) -> int:
    attempt = world.job(job).attempt
    assert attempt is not None
    assert attempt.bookings[0].portion is not None
    return attempt.bookings[0].portion.compute_permille


def test_a_report_of_the_time_before_a_change_does_not_count() -> None:
    world = beside_own("extra")
    world.turn(a_report("own", 9000), after_ms=59_999)
    assert not world.asked
    assert compute(world, "extra") == 50


def test_all_beside_a_job_have_the_same_and_begin_anew_when_another_comes() -> None:
    world = beside_own("one", "two")
    world.turn(a_report("own", 1000), after_ms=60_000)
    carry_out(world)
    assert (compute(world, "one"), compute(world, "two")) == (100, 100)
    world.run(a_job("three", queue="c", priority=-1))
    carry_out(world)
    assert [compute(world, name) for name in ("one", "two", "three")] == [50, 50, 50]


def test_who_is_on_devices_of_two_guaranteed_jobs_has_what_both_can_bear() -> None:
    world = World(Cluster((Node("n0", (), 2),)), "antman:quota=a:2")
    world.run(a_job("x", queue="a"), a_job("y", queue="a"))
    world.turn(a_report("x", 1000), a_report("y", 1000), after_ms=60_000)
    world.run(a_job("wide", 2, queue="c", priority=-1))
    carry_out(world)
    for x_ms, y_ms, expected in ((1000, 1000, 100), (1000, 1000, 200), (1000, 1500, 150), (1000, 1000, 175)):
        world.turn(a_report("x", x_ms), a_report("y", y_ms), after_ms=60_000)
        carry_out(world)
        assert compute(world, "wide") == expected
    world.end("y")
    carry_out(world)
    # x has suffered nothing from 200, and would bear twice as much.
    assert compute(world, "wide") == 400
    verify(world.journal)


def test_samples_a_second_tell_the_step_time_too() -> None:
    world = beside_own("extra")
    world.turn(Progress("own", 1, samples_per_s=0.5), after_ms=60_000)
    carry_out(world)
    assert compute(world, "extra") == 25


def test_a_change_that_fails_is_taken_back_and_tried_again_later() -> None:
    world = beside_own("extra")
    world.turn(a_report("own", 1000), after_ms=60_000)
    assert compute(world, "extra") == 100
    world.failed("extra")
    assert compute(world, "extra") == 50
    assert not world.asked
    world.turn(after_ms=1_000)
    carry_out(world)
    assert compute(world, "extra") == 100
    world.state.capacity.check()
    verify(world.journal)


def suspended() -> World:
    world = beside_own("extra")
    for _ in range(3):
        world.turn(a_report("own", 3000), after_ms=60_000)
        carry_out(world)
    assert world.status("extra") is JobState.SUSPENDED
    return world


def test_who_is_suspended_goes_on_when_the_guaranteed_job_has_ended() -> None:
    world = suspended()
    world.end("own")
    carry_out(world)
    assert world.status("extra") is JobState.RUNNING
    assert compute(world, "extra") == 1000


def test_who_is_suspended_can_be_cancelled_and_leaves_nothing_behind() -> None:
    world = suspended()
    world.turn(JobCancelled("extra"))
    carry_out(world)
    assert world.status("extra") is JobState.CANCELLED
    world.end("own")
    assert world.state.capacity.free == [1]
    assert not world.state.adjustments
    verify(world.journal)


def test_a_virtual_world_goes_on_from_a_state_with_a_suspended_job() -> None:
    world = suspended()
    works = {"own": Work(1_000_000), "extra": Work(100_000)}
    run = Run(adopted(world.state, works, NO_COSTS), iter(()), world.state, world.journal)
    state = run.finish()
    assert [record.final for record in state.jobs.values()] == [JobState.SUCCEEDED] * 2


def test_who_is_suspended_goes_on_under_another_policy() -> None:
    world = suspended()
    world.turn(PolicyChanged("fifo"))
    carry_out(world)
    assert world.status("extra") is JobState.RUNNING
    assert compute(world, "extra") == 1000
    verify(world.journal)


def test_a_suspend_that_fails_is_asked_for_again_later_and_one_that_is_lost_ends_in_a_stop() -> None:
    world = beside_own("extra")
    for _ in range(2):
        world.turn(a_report("own", 3000), after_ms=60_000)
        carry_out(world)
    world.turn(a_report("own", 3000), after_ms=60_000)
    assert isinstance(world.asks("extra")[-1], Suspend)
    world.failed("extra")
    assert world.status("extra") is JobState.RUNNING
    assert not world.asked
    world.turn(after_ms=1_000)
    assert isinstance(world.asks("extra")[-1], Suspend)
    world.lost("extra")
    assert isinstance(world.asks("extra")[-1], Stop)


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


def test_where_no_host_could_hold_its_memory_an_opportunistic_job_has_idle_gpus_to_itself() -> None:
    world = World(Cluster((Node("n0", (), 2, gpu_memory_gb=80),)), QUOTA)
    needs = {"gpu_memory_gb": 40.0}
    world.run(a_job("extra", 1, task=needs, queue="c", priority=-1))
    world.run(a_job("own", 1, task=needs, queue="a"))
    assert world.where("extra") == {"n0": (0,)}
    assert world.where("own") == {"n0": (1,)}
    # Nobody can be beside it, and what is guaranteed cannot be lent without a host either.
    world.submit(a_job("late", 1, task=needs, queue="c", priority=-1))
    assert world.reason("late") is Reason.GPUS
    world.end("extra")
    world.done("late")
    assert world.where("late") == {"n0": (0,)}


@pytest.mark.parametrize("policy", [QUOTA, f"{QUOTA},share=false", "gandiva"])
def test_tasks_that_ask_for_half_a_device_themselves_may_lie_on_one(policy: str) -> None:
    world = World(Cluster((Node("n0", (), 1),)), policy)
    world.run(a_job("halves", 1, count=2, task={"share": ShareAsk(ShareKind.FRACTION, 500)}, queue="c"))
    assert world.where("halves") == {"n0": (0, 0)}


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


@given(st.integers(LEAST_PERMILLE, FULL_PERMILLE))
def test_the_level_ends_near_what_does_no_harm_and_never_beyond(bearable: int) -> None:
    """Whatever a guaranteed job can bear, it is found in a few steps, and kept."""
    throttle = Throttle(tolerance=5, interval_ms=1, retry_ms=1_000_000)
    level = Level(("extra",))
    for now in range(20):
        level = throttle._next(level, level.permille, level.permille > bearable, now)
    assert bearable - 2 * CLOSE_PERMILLE < level.permille <= bearable
    assert throttle._next(level, level.permille, False, 20).permille == level.permille
    tried = throttle._next(level, level.permille, False, 1_000_021).permille
    assert (
        level.permille < tried <= max(level.permille * 5 // 4, level.permille + LEAST_PERMILLE)
        or tried == FULL_PERMILLE
    )
