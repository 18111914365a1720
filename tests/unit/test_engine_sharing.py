"""Parts of devices in the engine: gangs of them, devices that must be cut first, and what goes wrong on the way."""

from __future__ import annotations

from builders import World, a_job, sockets, starts
from phalanx.cluster.cluster import flat
from phalanx.engine.decide.cycle import decide
from phalanx.engine.state.records import JobState
from phalanx.engine.turn import record
from phalanx.protocol.action import Repartition, Resize
from phalanx.protocol.event import JobCancelled, JobSubmitted
from phalanx.protocol.plan import Plan
from phalanx.protocol.reason import Reason
from phalanx.workload.share import fraction_ask, mig_ask

HALF = {"share": fraction_ask(500)}
SLICE = {"share": mig_ask("1g.10gb")}


def one_gpu(policy: str = "fifo") -> World:
    return World(flat(1, 1, "H100", 80.0), policy)


def cuts(plan: Plan) -> list[str]:
    return [action.id.job for action in plan.actions if isinstance(action, Repartition)]


def test_two_halves_share_a_device_and_a_third_waits() -> None:
    world = one_gpu()
    assert starts(world.submit(*(a_job(name, task=HALF) for name in "abc"))) == ["a", "b"]
    assert world.reason("c") is not None
    world.done("a")
    assert starts(world.end("a")) == ["c"]
    world.state.capacity.check()


def test_a_whole_device_is_not_given_to_one_who_wants_all_of_it_while_it_is_shared() -> None:
    world = one_gpu()
    world.submit(a_job("part", task=HALF), a_job("whole"))
    assert world.reason("whole") is Reason.GPUS


def test_a_device_is_cut_before_a_slice_of_it_starts() -> None:
    world = one_gpu()
    plan = world.submit(a_job("a", task=SLICE))
    assert cuts(plan) == ["a"]
    assert not starts(plan)
    assert world.reason("a") is Reason.PREPARING
    assert starts(world.done("a")) == ["a"]


def test_a_device_that_was_cut_is_made_whole_before_it_is_given_whole() -> None:
    world = one_gpu()
    world.submit(a_job("a", task=SLICE))
    world.done("a")
    world.done("a")
    world.end("a")
    plan = world.submit(a_job("whole"))
    assert cuts(plan) == ["whole"]
    assert starts(world.done("whole")) == ["whole"]


def test_a_cut_that_fails_is_tried_again_later_and_gives_the_device_back() -> None:
    world = one_gpu()
    world.submit(a_job("a", task=SLICE))
    world.failed("a")
    assert world.reason("a") is Reason.BACKOFF
    assert world.state.capacity.free == [1]


def test_a_device_that_is_being_cut_for_a_job_that_was_cancelled_is_whole_for_nobody() -> None:
    """The cut is under way and will be done: whoever gets the device whole must have it made whole first."""
    world = one_gpu()
    world.submit(a_job("a", task=SLICE))
    world.turn(JobCancelled("a"))
    assert not starts(world.submit(a_job("whole")))
    world.done("a")
    assert not starts(world.turn())
    if world.status("whole") is JobState.WAITING and world.asks("whole"):
        assert starts(world.done("whole")) == ["whole"]


def test_a_gang_of_parts_held_to_one_socket_lies_in_one_socket() -> None:
    """Devices 1 and 2 are free, in two sockets: three halves do not fit one of them."""
    world = World(sockets(1, 4, gpu_type="H100", gpu_memory_gb=80.0))
    world.run(*(a_job(f"j{i}") for i in range(4)))
    world.end("j1")
    world.end("j2")
    world.submit(a_job("gang", 1, 3, required="socket", task=HALF))
    assert world.where("gang") == {}


def test_an_elastic_gang_of_parts_grows_on_the_device_it_is_on() -> None:
    world = one_gpu("priority")
    world.run(a_job("a", task=HALF))
    world.run(a_job("elastic", 1, (1, 2), task=HALF))
    plan = world.end("a")
    assert [len(action.placement.slots) for action in plan.actions if isinstance(action, Resize)] == [2]
    world.done("elastic")
    world.state.capacity.check()
    assert len({slot.rank for slot in world.job("elastic").attempt.placement.slots}) == 2  # type: ignore[union-attr]
    world.end("elastic")
    assert world.state.capacity.free == [1]


def test_trying_who_could_leave_a_shared_device_leaves_its_holders_as_they_were() -> None:
    world = one_gpu("priority")
    world.run(a_job("low", 1, 2, task=HALF))
    record(world.state, world.journal, JobSubmitted(a_job("head", 1, priority=5)), world.now)
    before = world.state.capacity.fingerprint()
    decide(world.state, world.now)
    assert world.state.capacity.fingerprint() == before


def test_what_a_kept_promise_leaves_of_a_device_goes_to_the_next_in_the_same_decision() -> None:
    """While half of the device is only promised nobody else may have the rest; once it is held, the next one may."""
    world = one_gpu("priority")
    world.run(a_job("low"))
    world.submit(a_job("head", priority=5, task=HALF))
    world.submit(a_job("next", priority=1, task=HALF))
    assert starts(world.done("low")) == ["head", "next"]
    assert not decide(world.state, world.now).news(world.state.head)
